"""Where a PE's ratios come from: component by component, what if, and how much hangs on the memory model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softermax.silicon.pe.counts import Workload
from softermax.silicon.pe.measurement import DEFERRED, PEFigures
from softermax.silicon.pe.memory import GLOBAL_BUFFER_BANK, Memory, node_of, sensitivity
from softermax.silicon.pe.table import (
    HALF_BITS,
    SEQUENCE,
    SHARED_BY,
    ComponentCost,
    PECost,
    PERow,
    baseline_cost,
    pe_table,
    row_state_bits,
    softermax_cost,
)
from softermax.silicon.units import NORMALIZATION, UNNORMED

SHARED = ("MACs", "input buffer", "weight buffer", "collector", "global buffer, operands")
"""The same in both designs."""


@dataclass(frozen=True)
class Difference:
    """A component's part in the two ratios, in hundredths of the baseline's whole PE."""

    component: str
    area_percent: float
    baseline_area_percent: float
    energy_percent: float
    baseline_energy_percent: float


def differences(row: PERow) -> list[Difference]:
    """Every component; the columns add up to 100 times the ratio, and to 100."""
    area, energy = row.theirs.area_um2 / 100, row.theirs.energy_pj / 100
    return [
        Difference(
            name,
            round(mine.area_um2 / area, 2),
            round(other.area_um2 / area, 2),
            round(mine.energy_pj / energy, 2),
            round(other.energy_pj / energy, 2),
        )
        for name, (mine, other) in row.pairs().items()
    ]


@dataclass(frozen=True)
class Variant:
    """A comparison with one thing changed."""

    what: str
    area_ratio: float
    energy_ratio: float


def variants(measured: PEFigures, sequence: int = SEQUENCE) -> list[Variant]:
    """Fixed output and deferred normalisation against two passes: as reported, and with one thing changed."""
    workload = Workload(sequence)
    theirs = baseline_cost(measured, "two-pass", workload)
    fixed, deferred = (softermax_cost(measured, scheme, workload) for scheme in ("fixed", DEFERRED))
    unnormed = softermax_cost(measured, "fixed", workload, keeps="unnormed")
    anew = _anew(measured, theirs, sequence)
    fixed_own, their_own = (
        _only(cost, [name for name in cost.components if name not in SHARED]) for cost in (fixed, theirs)
    )
    compared: list[tuple[str, PECost, PECost]] = [
        ("fixed output", fixed, theirs),
        ("deferred normalisation", deferred, theirs),
        ("fixed, unnormed words wait in the global buffer, as the paper draws it", unnormed, theirs),
        ("fixed, baseline makes its exponentials anew instead of keeping them", fixed, anew),
        ("fixed, softmax alone: without what both designs share", fixed_own, their_own),
        ("only what both designs share, over the whole baseline", _only(theirs, SHARED), theirs),
        ("fixed, one PE to a Normalization unit", *_alone(measured, workload)),
    ]
    return [
        Variant(what, round(a.area_um2 / b.area_um2, 4), round(a.energy_pj / b.energy_pj, 4))
        for what, a, b in compared
    ]


def _alone(measured: PEFigures, workload: Workload) -> tuple[PECost, PECost]:
    return (
        softermax_cost(measured, "fixed", workload, pes=1),
        baseline_cost(measured, "two-pass", workload, pes=1),
    )


def _only(cost: PECost, names: Sequence[str]) -> PECost:
    return PECost(cost.design, {name: part for name, part in cost.components.items() if name in names})


def _anew(measured: PEFigures, theirs: PECost, sequence: int) -> PECost:
    """The two-pass baseline with our PE's idea: scores are read a third time, and subtraction and exponential are
    done once more by a shared unit in front of the division, instead of writing and reading exponentials."""
    figures = measured.units[UNNORMED, "two-pass"]
    again = ("subtract", "exponential")
    area = sum(value for name, value in figures.area_by_unit.items() if name.startswith(again))
    energy = sum(
        value for name, value in figures.energy_by_unit(measured.stimulus).items() if name.startswith(again)
    )
    parts = dict(theirs.components)
    kept = parts.pop("global buffer, exponentials").energy_pj
    bank = Memory(GLOBAL_BUFFER_BANK, 64, banked=False).access_pj(node_of(measured.library))
    read = min(kept, sequence**2 * (HALF_BITS + 1) / 64 * bank)
    division, scores = parts[NORMALIZATION], parts["global buffer, scores"]
    parts[NORMALIZATION] = ComponentCost(
        division.area_um2 + area / SHARED_BY, division.energy_pj + energy * sequence**2
    )
    parts["global buffer, scores"] = ComponentCost(scores.area_um2, scores.energy_pj + read)
    return PECost("two-pass, exponentials made anew", parts)


@dataclass(frozen=True)
class MemoryVariant:
    """The ratios against two passes with other memories."""

    library: str
    width: int
    memories: str
    area_ratio: float
    deferred_area_ratio: float
    energy_ratio: float
    deferred_energy_ratio: float


def memory_sensitivity(measured: Sequence[PEFigures], sequence: int = SEQUENCE) -> list[MemoryVariant]:
    """Fixed output and deferred normalisation under every change of the memory model."""
    found = []
    for figures in measured:
        for name, node in sensitivity(node_of(figures.library)).items():
            fixed, deferred = pe_table([figures], [sequence], ["fixed", DEFERRED], ["two-pass"], node)
            ratios = (fixed.area_ratio, deferred.area_ratio, fixed.energy_ratio, deferred.energy_ratio)
            rounded = [round(ratio, 4) for ratio in ratios]
            found.append(MemoryVariant(figures.library, figures.width, name, *rounded))
    return found


def row_states(width: int) -> dict[str, int]:
    """Bits that a PE keeps of an open row, by design: no length is in them."""
    designs = ("fixed", "row-scaled", DEFERRED, "online")
    return {design: row_state_bits(design, width) for design in designs}
