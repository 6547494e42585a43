"""info, bench: what computes here, and how fast."""

from __future__ import annotations

import argparse
import os
import platform
from typing import TYPE_CHECKING, Any

from softermax.cli.output import print_json, print_table
from softermax.files import replacing

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.speed.kernels import Ratio


def register(commands: Commands) -> None:
    commands.add("info", info, "which native path is in use and why; versions", ["info", "info --json"])
    command = commands.add(
        "bench",
        bench,
        "native kernels against torch, onnxruntime and memcpy",
        [
            "bench kernels",
            "bench attention --threads 2",
            "bench kernels --isa avx2 --json",
            "bench kernels --plot time.png",
        ],
    )
    command.add_argument("what", choices=("kernels", "attention", "training"), help="what to time")
    command.add_argument("--threads", type=int, default=1, help="threads for all contestants (default: 1)")
    command.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: %(default)s)")
    command.add_argument("--isa", help="force this path, and torch to the same instruction set")
    command.add_argument("--no-large", action="store_true", help="leave the batch of 64 Mi elements out")
    command.add_argument("--plot", metavar="FILE", help="write a plot of the ratios, and of time an element")


def info(args: argparse.Namespace) -> int:
    from importlib.metadata import PackageNotFoundError, version

    from softermax import __version__, kernels
    from softermax.spec import PRESETS

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    values: dict[str, Any] = {
        "softermax": __version__,
        "kernel": kernels.isa(),
        "status": kernels.status(),
        "usable": list(kernels.usable()),
        "presets": [name for name, spec in PRESETS.items() if kernels.supports(spec)],
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    values |= {
        name: installed(name) for name in ("numpy", "torch", "transformers", "onnxruntime", "amaranth")
    }
    if args.json:
        print_json(values)
        return 0
    for name, value in values.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        print(f"{name:13}{'not installed' if value is None else shown}")
    return 0


def bench(args: argparse.Namespace) -> int:
    for name in ("threads", "rounds"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} {getattr(args, name)}: must be 1 or more")
    if args.isa:
        os.environ["SOFTERMAX_ISA"] = args.isa
        if args.isa in ("avx2", "avx512"):
            os.environ["ATEN_CPU_CAPABILITY"] = args.isa  # read when torch is imported
    from softermax.extras import need

    torch = need("torch", "torch")
    from softermax import kernels

    if kernels.isa() is None:
        raise ValueError(f"nothing to time: {kernels.status()}")
    from softermax.speed import kernels as run

    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        if args.what == "kernels":
            found = run.bench_kernels(args.threads, args.rounds, not args.no_large)
        elif args.what == "attention":
            found = run.bench_attention(args.threads, args.rounds)
        else:
            found = run.bench_training(args.threads, args.rounds)
    finally:
        torch.set_num_threads(threads)
    if args.plot:
        plot(found, args.plot)
    if args.json:
        print_json([one.to_dict() for one in found])
        return 0
    if not args.quiet:
        print(f"{kernels.status()}; torch runs {torch.backends.cpu.get_cpu_capability()}")
    print_table([one.to_dict() | {"ns/element": one.nanoseconds} for one in found])
    return 0


def plot(found: list[Ratio], path: str) -> None:
    """Ratios with their spread, and our time an element, over the number of columns."""
    from softermax.extras import need

    pyplot: Any = need("matplotlib.pyplot", "cli")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    versus = found[0].versus
    cases = list(dict.fromkeys(one.case for one in found))
    for case in cases:
        points = [one for one in found if one.case == case and one.versus == versus]
        x = [one.columns for one in points]
        y = [one.ratio for one in points]
        spread = [[a.ratio - a.low for a in points], [a.high - a.ratio for a in points]]
        left.errorbar(x, y, yerr=spread, marker="o", capsize=3, label=case)
        right.plot(x, [one.nanoseconds for one in points], marker="o", label=case)
    left.axhline(1.0, color="black", linewidth=0.8)
    left.set(xscale="log", xlabel="columns", ylabel=f"time of {versus} over ours")
    right.set(xscale="log", yscale="log", xlabel="columns", ylabel="our time, ns an element")
    left.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format=path.rpartition(".")[2] or "png")
    pyplot.close(figure)
