"""silicon --pe and --sweep: the processing element's table and its sweep over sequence lengths."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cli import silicon
from softermax.cli.output import progress
from softermax.progress import within

if TYPE_CHECKING:
    from softermax.silicon.pe.measurement import PEFigures


def run(args: argparse.Namespace) -> int:
    return _own(args, Path(args.pe)) if isinstance(args.pe, str) else _papers(args)


def _own(args: argparse.Namespace, path: Path) -> int:
    """A PE of one's own, in every library."""
    from softermax.silicon.memory import MEMORIES, node_of
    from softermax.silicon.pe.architecture import Architecture
    from softermax.silicon.pe.measurement import measure_pe
    from softermax.silicon.pe.pages import own_sections
    from softermax.silicon.pe.sweep import draw_table

    own = Architecture.load(path)
    rows, figures = [], []
    with progress("silicon", args.quiet) as step:
        for number, library in enumerate(args.library):
            part = within(step, number, len(args.library))
            figures.append(
                measure_pe(
                    library,
                    own.config,
                    args.pdk_root,
                    args.clock,
                    args.baselines,
                    part,
                    args.workers,
                    args.ray,
                )
            )
            rows += own.rows(figures[-1], args.baselines, node_of(library, args.memories or MEMORIES))
    pictures = draw_table(rows, args.plot) if args.plot else []
    sections = own_sections(own, figures, rows)
    shown = [{"pe": own.name} | row.to_json() for row in rows]
    title = f"The processing element {own.name}: area and energy"
    if not silicon.show(args, f"pe-{path.stem}", title, shown, sections, pictures):
        silicon.print_sections(sections)
        _print_late(figures)
    return 0


def _papers(args: argparse.Namespace) -> int:
    from softermax.rtl.pe.config import CONFIGS
    from softermax.silicon.memory import MEMORIES, node_of
    from softermax.silicon.pe.account import variants
    from softermax.silicon.pe.measurement import measure_pe
    from softermax.silicon.pe.pages import sweep_sections, table_sections, what_if_sections
    from softermax.silicon.pe.stored import netlist_rows, netlist_sections, stored_pe
    from softermax.silicon.pe.sweep import SEQUENCES, draw_sweep, draw_table
    from softermax.silicon.pe.table import SEQUENCE, pe_table

    designs = [(library, width) for library in args.library for width in args.width or [16]]
    if args.netlists:
        figures = [stored_pe(Path(args.netlists), *design, args.baselines) for design in designs]
    else:
        with progress("silicon", args.quiet) as step:
            figures = [
                measure_pe(
                    library,
                    CONFIGS[width],
                    args.pdk_root,
                    args.clock,
                    args.baselines,
                    within(step, number, len(designs)),
                    args.workers,
                    args.ray,
                )
                for number, (library, width) in enumerate(designs)
            ]
        if args.out:
            netlists = [row for one in figures for row in netlist_rows(one)]
            title = "The processing element: its netlists"
            silicon.write(args, "pe-netlists", title, netlists, netlist_sections(netlists))
    sequences = SEQUENCES if args.sweep else (SEQUENCE,)
    rows = [
        row
        for one in figures
        for row in pe_table(
            [one],
            sequences,
            baselines=args.baselines,
            node=node_of(one.library, args.memories or MEMORIES),
        )
    ]
    draw = draw_sweep if args.sweep else draw_table
    pictures = draw(rows, args.plot) if args.plot else []
    if args.sweep:
        name, title = "pe-sweep", "The processing element over the sequence length"
        sections = sweep_sections(figures, rows, silicon.beside(args, pictures))
    else:
        name, title = "pe", "The processing element: area and energy"
        sections = table_sections(figures, rows)
        if "two-pass" in args.baselines:
            changed = [variant for one in figures for variant in variants(one)]
            what_if = what_if_sections(figures, changed)
            silicon.write(
                args,
                "pe-what-if",
                "The processing element: what if",
                [asdict(one) for one in changed],
                what_if,
            )
            sections += what_if
    if silicon.show(args, name, title, [row.to_json() for row in rows], sections, pictures):
        return 0
    silicon.print_sections(sections)
    _print_late(figures)
    return 0


def _print_late(figures: Sequence[PEFigures]) -> None:
    for one in figures:
        late = one.late()
        met = f"misses {one.clock_ns} ns: {', '.join(late)}" if late else f"all meet {one.clock_ns} ns"
        print(f"\n{one.library}, {one.width} wide: {met}")
        if one.note:
            print(one.note)
