"""rivals: other people's hardware softmaxes beside ours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cli.output import print_json, print_table, progress, write_result
from softermax.cli.torch_setup import check_out
from softermax.results import Envelope

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.rivals.accuracy import Scores

_LAYERS = 6
"""Of the recorded model: its rows are in their order."""
_EVERY = 4
"""Recorded rows that are skipped, and one more: neighbours are alike."""


def register(commands: Commands) -> None:
    command = commands.add(
        "rivals",
        rivals,
        "other hardware softmaxes beside ours: error, mass",
        ["rivals", "rivals --names ita i-bert:deferred --json", "rivals --out docs/results"],
    )
    command.add_argument("--names", nargs="+", help="designs, with :row-scaled or :deferred (default: all)")
    command.add_argument(
        "--no-recorded", action="store_true", help="Gaussian rows only, no model's attention"
    )
    command.add_argument("--seed", type=int, default=0, help="of the Gaussian rows (default: %(default)s)")
    command.add_argument("--out", help="folder for rivals.json and rivals.md; silicon that is there is kept")


def rivals(args: argparse.Namespace) -> int:
    from softermax.rivals import all_designs, get_rival
    from softermax.rivals.accuracy import ROWS, measure_rivals
    from softermax.rivals.page import rivals_page, shown, with_silicon

    check_out(args.out)
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: must be 0 or more")
    known = {design.name: design for design in all_designs()}
    chosen = [known.get(name) or get_rival(name) for name in args.names or known]
    recorded, note = (None, "") if args.no_recorded else _recorded()
    if note and not args.quiet:
        print(note, file=sys.stderr)
    with progress("designs", args.quiet) as report:
        rows = measure_rivals(chosen, recorded, args.seed, report)
    if args.out:
        path = Path(args.out) / "rivals.json"
        rows = with_silicon(rows, Envelope.load(path).rows if path.is_file() else [])
        count = recorded.shape[0] * recorded.shape[1] if recorded is not None else 0
        notes = {"gaussian_rows": ROWS, "recorded_rows": count, "seed": args.seed}
        write_result(args, "rivals", rows, rivals_page(rows), notes=notes)
    print_json(rows) if args.json else print_table(shown(rows))
    return 0


def _recorded() -> tuple[Scores | None, str]:
    """Scores of a real model, by layer; without them, the reason why."""
    from softermax.silicon.stimuli import recorded

    scores, note = recorded()
    if scores is None:
        return None, note
    rows, columns = scores.values.shape
    by_layer = scores.values.astype("float64").reshape(_LAYERS, rows // _LAYERS, columns)
    return by_layer[:, ::_EVERY], ""
