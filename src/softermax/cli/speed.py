"""info, bench, breakdown: what computes here, and how fast."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.kept import sources_of
from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.files import replacing
from softermax.results import Envelope, enveloped

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.speed.breakdown import Breakdown
    from softermax.speed.race import Race, Ratio


_PACKAGES = ("numpy", "torch", "onnxruntime")


def register(commands: Commands) -> None:
    commands.add("info", info, "which native path is in use and why; versions", ["info", "info --json"])
    command = commands.add(
        "bench",
        bench,
        "kernels and models against torch and onnxruntime",
        [
            "bench kernels",
            "bench attention --threads 2",
            "bench model --threads 1 2",
            "bench model --case 'BERT-Base 1x' enabled",
            "bench kernels --isa avx2 --json",
            "bench kernels --plot time.png",
            "bench gpu --compile --target sm_80 sm_90",
        ],
    )
    command.add_argument(
        "what", choices=("kernels", "attention", "training", "model", "gpu"), help="what to time"
    )
    command.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="threads for all contestants (default: 1)"
    )
    command.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: %(default)s)")
    command.add_argument("--isa", help="force this path, and torch to the same instruction set")
    command.add_argument("--no-large", action="store_true", help="leave the batch of 64 Mi elements out")
    command.add_argument("--plot", metavar="FILE", help="write a plot of the ratios, and of time per element")
    command.add_argument(
        "--case",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="only cases with one of these texts in their name",
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="write the result and its page, bench-WHAT.json and .md; with --case, other rows that are there stay",
    )
    command.add_argument(
        "--compile",
        action="store_true",
        help="gpu: compile the Triton kernels, which needs no GPU, and estimate their times",
    )
    command.add_argument(
        "--target", nargs="+", metavar="NAME", help="gpu --compile: sm_80, sm_90, gfx942 (default: all)"
    )
    _register_breakdown(commands)


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
    for name, values in (("threads", args.threads), ("rounds", [args.rounds])):
        if min(values) < 1:
            raise ValueError(f"--{name} {min(values)}: must be 1 or more")
    for name, given in (("--compile", args.compile), ("--target", args.target)):
        if given and args.what != "gpu":
            raise ValueError(f"{name}: is for bench gpu, not for bench {args.what}")
    if args.what == "gpu":
        return _bench_gpu(args)
    if args.isa:
        os.environ["SOFTERMAX_ISA"] = args.isa
        if args.isa in ("avx2", "avx512"):
            os.environ["ATEN_CPU_CAPABILITY"] = args.isa  # read when torch is imported
        if args.isa == "avx2":
            os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["MKL_ENABLE_INSTRUCTIONS"] = "AVX2"
    from softermax import kernels

    if kernels.isa() is None:
        raise ValueError(f"nothing to time: {kernels.status()}")
    from softermax.extras import need

    torch = need("torch", "torch")

    before = torch.get_num_threads()
    found: list[Ratio] = []
    rows: list[dict[str, Any]] = []
    try:
        for threads in args.threads:
            torch.set_num_threads(threads)
            with progress(f"bench {args.what}", args.quiet) as step:
                some, lines = _timed(args, threads, step)
            found, rows = found + some, rows + lines
    finally:
        torch.set_num_threads(before)
    status = f"{kernels.status()}; torch runs {torch.backends.cpu.get_cpu_capability()}"
    if args.what == "model" and args.isa:
        status += "; onnxruntime cannot be forced and is left out"
    if args.plot:
        plot(found, args.plot)
    if args.out:
        _write(args, rows, status)
    if args.json:
        print_json(rows)
        return 0
    if not args.quiet:
        print(status)
    print_table([row | {"ns/element": one.nanoseconds} for row, one in zip(rows, found, strict=True)])
    return 0


def _bench_gpu(args: argparse.Namespace) -> int:
    """Times on the GPU that is here; or, without one, what compilers make of the kernels, and an estimate."""
    from dataclasses import asdict

    from softermax.gpu.compiled import TARGETS, compile_kernels
    from softermax.speed import gpu

    packages = ("torch", "triton")
    if args.target and not args.compile:
        raise ValueError("--target: is for bench gpu --compile")
    if not args.compile:
        gpu.require_gpu()
        missing = gpu.left_out()
        for reason in missing:
            print(reason, file=sys.stderr)
        with progress("bench gpu", args.quiet) as step:
            rows = gpu.measure(args.rounds, step)
        if args.out:
            page = f"# Speed: gpu\n\nTheir time over ours: more is better.\n\n{markdown_table(rows)}"
            write_result(args, "bench-gpu", rows, page, (*packages, "sageattention"), {"left out": missing})
        print_json(rows) if args.json else print_table(rows)
        return 0
    with progress("bench gpu --compile", args.quiet) as step:
        found = compile_kernels(tuple(args.target or TARGETS), progress=step)
    rows = [asdict(one) for one in found]
    estimates = gpu.estimate(found)
    shown = [{name: value for name, value in row.items() if name != "kinds"} for row in rows]
    if args.out:
        page = (
            f"# Kernels for GPUs\n\nCompiled, not run.\n\n{markdown_table(shown)}\n\n## Estimate\n\nA roofline from "
            f"published rates, not a measurement.\n\n{markdown_table(estimates)}"
        )
        notes = {"estimate": estimates, "sources": {one.name: one.sources for one in gpu.GPUS}}
        write_result(args, "gpu", rows, page, packages, notes)
    if args.json:
        print_json({"compiled": rows, "estimate": estimates})
        return 0
    print_table(shown)
    if estimates:
        print_table(estimates, "Estimate from published rates, not a measurement")
    return 0


def _write(args: argparse.Namespace, rows: list[dict[str, Any]], status: str) -> None:
    """The result and its page. Rows of other cases stay where they were measured alike: same machine, same versions."""
    name = f"bench-{args.what}"
    path = Path(args.out) / f"{name}.json"
    notes: dict[str, Any] = {"status": status}
    if args.case and path.is_file():
        before, now = Envelope.load(path), enveloped(args.command_line, rows, _PACKAGES)
        for what in ("versions", "machine"):
            if getattr(before, what) != getattr(now, what):
                raise ValueError(
                    f"{path}: has other {what} than these rows; measure all cases, or choose another --out"
                )
        fresh = {(row["case"], row["versus"], row["threads"]) for row in rows}
        kept = [dict(row) for row in before.rows if (row["case"], row["versus"], row["threads"]) not in fresh]
        notes["kept"] = sources_of(before, {row["case"] for row in kept}, "case")
        rows = sorted([*kept, *rows], key=lambda row: row["threads"])
    page = (
        f"# Speed: {args.what}\n\nTheir time over ours: more is better. {status}.\n\n{markdown_table(rows)}"
    )
    write_result(args, name, rows, page, _PACKAGES, notes)


def _timed(args: argparse.Namespace, threads: int, step: Any) -> tuple[list[Ratio], list[dict[str, Any]]]:
    """Ratios, and the rows that they are shown as."""
    from softermax.speed.race import chosen, run_races

    if args.what == "model":
        from softermax.speed.model import time_models

        models = time_models(args.rounds, threads, not args.isa, step, args.case)
        return [one.ratio for one in models], [one.to_dict() for one in models]
    races = chosen(_races(args, threads), args.case)
    if not races:
        raise ValueError(f"--case {' '.join(args.case)}: no case has it in its name")
    found = run_races(races, args.rounds, threads, step)
    return found, [one.to_dict() for one in found]


def _races(args: argparse.Namespace, threads: int) -> list[Race]:
    if args.what == "attention":
        from softermax.speed.attention import attention_races

        return attention_races()
    if args.what == "training":
        from softermax.speed.training import training_races

        return training_races()
    from softermax.speed.kernels import kernel_races

    return kernel_races(threads, not args.no_large)


def plot(found: list[Ratio], path: str) -> None:
    """Ratios with their spread, and our time per element, over the number of columns."""
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
    right.set(xscale="log", yscale="log", xlabel="columns", ylabel="our time, ns per element")
    left.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format=path.rpartition(".")[2] or "png")
    pyplot.close(figure)


def _register_breakdown(commands: Commands) -> None:
    command = commands.add(
        "breakdown",
        breakdown,
        "where the time of a BERT-Large layer goes on this machine",
        ["breakdown", "breakdown --sequence 128 512 --precision fp32 --json", "breakdown --plot figures"],
    )
    command.add_argument("--sequence", nargs="+", type=int, metavar="N", help="lengths (default: 64 to 4096)")
    command.add_argument("--precision", nargs="+", choices=("fp32", "int8"), help="default: both")
    command.add_argument("--softmax", nargs="+", choices=("torch", "native"), help="default: both")
    command.add_argument("--repeats", type=int, default=3, help="runs of each part (default: 3)")
    command.add_argument("--threads", type=int, help="PyTorch's threads (default: its own choice)")
    command.add_argument(
        "--processor-time",
        action="store_true",
        help="count the processor's time instead of elapsed time, for a machine that others use too",
    )
    command.add_argument("--plot", metavar="FOLDER", help="draw the shares into a folder")
    command.add_argument(
        "--out", metavar="FOLDER", help="write the result and its page, breakdown.json and .md"
    )


def breakdown(args: argparse.Namespace) -> int:
    if args.threads is not None and args.threads < 1:
        raise ValueError(f"--threads {args.threads}: must be 1 or more")
    from softermax.speed.breakdown import PARTS, PRECISIONS, SEQUENCES, SOFTMAXES, time_layers

    if args.threads is not None:
        import torch

        torch.set_num_threads(args.threads)
    with progress("breakdown", args.quiet) as step:
        found = time_layers(
            args.sequence or SEQUENCES,
            args.precision or PRECISIONS,
            args.softmax or SOFTMAXES,
            args.repeats,
            step,
            args.processor_time,
        )
    shares = []
    for entry in found:
        total = sum(entry.milliseconds.values())
        shares.append(
            {"sequence": entry.sequence, "precision": entry.precision, "softmax by": entry.softmax}
            | {"ms": round(total, 2)}
            | {f"{name} %": round(100 * entry.milliseconds[name] / total, 1) for name in PARTS}
        )
    title = f"A BERT-Large layer, {found[0].clock} time on {found[0].device}, {found[0].threads} threads"
    rows = [entry.to_json() for entry in found]
    if args.plot:
        path = _draw(found, Path(args.plot) / "breakdown.png")
        if not (args.json or args.quiet):
            print(f"wrote {path}")
    if args.out:
        page = f"# Where the time goes\n\n{title}.\n\n{markdown_table(shares)}"
        write_result(args, "breakdown", rows, page, _PACKAGES)
    print_json(rows) if args.json else print_table(shares, title)
    return 0


def _draw(found: Sequence[Breakdown], path: Path) -> Path:
    """The paper's motivation figure: stacked shares over the sequence length, one panel per combination."""
    from softermax.extras import need
    from softermax.files import replacing
    from softermax.speed.breakdown import PARTS

    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys((entry.precision, entry.softmax) for entry in found))
    figure: Any = Figure(figsize=(4.5 * len(kinds), 4), layout="constrained")
    axes: Any = figure.subplots(1, len(kinds), squeeze=False)
    for axis, kind in zip(axes[0], kinds, strict=True):
        some = [entry for entry in found if (entry.precision, entry.softmax) == kind]
        ticks = [str(entry.sequence) for entry in some]
        bottom = [0.0] * len(some)
        for part in PARTS:
            heights = [100 * e.milliseconds[part] / sum(e.milliseconds.values()) for e in some]
            axis.bar(ticks, heights, bottom=bottom, label=part)
            bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
        axis.set(title=f"{kind[0]}, softmax by {kind[1]}", xlabel="sequence length", ylabel="% of the time")
        axis.tick_params(axis="x", rotation=45)
    axes[0][-1].legend(fontsize=7, loc="lower left")
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png")
    return path
