"""How long the explorer takes for a row, over HTTP: `python benchmarks/explorer.py`."""

from __future__ import annotations

import http.client
import json
import threading
import time

import numpy as np

from softermax.explorer.server import Explorer
from softermax.spec import PRESETS, DeferredSpec


def main(repeats: int = 50) -> None:
    rng = np.random.default_rng(0)
    with Explorer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        print("spec         scores  first ms  median ms  worst ms")
        paper = PRESETS["paper"]
        fine = paper.replace(
            input="Q(6,16)", reciprocal="Q(1,15)", pow2_segments=256, reciprocal_segments=256
        )
        specs = {
            "deferred": DeferredSpec(),
            "256 segments": fine,
            "slices of 1": paper.replace(slice_width=1),
        }
        for name, spec in (*PRESETS.items(), *specs.items()):
            for count in (16, 1024, 4096):
                row = np.round(rng.normal(0, 3, count), 2).tolist()
                body = json.dumps({"scores": row, "spec": spec.to_dict()})
                times = []
                for _ in range(repeats):
                    started = time.perf_counter()
                    connection.request("POST", "/api/compute", body, {"Content-Type": "application/json"})
                    connection.getresponse().read()
                    times.append((time.perf_counter() - started) * 1e3)
                median, worst = np.median(times), max(times[1:])
                print(f"{name:12} {count:6}  {times[0]:8.1f}  {median:9.1f}  {worst:8.1f}")
        server.shutdown()


if __name__ == "__main__":
    main()
