"""rivals: other people's hardware softmaxes beside ours."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import print_json, print_table, progress, write_result
from softermax.cli.torch_setup import check_out
from softermax.results import Envelope

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.rivals.accuracy import Scores

_LAYERS, _HEADS = 6, 12
"""Of the recorded model: its rows are in their order."""
_EVERY = 4
"""Recorded rows that are skipped, and one more: neighbours are alike."""


def register(commands: Commands) -> None:
    command = commands.add(
        "rivals",
        rivals,
        "other hardware softmaxes: error, mass, silicon",
        ["rivals", "rivals --names ita i-bert:deferred --json", "rivals --out docs/results"],
    )
    command.add_argument("--names", nargs="+", help="designs, with :row-scaled or :deferred (default: all)")
    command.add_argument(
        "--no-recorded", action="store_true", help="Gaussian rows only, no model's attention"
    )
    command.add_argument(
        "--silicon",
        metavar="FILE",
        help="what softermax silicon --rivals wrote (default: rivals-silicon.json in --out, or that of the source tree)",
    )
    command.add_argument("--no-silicon", action="store_true", help="accuracy only")
    command.add_argument("--seed", type=int, default=0, help="of the Gaussian rows (default: %(default)s)")
    command.add_argument("--out", help="folder for rivals.json, rivals.md and, with silicon, pictures")


def rivals(args: argparse.Namespace) -> int:
    from softermax.rivals import all_designs, get_rival
    from softermax.rivals.accuracy import ROWS, measure_rivals
    from softermax.rivals.page import rivals_page, shown, with_silicon

    check_out(args.out)
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: must be 0 or more")
    known = {design.name: design for design in all_designs()}
    chosen = [known.get(name) or get_rival(name) for name in args.names or known]
    built = [] if args.no_silicon else _silicon(args)
    recorded, note = (None, "") if args.no_recorded else _recorded()
    if note and not args.quiet:
        print(note, file=sys.stderr)
    with progress("designs", args.quiet) as report:
        rows = measure_rivals(chosen, recorded, args.seed, report)
    rows = with_silicon(rows, built)
    if args.out:
        count = recorded[..., 0].size if recorded is not None else 0
        notes = {"gaussian_rows": ROWS, "recorded_rows": count, "seed": args.seed}
        pictures = []
        if any("area_um2" in row and "l1_recorded" in row for row in rows):
            from softermax.silicon.plots import draw_rivals

            pictures = [path.name for path in draw_rivals(rows, args.out)]
        write_result(args, "rivals", rows, rivals_page(rows, pictures), notes=notes)
    print_json(rows) if args.json else print_table(shown(rows))
    return 0


def _silicon(args: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    """Measured rows of designs that are built; none where nothing was measured."""
    from softermax.report import stored

    if args.silicon:
        return Envelope.load(args.silicon).rows
    folders = [Path(args.out) if args.out else None, stored.folder()]
    found = [folder / "rivals-silicon.json" for folder in folders if folder]
    return next((Envelope.load(path).rows for path in found if path.is_file()), [])


def _recorded() -> tuple[Scores | None, str]:
    """Scores of a real model, by layer and head; without them, the reason why."""
    from softermax.silicon.stimuli import recorded

    scores, note = recorded()
    if scores is None:
        return None, note
    rows, columns = scores.values.shape
    by_head = scores.values.astype("float64").reshape(_LAYERS, _HEADS, rows // _LAYERS // _HEADS, columns)
    return by_head[:, :, ::_EVERY], ""
