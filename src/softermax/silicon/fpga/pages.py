"""What is said of designs on FPGAs: sections of a page, filled with their figures."""

from __future__ import annotations

from collections.abc import Sequence

from softermax.silicon.fpga.flow import AIM_MHZ
from softermax.silicon.fpga.table import BASELINES, TOP, FpgaRow, FpgaTable
from softermax.silicon.pages import PageSection

DOES_NOT_FIT = "does not fit"


def fpga_rows(rows: Sequence[FpgaRow]) -> list[dict[str, object]]:
    """The rows as people read them, with look-up tables over those of the baselines' unit where they have one."""
    luts = {(row.family, row.unit, row.width, row.design): row.luts for row in rows}
    shown: list[dict[str, object]] = []
    for row in rows:
        ratios: dict[str, object] = {}
        for baseline in BASELINES:
            theirs = luts.get((row.family, row.unit, row.width, baseline))
            ratios[f"LUTs over {baseline}"] = (
                round(row.luts / theirs, 3) if theirs and row.design not in BASELINES else None
            )
        shown.append(
            {
                "unit": row.unit,
                "design": row.design,
                "width": row.width,
                "LUTs": row.luts,
                **ratios,
                "registers": row.registers,
                "DSPs": row.dsps,
                "block RAMs": row.block_rams,
                "Fmax, MHz": DOES_NOT_FIT if row.fmax_mhz is None else round(row.fmax_mhz, 1),
                "million elements/s": row.million_elements_per_s,
                "slowest in": row.slowest,
            }
        )
    return shown


def fpga_sections(table: FpgaTable) -> list[PageSection]:
    """One per family."""
    text = (
        f"Mapped by Yosys, placed and routed by nextpnr with seed {table.seed}, aiming at {AIM_MHZ} MHz. Each unit stands between shift registers, so that "
        "it needs five pins; they are not counted, and every path of the unit, from its inputs and to its outputs too, lies between registers. "
        "Frequencies are nextpnr's after routing, of the slowest path between registers. "
        f"`{TOP}` is both units with the memory between them; baselines and rivals have no such memory in their figures."
    )
    if table.note:
        text += f"\n\nRivals' constants are of Gaussian scores: {table.note}"
    devices = dict.fromkeys((row.family, row.device) for row in table.rows)
    return [
        PageSection(
            f"{family}, {device}",
            text if number == 0 else "",
            fpga_rows([row for row in table.rows if row.family == family]),
        )
        for number, (family, device) in enumerate(devices)
    ]
