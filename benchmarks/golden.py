"""Throughput of the golden model at 384 columns on one core, for each preset.

    python benchmarks/golden.py [--rows 2730] [--rounds 7] [--json]

A round runs every preset once, so that a disturbance hits all of them. Printed are the best round by
the clock on the wall, and the median by the processor time of this process, which has one thread:
on a busy machine the first is too low. The presets' tables are made before the clocks start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

# One core, whatever the libraries under NumPy would take.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

from softermax import golden
from softermax.cli.output import print_json, print_table
from softermax.spec import PRESETS

COLUMNS = 384


def measure(rows: int, rounds: int) -> list[dict[str, str | float]]:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 4, (rows, COLUMNS)).astype(np.float32)
    mask = np.arange(COLUMNS) < rng.integers(1, COLUMNS + 1, (rows, 1))
    jobs = {}
    for name, spec in PRESETS.items():
        raw = golden.quantize(scores, spec)
        jobs[name, "words"] = lambda raw=raw, spec=spec: golden.softermax(raw, spec)
        jobs[name, "words, masked"] = lambda raw=raw, spec=spec: golden.softermax(raw, spec, mask)
        jobs[name, "words and trace"] = lambda raw=raw, spec=spec: golden.softermax(raw, spec, trace=True)
        jobs[name, "from float"] = lambda spec=spec: spec.run(scores)
    for job in jobs.values():
        job()
    wall: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    processor: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    for _ in range(rounds):
        for key, job in jobs.items():
            started = time.perf_counter(), time.process_time()
            job()
            wall[key].append(time.perf_counter() - started[0])
            processor[key].append(time.process_time() - started[1])
    elements = rows * COLUMNS / 1e6
    return [
        {
            "preset": preset,
            "what": what,
            "columns": COLUMNS,
            "M elements/s": elements / min(wall[preset, what]),
            "M elements/processor second": elements / statistics.median(processor[preset, what]),
        }
        for preset, what in jobs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2730, help="rows a run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    if args.rows < 1 or args.rounds < 1:
        parser.error("--rows and --rounds: must be 1 or more")
    result = measure(args.rows, args.rounds)
    if args.json:
        print_json(result)
    else:
        print_table(result)


if __name__ == "__main__":
    main()
