"""rtl and mutate: the hardware units as Verilog with test bench and datasheet, and what the bench notices."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.extras import need
from softermax.rtl.names import UNIT_NAMES, UnitName
from softermax.spec import DeferredSpec, get_spec

if TYPE_CHECKING:
    from softermax.cli import Commands

_PARAMETERS = ("rows", "depth", "columns", "accumulator_bits")


def register(commands: Commands) -> None:
    command = commands.add(
        "rtl",
        rtl,
        "a unit as Verilog, with test bench, vectors and datasheet",
        [
            "rtl --check --out build/rtl",
            "rtl --unit unnormed-softmax --width 32 --rows 8 --out build/rtl",
            "rtl --unit normalization --spec row-scaled --out build/rtl",
            "rtl --spec paper:deferred --columns 64 --out build/rtl",
            "rtl --axi --registered --name attention_softmax --out build/rtl",
        ],
    )
    command.add_argument(
        "--unit",
        choices=UNIT_NAMES,
        help="which unit (default: deferred of a :deferred spec, top of any other)",
    )
    command.add_argument(
        "--spec",
        default="paper",
        help="a preset, with :deferred after it for the attention tail, or a .json file (default: %(default)s)",
    )
    command.add_argument("--width", type=int, help="lanes (default: the spec's slice width)")
    command.add_argument("--rows", type=int, help="rows that may be open at a time")
    command.add_argument("--depth", type=int, help="slices that a row may have (top only)")
    command.add_argument("--columns", type=int, help="columns of V (deferred only)")
    command.add_argument("--accumulator-bits", type=int, help="bits of P·V's accumulators (deferred only)")
    command.add_argument(
        "--slices", type=int, default=600, help="slices in the vectors (default: %(default)s)"
    )
    command.add_argument(
        "--check", action="store_true", help="run the bench in Verilator; exit code 1 if it says FAIL"
    )
    command.add_argument(
        "--name",
        help="the module's, with which those of its parts and all files begin (default: the unit's own)",
    )
    command.add_argument(
        "--axi", action="store_true", help="AXI4-Stream ports: tdata, tkeep as mask, tlast, tid (top only)"
    )
    command.add_argument(
        "--registered",
        action="store_true",
        help="skid buffers on all streams: every output is a register, two cycles later",
    )
    command.add_argument("--out", required=True, help="the folder to write into")
    command = commands.add(
        "mutate",
        mutate,
        "break exported Verilog in every way; does its bench see?",
        ["mutate --every 50", "mutate --spec lean --out results"],
        listed=False,
    )
    command.add_argument(
        "--unit",
        choices=[name for name in UNIT_NAMES if name != "deferred"],
        default="top",
        help="which unit",
    )
    command.add_argument("--spec", default="paper", help="a preset or a .json file (default: %(default)s)")
    command.add_argument("--width", type=int, default=2, help="lanes (default: %(default)s)")
    command.add_argument(
        "--depth",
        type=int,
        default=512,
        help="slices that a row may have (default: %(default)s, enough for a PowSum that saturates)",
    )
    command.add_argument(
        "--slices",
        type=int,
        default=7000,
        help="slices in the vectors (default: %(default)s, enough for every mantissa of a PowSum)",
    )
    command.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th of the list")
    command.add_argument("--out", metavar="FOLDER", help="write mutations.json and mutations.md there")


def rtl(args: argparse.Namespace) -> int:
    need("amaranth", "hardware")
    need("pyosys", "hardware")
    from softermax.rtl.export import bench, export
    from softermax.rtl.sizes import at_width

    if args.slices < 1:
        raise ValueError(f"--slices {args.slices}: must be 1 or more")
    spec = get_spec(args.spec)
    if args.width is not None:
        spec = at_width(spec, args.width)
    unit: UnitName = args.unit or ("deferred" if isinstance(spec, DeferredSpec) else "top")
    given = {name: getattr(args, name) for name in _PARAMETERS}
    parameters = {name: value for name, value in given.items() if value is not None}
    written = export(
        spec, unit, Path(args.out), parameters, args.slices, args.name, args.axi, args.registered
    )
    module = next(path.stem for path in written if path.suffix == ".v")
    if args.json:
        print_json([str(path) for path in written])
    elif not args.quiet:
        for path in written:
            print(path)
    if not args.check:
        if not (args.json or args.quiet):
            print(f"{module}.md says how to run the bench; with --check it is run at once")
        return 0
    said = bench.run(Path(args.out), module)
    passed = bench.passed(said)
    if not passed or not (args.json or args.quiet):
        print(said.strip(), file=sys.stderr if args.json else sys.stdout)
    return 0 if passed else 1


def mutate(args: argparse.Namespace) -> int:
    need("amaranth", "hardware")
    need("pyosys", "hardware")
    from softermax.rtl.export import export
    from softermax.rtl.export.mutants import tried
    from softermax.rtl.export.mutations import mutations
    from softermax.rtl.sizes import at_width

    if args.every < 1:
        raise ValueError(f"--every {args.every}: must be 1 or more")
    spec = at_width(get_spec(args.spec), args.width)
    unit: UnitName = args.unit
    parameters = {"rows": 2, "depth": args.depth} if unit == "top" else {}
    with (
        tempfile.TemporaryDirectory(prefix="softermax-") as temporary,
        progress("mutate", args.quiet) as report,
    ):
        folder = Path(temporary)
        written = export(spec, unit, folder, parameters, args.slices)
        name = next(path.stem for path in written if path.suffix == ".v")
        listed = mutations((folder / f"{name}.v").read_text(encoding="utf-8"))
        only = [one.number for one in listed[:: args.every]]
        found = tried(folder, name, spec, parameters.get("rows", 1), only, report)
    rows = [
        {
            "number": one.mutation.number,
            "module": one.mutation.module,
            "line": one.mutation.line,
            "kind": one.mutation.kind,
            "was": " ".join(one.mutation.was.split()),
            "is": " ".join(one.mutation.is_.split()),
            "outcome": one.outcome,
            "how": one.said,
        }
        for one in found
    ]
    counts = Counter((str(row["kind"]), str(row["outcome"])) for row in rows)
    kinds = sorted({kind for kind, _ in counts})
    table = [
        {
            "mutation": kind,
            **{outcome: counts[kind, outcome] for outcome in ("caught", "equivalent", "survived")},
        }
        for kind in kinds
    ]
    survived = [row for row in rows if row["outcome"] == "survived"]
    if args.out:
        notes = {
            "unit": unit, "spec": args.spec, "width": args.width, "depth": args.depth, "slices": args.slices,
            "every": args.every, "listed": len(listed),
        }  # fmt: skip
        page = (
            f"# Mutations of the exported Verilog\n\n{markdown_table(table)}\n\n"
            "Caught: the shipped bench says FAIL. Equivalent: the module is the same, or nothing that leaves the unit is another, and\n"
            "the table below says what shows it. Survived: neither.\n\n"
            + markdown_table(
                [
                    {key: row[key] for key in ("module", "line", "kind", "outcome", "how", "is")}
                    for row in rows
                    if row["outcome"] != "caught"
                ]
            )
        )
        write_result(args, "mutations", rows, page, ("amaranth", "pyosys"), notes)
    if args.json:
        print_json(rows)
    elif not args.quiet:
        print_table(table)
        for row in survived:
            print(
                f"survived: {row['number']} {row['module']}:{row['line']} {row['kind']}: {row['was']} -> {row['is']}"
            )
    return 1 if survived else 0
