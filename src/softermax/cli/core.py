"""presets, tables, verify: the arithmetic itself."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from softermax import reference
from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.torch_setup import check_out
from softermax.spec import DEFERRED, PRESETS, SPECS, AnySpec, DeferredSpec, get_spec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

if TYPE_CHECKING:
    from softermax.cli import Commands


SPEC_HELP = "a preset, then +fold for base e, then :deferred; or a .json file"


def register(commands: Commands) -> None:
    command = commands.add(
        "demo",
        demo,
        "from softmax to Softermax on a row of real attention",
        ["demo", "demo --scores 2,1,3", "demo --out ladder.svg"],
    )
    command.add_argument("--scores", help="scores of your own, separated by commas")
    command.add_argument(
        "--out", type=Path, default=Path("out/ladder.png"), help="the picture (default: %(default)s)"
    )
    command = commands.add(
        "presets",
        presets,
        "the named specs: words, tables, rounding",
        ["presets", "presets --json", "presets --study --models minilm --out docs/results"],
    )
    command.add_argument(
        "--study", action="store_true", help="whether each word of the lean presets is needed: errors"
    )
    command.add_argument(
        "--models", nargs="*", help="whose attention --study reads (default: minilm mpnet smollm2)"
    )
    command.add_argument("--out", metavar="FOLDER", help="with --study: where lean.json and lean.md go")
    command = commands.add(
        "tables",
        tables,
        "the linear piece-wise tables of a spec and their errors",
        ["tables", "tables --spec row-scaled --verbose"],
    )
    command.add_argument("--spec", help=f"{SPEC_HELP} (default: every preset)")
    command = commands.add(
        "verify",
        verify,
        "every body against the golden model, bit by bit",
        [
            "verify",
            "verify --spec my.json --exhaustive",
            "verify --bodies kernel torch --specs 500 --seed 1 --json",
        ],
    )
    command.add_argument(
        "--bodies", nargs="+", default=[], metavar="NAME", help="only bodies whose names contain one of these"
    )
    command.add_argument("--spec", help=f"only this one: {SPEC_HELP}")
    command.add_argument("--specs", type=int, help="how many random specs beside the presets (default: 24)")
    command.add_argument("--rows", type=int, default=100, help="random rows per case (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="of rows and specs (default: %(default)s)")
    command.add_argument(
        "--exhaustive", action="store_true", help="all pairs of scores on slow bodies too, which take minutes"
    )


def demo(args: argparse.Namespace) -> int:
    from softermax.reproduce import ladder

    example = ladder.load_example()
    if args.scores:
        try:
            scores = np.array([float(part) for part in args.scores.split(",")])
        except ValueError:
            raise ValueError(
                f"--scores {args.scores!r}: expected numbers separated by commas, like 2,1,3"
            ) from None
        example = ladder.Example("given", "given scores", "x", [f"{v:g}" for v in scores], scores)
    if args.out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out {args.out}: must be a name that ends in .png, .svg or .pdf")
    steps = [
        {"step": s.name, "compared with": s.against, "max difference": s.max_error, "row sum": s.row_sum}
        for s in ladder.ladder(example.scores)
    ]
    trace = ladder.trace_rows(ladder.paper_trace(example.scores))
    sums = reference.softermax([2.0, 1.0, 3.0], trace=True)[1].sums.tolist()
    if args.json:
        print_json({"scores": example.scores.tolist(), "steps": steps, "trace": trace})
    else:
        print(f"The paper's worked example, [2, 1, 3] one by one: d = {', '.join(f'{d:g}' for d in sums)}\n")
        print(f"{example.text}\nscores: {example.source}\n")
        print_table(steps, "The ladder: what each idea changes")
        print()
        print_table(trace, "The row as the hardware sees it (paper, slices of 16)")
    try:
        ladder.draw(example, args.out)
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)
    else:
        if not args.quiet and not args.json:
            print(f"\npicture: {args.out}")
    return 0


def presets(args: argparse.Namespace) -> int:
    if args.study:
        return _study(args)
    for option in ("models", "out"):
        if getattr(args, option) is not None:
            raise ValueError(f"--{option}: goes with --study")
    if args.json:
        print_json({name: spec.to_dict() for name, spec in SPECS.items()})
        return 0
    columns = {name: spec.to_dict() for name, spec in PRESETS.items()}
    fields = next(iter(columns.values()))
    print_table(
        [
            {"field": field} | {name: _shown(field, values[field]) for name, values in columns.items()}
            for field in fields
        ]
    )
    print()
    print_table(
        [
            {"field": field, f"any preset{DEFERRED}": value}
            for field, value in DeferredSpec().to_dict().items()
            if field != "scores"
        ]
    )
    return 0


def _study(args: argparse.Namespace) -> int:
    from softermax.models.word_study import MODELS, measure_words, score_sets

    check_out(args.out)
    with progress("attention", args.quiet) as report:
        sets, missing = score_sets(MODELS if args.models is None else args.models, report)
    for model, reason in missing.items():
        print(f"no attention of {model}: {reason}", file=sys.stderr)
    with progress("words", args.quiet) as report:
        rows = measure_words(sets, report=report)
    shown = ("preset", "change", "mean_ratio", "worst_ratio", "worst_on")
    if args.out:
        page = "# Words of the lean presets\n\nL1 distance to the exact softmax, as a ratio to the paper's words.\n\n"
        notes = {"rows": {one.name: len(one.scores) for one in sets}, "missing": missing}
        write_result(args, "lean", rows, page + markdown_table(rows, shown), ("numpy", "torch"), notes)
    print_json(rows) if args.json else print_table(rows, columns=shown)
    return 0


def _shown(field: str, value: object) -> object:
    return "whole row" if field == "slice_width" and value is None else value


def tables(args: argparse.Namespace) -> int:
    specs: dict[str, AnySpec] = {args.spec: get_spec(args.spec)} if args.spec else dict(PRESETS)
    made = [(name, table) for name, spec in specs.items() for table in _tables_of(spec)]
    if not args.spec:
        # The 2^x table of deferred normalisation is the scores' own.
        made.append(("deferred (A8)", reciprocal_table(DeferredSpec())))
    rows = [
        {
            "spec": name,
            "function": "2^x" if t.function == "pow2" else "1/x",
            "segments": t.segments,
            "argument bits": t.argument_bits,
            "used": t.used_bits,
            "m-table": t.uses_m,
            "fraction": t.fraction,
            "max error": t.max_error(),
            "in units": t.max_error() * 2**t.fraction,
        }
        for name, t in made
    ]
    if args.json:
        print_json(
            [row | {"m_lut": t.m_lut, "c_lut": t.c_lut} for row, (_, t) in zip(rows, made, strict=True)]
        )
        return 0
    print_table(rows)
    if args.verbose:
        for name, t in made:
            print(f"\n{name} {t.function}: shift {t.shift}, clipped to {t.low} ... {t.high}")
            print_table(
                [
                    {"segment": i, "m": m, "c": c}
                    for i, (m, c) in enumerate(zip(t.m_lut, t.c_lut, strict=True))
                ]
            )
    return 0


def _tables_of(spec: AnySpec) -> tuple[PiecewiseTable, PiecewiseTable]:
    return pow2_table(spec.scores if isinstance(spec, DeferredSpec) else spec), reciprocal_table(spec)


def verify(args: argparse.Namespace) -> int:
    from softermax.verify import KINDS
    from softermax.verify import verify as run

    if args.rows < 1:
        raise ValueError(f"--rows {args.rows}: must be 1 or more")
    count = args.specs if args.specs is not None else 0 if args.spec else 24
    if count < 0 or args.seed < 0:
        option, value = ("--specs", count) if count < 0 else ("--seed", args.seed)
        raise ValueError(f"{option} {value}: must be 0 or more")
    specs = {args.spec: get_spec(args.spec)} if args.spec else None
    with progress("verify", args.quiet) as report:
        verdicts, missing = run(args.rows, count, args.seed, specs, args.exhaustive, report, args.bodies)
    compared = [verdict for verdict in verdicts if verdict.specs]
    if args.spec and not compared:
        raise ValueError(f"--spec {args.spec}: no installed body computes it")
    if args.json:
        print_json([dataclasses.asdict(verdict) for verdict in verdicts])
    else:
        print_table(
            [
                {
                    "body": verdict.body, "specs": verdict.specs,
                    **{kind: getattr(verdict, kind) or None for kind in KINDS},
                    "mismatches": verdict.mismatches, "per second": verdict.elements_per_second,
                }
                for verdict in compared
            ]
        )  # fmt: skip
        for verdict in compared:
            if verdict.note:
                print(f"{verdict.body} {verdict.note}")
        others = [verdict.body for verdict in verdicts if not verdict.specs]
        if others:
            print(f"take none of these specs: {', '.join(others)}")
        for verdict in compared:
            if verdict.first:
                print(f"{verdict.body}: the first mismatch is in {verdict.first}")
        for name, reason in missing.items():
            print(f"{name}: not installed ({reason})")
    return 1 if any(verdict.mismatches for verdict in verdicts) else 0
