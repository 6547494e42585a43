"""Where a PE's ratios come from: component by component, what if, and how much hangs on the memory model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from softermax.silicon.memory import GLOBAL_BUFFER_BANK, Memory, Node, as_published, node_of, sensitivity
from softermax.silicon.pe.counts import Workload
from softermax.silicon.pe.measurement import DEFERRED, LEAN_SCHEMES, PEFigures
from softermax.silicon.pe.table import (
    HALF_BITS,
    ON_READ,
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
VARIED = ("fixed", "lean", DEFERRED)
"""The schemes that `variants` compares."""


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
class PEVariant:
    """A comparison with one thing changed, or some."""

    library: str
    width: int
    scheme: str
    what: str
    area_ratio: float
    energy_ratio: float


AS_COUNTED = "as counted"
UTILISATION = 0.7
"""Of the cells' rows in a layout: memories have their area already."""
LOGIC = ("MACs", "requantisation", UNNORMED, NORMALIZATION)


def variants(measured: PEFigures, sequence: int = SEQUENCE) -> list[PEVariant]:
    """Our schemes against two passes: as counted, and with what a reviewer might change."""
    workload = Workload(sequence)
    published = as_published(measured.library)
    found: list[PEVariant] = []

    def compare(scheme: str, what: str, ours: PECost, theirs: PECost) -> None:
        area, energy = ours.area_um2 / theirs.area_um2, ours.energy_pj / theirs.energy_pj
        where = (measured.library, measured.width, scheme)
        found.append(PEVariant(*where, what, round(area, 4), round(energy, 4)))

    def two_passes(**changes: Any) -> PECost:
        return baseline_cost(measured, "two-pass", workload, **changes)

    counted = two_passes()
    early = two_passes(max_while_written=True)
    for scheme in VARIED:
        ours = softermax_cost(measured, scheme, workload)
        compare(scheme, AS_COUNTED, ours, counted)
        if scheme == "fixed":
            unnormed = softermax_cost(measured, scheme, workload, keeps="unnormed")
            compare(
                scheme, "unnormed words wait in the global buffer, as the paper draws it", unnormed, counted
            )
        compare(scheme, "baseline finds the max while scores are written", ours, early)
        compare(
            scheme,
            "baseline makes its exponentials anew instead of keeping them",
            ours,
            _anew(measured, counted, sequence),
        )
        compare(
            scheme,
            "both: the max while scores are written, exponentials anew",
            ours,
            _anew(measured, early, sequence),
        )
        compare(
            scheme,
            "baseline keeps exponentials without sign and upper bit",
            ours,
            two_passes(exponential_bits=HALF_BITS - 2),
        )
        for what, node in published.items():
            compare(scheme, what, *_with_memories(measured, scheme, workload, node))
        on_read = softermax_cost(measured, scheme + ON_READ, workload)
        compare(scheme, "normalised on read, in both designs", on_read, two_passes(on_read=True))
        compare(
            scheme,
            "normalised on read, the max while scores are written, exponentials anew",
            on_read,
            _anew(measured, two_passes(on_read=True, max_while_written=True), sequence),
        )
        compare(scheme, "one PE to a Normalization unit", *_alone(measured, scheme, workload))
        compare(f"{scheme}, softmax alone", "without what both designs share", _own(ours), _own(counted))
        compare(
            scheme,
            f"logic laid out at {UTILISATION:.0%} utilisation".replace("%", " %"),
            _larger(ours, LOGIC, 1 / UTILISATION),
            _larger(counted, LOGIC, 1 / UTILISATION),
        )
        compare(
            scheme,
            "baseline's softmax units twice as large, as of generic components",
            ours,
            _larger(counted, (UNNORMED, NORMALIZATION), 2.0),
        )
    compare("none", "only what both designs share, over the whole baseline", _only(counted, SHARED), counted)
    return found


def _with_memories(measured: PEFigures, scheme: str, workload: Workload, node: Node) -> tuple[PECost, PECost]:
    return (
        softermax_cost(measured, scheme, workload, node),
        baseline_cost(measured, "two-pass", workload, node),
    )


def _alone(measured: PEFigures, scheme: str, workload: Workload) -> tuple[PECost, PECost]:
    return (
        softermax_cost(measured, scheme, workload, pes=1),
        baseline_cost(measured, "two-pass", workload, pes=1),
    )


def _own(cost: PECost) -> PECost:
    return _only(cost, [name for name in cost.components if name not in SHARED])


def _larger(cost: PECost, names: Sequence[str], times: float) -> PECost:
    """The cost with other areas of some components."""
    parts = {
        name: replace(part, area_um2=part.area_um2 * times) if name in names else part
        for name, part in cost.components.items()
    }
    return PECost(cost.design, parts)


def _only(cost: PECost, names: Sequence[str]) -> PECost:
    return PECost(cost.design, {name: part for name, part in cost.components.items() if name in names})


def _anew(measured: PEFigures, theirs: PECost, sequence: int) -> PECost:
    """The two-pass baseline with our PE's idea: scores are read once more, and subtraction and exponential are
    done once more by a shared unit in front of the division, instead of writing and reading exponentials."""
    figures = measured.units[UNNORMED, "two-pass"]
    again = ("subtract", "exponential")
    area = sum(value for name, value in figures.area_by_unit.items() if name.startswith(again))
    energy = sum(
        value for name, value in figures.energy_by_unit(measured.stimulus).items() if name.startswith(again)
    )
    parts = dict(theirs.components)
    kept = parts.pop("global buffer, exponentials").energy_pj
    bank = Memory(GLOBAL_BUFFER_BANK, 64, banked=False).read_pj(node_of(measured.library))
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
    designs = ("fixed", "row-scaled", *LEAN_SCHEMES, DEFERRED, "online")
    return {design: row_state_bits(design, width) for design in designs}
