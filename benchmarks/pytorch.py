"""The PyTorch operator against torch.softmax, forward and backward, on 32 x 12 x 128 x 128 scores.

Runs are interleaved, so that the machine's other work hits all alike; the table gives each one's median
time and the median of its ratios to torch.softmax, with the middle half of them.

    python benchmarks/pytorch.py [--threads N] [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from softermax import PRESETS
from softermax.cli.output import print_table
from softermax.functional import softermax


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    x = torch.randn(32, 12, 128, 128, requires_grad=True)
    g = torch.randn_like(x)
    subjects: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "torch.softmax": lambda v: torch.softmax(v, -1),
        "softermax": softermax,
        "softermax, compiled": torch.compile(softermax, fullgraph=True, dynamic=False),
        "softermax whole-row, compiled": torch.compile(
            lambda v: softermax(v, spec=PRESETS["whole-row"]), fullgraph=True, dynamic=False
        ),
    }

    def run(f: Callable[[torch.Tensor], torch.Tensor]) -> float:
        x.grad = None
        started = time.perf_counter()
        f(x).backward(g)
        return time.perf_counter() - started

    for f in subjects.values():
        run(f)
    times = {name: [] for name in subjects}
    for _ in range(args.runs):
        for name, f in subjects.items():
            times[name].append(run(f))
    rows = []
    for name, seconds in times.items():
        ratios = sorted(a / b for a, b in zip(seconds, times["torch.softmax"], strict=True))
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            {
                "operator": name,
                "ms": 1e3 * statistics.median(seconds),
                "times softmax": middle,
                "from": low,
                "to": high,
            }
        )
    print_table(rows, f"forward and backward, {args.threads} threads, torch {torch.__version__}")


if __name__ == "__main__":
    main()
