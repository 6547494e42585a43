"""What the explorer takes for a row, over HTTP: `python benchmarks/explorer.py [--out FOLDER]`."""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from pathlib import Path

import numpy as np

from softermax.cli.output import print_table
from softermax.explorer.server import Explorer
from softermax.results import enveloped
from softermax.spec import PRESETS, DeferredSpec

_FINE = PRESETS["paper"].replace(
    input="Q(6,16)", reciprocal="Q(1,15)", pow2_segments=256, reciprocal_segments=256
)
SPECS = {
    **PRESETS,
    "deferred": DeferredSpec(),
    "256 segments": _FINE,
    "4096 segments": _FINE.replace(pow2_segments=4096, reciprocal_segments=4096),
    "slices of 1": PRESETS["paper"].replace(slice_width=1),
}
COUNTS = (1024, 16, 4096)
"""Scores. The first reply to a spec makes its tables."""


def reply_times(repeats: int) -> list[dict[str, str | float]]:
    """The first reply, and median and worst of the others: milliseconds of processor time, of both ends together."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, str | float]] = []
    with Explorer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        for name, spec in SPECS.items():
            for count in COUNTS:
                row = np.round(rng.normal(0, 3, count), 2).tolist()
                body = json.dumps({"scores": row, "spec": spec.to_dict()})
                times = []
                for _ in range(repeats):
                    started = time.process_time()
                    connection.request("POST", "/api/compute", body, {"Content-Type": "application/json"})
                    connection.getresponse().read()
                    times.append((time.process_time() - started) * 1e3)
                first, *later = (round(value, 1) for value in times)
                median = round(float(np.median(later)), 1)
                rows.append(
                    {"spec": name, "scores": count, "first": first, "median": median, "worst": max(later)}
                )
        server.shutdown()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--out", metavar="FOLDER", help="write explorer.json")
    args = parser.parse_args()
    rows = reply_times(args.repeats)
    print_table(rows)
    if args.out:
        enveloped("python benchmarks/explorer.py", rows).save(Path(args.out) / "explorer.json")


if __name__ == "__main__":
    main()
