"""breakdown: where the time of a BERT-Large layer goes as sequences grow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, progress

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.speed.breakdown import Breakdown


def register(commands: Commands) -> None:
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
    command.add_argument("--markdown", action="store_true", help="print Markdown")
    command.add_argument("--plot", metavar="FOLDER", help="draw the shares into a folder")


def breakdown(args: argparse.Namespace) -> int:
    from softermax.speed.breakdown import PARTS, PRECISIONS, SEQUENCES, SOFTMAXES, measure

    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"--threads {args.threads}: must be 1 or more")
        import torch

        torch.set_num_threads(args.threads)
    sequences = args.sequence or SEQUENCES
    precisions, softmaxes = args.precision or PRECISIONS, args.softmax or SOFTMAXES
    with progress("breakdown", args.quiet) as step:
        found = measure(sequences, precisions, softmaxes, args.repeats, step, args.processor_time)
    if args.plot:
        path = _draw(found, Path(args.plot) / "breakdown.png")
        if not (args.json or args.quiet):
            print(f"wrote {path}")
    if args.json:
        print_json([entry.to_json() for entry in found])
        return 0
    rows = []
    for entry in found:
        total = sum(entry.milliseconds.values())
        shares = {f"{name} %": round(100 * entry.milliseconds[name] / total, 1) for name in PARTS}
        rows.append(
            {"sequence": entry.sequence, "precision": entry.precision, "softmax by": entry.softmax}
            | {"ms": round(total, 2)}
            | shares
        )
    if args.markdown:
        print(markdown_table(rows))
    else:
        print_table(
            rows,
            f"A BERT-Large layer, {found[0].clock} time on {found[0].device}, {found[0].threads} threads",
        )
    return 0


def _draw(found: Sequence[Breakdown], path: Path) -> Path:
    """The paper's motivation figure: stacked shares over the sequence length, one panel a combination."""
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
