"""silicon --pe and --sweep: the processing element's table and its sweep over sequence lengths."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from softermax.cli.output import markdown_table, print_json, print_table, progress

if TYPE_CHECKING:
    from softermax.silicon.pe.measurement import Measured
    from softermax.silicon.pe.table import Row

SEQUENCE = 384


def run(args: argparse.Namespace) -> int:
    from softermax.silicon.pe import measurement as pe_measure
    from softermax.silicon.pe import sweep
    from softermax.silicon.pe import table as pe

    baselines = args.baseline or list(pe_measure.BASELINES)
    designs = [(library, width) for library in args.library for width in args.width]
    with progress("silicon", args.quiet) as step:
        measured = [
            pe_measure.measure(library, width, args.pdk_root, args.clock, baselines, step, args.workers)
            for library, width in designs
        ]
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
        _print_account(measured, rows, args.markdown)
    for figures in measured:
        late = figures.late()
        met = (
            f"misses {figures.clock_ns} ns: {', '.join(late)}" if late else f"all meet {figures.clock_ns} ns"
        )
        print(f"\n{figures.library}, {figures.width} wide: {met}")
        if figures.note:
            print(figures.note)
    return 0


def _show(rows: Sequence[dict[str, object]], title: str, markdown: bool) -> None:
    if markdown:
        print(f"\n{title}\n\n{markdown_table(rows)}")
    else:
        print_table(rows, title)


def _print_rows(rows: Sequence[Row], markdown: bool) -> None:
    from softermax.silicon.pe.table import PAPER

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


def _print_account(measured: Sequence[Measured], rows: Sequence[Row], markdown: bool) -> None:
    """Components, what if, memories, state of a row."""
    from softermax.silicon.pe import account as pe_account

    for row in rows:
        where = f"{row.width} wide, {row.library}, sequence {row.sequence}"
        parts = [
            {
                "component": name,
                "mm²": round(mine.area_um2 * 1e-6, 5),
                "µJ": round(mine.energy_pj * 1e-6, 4),
                "baseline mm²": round(other.area_um2 * 1e-6, 5),
                "baseline µJ": round(other.energy_pj * 1e-6, 4),
                "% of baseline area": part.area_percent,
                "baseline's own": part.baseline_area_percent,
                "% of baseline energy": part.energy_percent,
                "its own": part.baseline_energy_percent,
            }
            for (name, (mine, other)), part in zip(
                row.pairs().items(), pe_account.differences(row), strict=True
            )
        ]
        _show(parts, f"{row.scheme} against {row.baseline}, {where}", markdown)
    if any(row.baseline == "two-pass" for row in rows):
        for figures in measured:
            what_if: list[dict[str, object]] = [asdict(v) for v in pe_account.variants(figures, SEQUENCE)]
            _show(what_if, f"What if, {figures.width} wide, {figures.library}, sequence {SEQUENCE}", markdown)
        memories: list[dict[str, object]] = [
            asdict(entry) for entry in pe_account.memory_sensitivity(measured, SEQUENCE)
        ]
        _show(memories, "Sensitivity to the memory model, against two-pass", markdown)
    state: list[dict[str, object]] = [
        {"width": width, "design": design, "bits of a row in the PE, at any length": bits}
        for width in dict.fromkeys(figures.width for figures in measured)
        for design, bits in pe_account.row_states(width).items()
    ]
    _show(state, "State of an open row", markdown)


def _print_lines(rows: Sequence[Row], markdown: bool) -> None:
    from softermax.silicon.pe.sweep import lines

    found = lines(rows)
    shown: list[dict[str, object]] = [
        {
            "library": line.library,
            "width": line.width,
            "design": line.design,
            "slope, pJ a score": round(line.slope_pj, 3),
            "power of the number of scores": round(line.power, 4),
        }
        for line in found
    ]
    _show(shown, "Lines of the sweep", markdown)
    per_score: list[dict[str, object]] = [
        {"library": line.library, "width": line.width, "design": line.design}
        | {str(n): round(pj, 2) for n, pj in zip(line.sequences, line.pj_per_score, strict=True)}
        for line in found
    ]
    _show(per_score, "Picojoules a score over the sequence length", markdown)
