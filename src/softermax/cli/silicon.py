"""silicon: area, timing and energy of the units, from RTL."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from softermax.cli.output import markdown_table, print_json, print_table, progress

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.silicon.table import Table


def register(commands: Commands) -> None:
    command = commands.add(
        "silicon",
        silicon,
        "area, timing and energy against FP16, at gate level",
        [
            "silicon",
            "silicon --library nangate45 asap7 --pdk-root PDK --width 16 32 --markdown",
            "silicon --clock 2.5 --baseline two-pass --json",
            "silicon --parts --plot figures",
            "silicon --sensitivity --markdown",
            "silicon --pe --width 32",
            "silicon --sweep --width 16 32 --json",
        ],
    )
    command.add_argument(
        "--library",
        nargs="+",
        default=["nangate45"],
        metavar="NAME",
        help="nangate45, asap7, or the .json description of another (default: nangate45)",
    )
    command.add_argument(
        "--pdk-root", help="the folder with ASAP7's liberty files (default: $SOFTERMAX_PDK_ROOT)"
    )
    command.add_argument(
        "--width",
        nargs="+",
        type=int,
        default=[16],
        choices=(4, 8, 16, 32, 64),
        help="elements a cycle (default: 16); 16 or 32 with --pe and --sweep",
    )
    command.add_argument("--clock", type=float, metavar="NS", help="clock period (default: the library's)")
    command.add_argument(
        "--baseline", nargs="+", choices=("two-pass", "online"), help="baselines (default: both)"
    )
    command.add_argument("--preset", nargs="+", help="presets (default: all that hardware can be made of)")
    command.add_argument("--markdown", action="store_true", help="print Markdown")
    command.add_argument(
        "--parts", action="store_true", help="also print each design's cells, slowest path and sub-units"
    )
    command.add_argument("--plot", metavar="FOLDER", help="draw area and energy by sub-unit into a folder")
    command.add_argument(
        "--sensitivity",
        action="store_true",
        help="the ratios under other clocks, wire loads, scores, baselines",
    )
    whole = command.add_mutually_exclusive_group()
    whole.add_argument("--pe", action="store_true", help="the processing element instead of its units")
    whole.add_argument(
        "--sweep", action="store_true", help="the processing element's energy for sequences of 64 to 16384"
    )
    command.add_argument("--workers", type=int, help="parallel processes (default: one a core)")


def silicon(args: argparse.Namespace) -> int:
    from softermax.silicon.table import build, orders_of
    from softermax.silicon.units import BASELINES

    if args.clock is not None and args.clock <= 0:
        raise ValueError(f"--clock {args.clock}: must be more than 0 (nanoseconds)")
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers}: must be 1 or more")
    baselines = args.baseline or list(BASELINES)
    if args.sensitivity:
        return _sensitivity(args, baselines)
    if args.pe or args.sweep:
        if set(args.width) - {16, 32}:
            raise ValueError(f"--width {args.width}: the paper's processing elements are 16 and 32 wide")
        from softermax.cli import pe

        return pe.run(args)
    orders = orders_of(args.library, args.width, args.clock, args.pdk_root, baselines, args.preset)
    with progress("silicon", args.quiet) as step:
        table = build(orders, baselines, args.workers, step)
    if args.plot:
        from softermax.silicon.plots import draw

        for path in draw(table, args.plot):
            if not (args.json or args.quiet):
                print(f"wrote {path}")
    if args.json:
        print_json(table.to_json())
    else:
        _print(table, args.markdown)
        if args.parts:
            parts = table.by_sub_unit()
            print()
            print(markdown_table(parts)) if args.markdown else print_table(parts, "By sub-unit")
    return 0


def _sensitivity(args: argparse.Namespace, baselines: list[str]) -> int:
    import dataclasses

    from softermax.silicon.sensitivity import tasks_of, vary
    from softermax.silicon.table import stimuli

    pairs = tasks_of(args.library, args.width, args.clock, args.pdk_root, baselines)
    scores, note = stimuli()
    with progress("silicon", args.quiet) as step:
        found = vary(pairs, scores, args.workers, step)
    rows = [dataclasses.asdict(row) for row in found]
    if args.json:
        print_json(rows)
        return 0
    if args.markdown:
        print(markdown_table(rows))
    else:
        print_table(rows)
    if note:
        print(f"Gaussian scores only: {note}")
    return 0


def _print(table: Table, markdown: bool) -> None:
    from softermax.silicon.table import PAPER

    rows = []
    for row in table.to_json():
        paper = PAPER[str(row["unit"])]
        rows.append(
            row | {"paper_area_ratio": paper["area_ratio"], "paper_energy_ratio": paper["energy_ratio"]}
        )
    if markdown:
        print(markdown_table(rows))
    else:
        print_table(rows, f"Units with {table.stimulus} scores, {table.columns} a row")
    for row_of in table.rows:
        if not row_of.meets:
            print(
                f"{row_of.unit} {row_of.preset} against {row_of.baseline}, {row_of.width} wide, {row_of.library}: "
                f"a design misses {row_of.clock_ns} ns (slack {row_of.slack_ns} and {row_of.baseline_slack_ns} ns)"
            )
    if table.note:
        print(f"Gaussian scores only: {table.note}")
