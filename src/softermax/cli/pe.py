"""silicon --pe and --sweep: the processing element's table and its sweep over sequence lengths."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from softermax.cli.output import markdown_table, print_json, print_table, progress

if TYPE_CHECKING:
    from softermax.silicon.pe import Row

SEQUENCE = 384


def run(args: argparse.Namespace) -> int:
    from softermax.silicon import pe, sweep

    baselines = args.baseline or list(pe.BASELINES)
    designs = [(library, width) for library in args.library for width in args.width]
    steps = len(designs) * pe.netlists(baselines)
    measured = []
    with progress("silicon", steps, args.quiet) as step:
        done = 0

        def advance(name: str) -> None:
            nonlocal done
            done += 1
            step(done, name)

        for library, width in designs:
            measured.append(pe.measure(library, width, args.pdk_root, args.clock, baselines, advance))
    sequences = sweep.SEQUENCES if args.sweep else (SEQUENCE,)
    rows = pe.table(measured, sequences, baselines=baselines)
    if args.plot:
        draw = sweep.draw_sweep if args.sweep else sweep.draw_table
        for path in draw(rows, args.plot):
            if not (args.json or args.quiet):
                print(f"wrote {path}")
    if args.json:
        print_json([row.to_json() for row in rows])
        return 0
    _print_rows(rows, args.markdown)
    if args.sweep:
        _print_lines(rows, args.markdown)
    else:
        for row in rows:
            _print_components(row, args.markdown)
    for figures in measured:
        late = [
            f"{name} lane {lane.slack_ns:.3f} ns" for name, lane in figures.lanes.items() if lane.slack_ns < 0
        ]
        late += [
            f"{unit} {design} {r.slack_ns:.3f} ns"
            for (unit, design), r in figures.units.items()
            if not r.meets
        ]
        if late:
            print(f"{figures.library}, {figures.width} wide, misses {figures.clock_ns} ns: {', '.join(late)}")
        if figures.note:
            print(figures.note)
    return 0


def _show(rows: Sequence[dict[str, object]], title: str, markdown: bool) -> None:
    if markdown:
        print(f"\n{title}\n\n{markdown_table(rows)}")
    else:
        print_table(rows, title)


def _print_rows(rows: Sequence[Row], markdown: bool) -> None:
    from softermax.silicon.pe import PAPER

    shown = []
    for row in rows:
        values = row.to_json()
        values.pop("breakdown")
        if row.width == 32 and row.sequence == SEQUENCE and row.baseline == "two-pass":
            values |= {f"paper_{name}": ratio for name, ratio in PAPER.items()}
        else:
            values |= dict.fromkeys((f"paper_{name}" for name in PAPER), None)
        shown.append(values)
    _show(shown, "PE: Q·K^T and softmax of one head of 64, ours against the baseline", markdown)


def _print_components(row: Row, markdown: bool) -> None:
    breakdown = row.to_json()["breakdown"]
    assert isinstance(breakdown, dict)
    title = f"{row.scheme} against {row.baseline}, {row.width} wide, {row.library}, sequence {row.sequence}"
    _show([{"component": name, **values} for name, values in breakdown.items()], title, markdown)


def _print_lines(rows: Sequence[Row], markdown: bool) -> None:
    from softermax.silicon.sweep import lines

    shown: list[dict[str, object]] = [
        {
            "library": line.library,
            "width": line.width,
            "design": line.design,
            "pJ a score at the longest": round(line.pj_per_score, 3),
            "power of the number of scores": round(line.slope, 4),
        }
        for line in lines(rows)
    ]
    _show(shown, "Lines of the sweep", markdown)
