"""How much the ratios depend on what is assumed: clock, wire load, glitch model, scores, baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softermax.silicon.flow import GLITCHES, ZERO_DELAY, measure
from softermax.silicon.library import Library, WireLoad
from softermax.silicon.stimuli import Scores
from softermax.silicon.units import baseline_unit, presets_of, softermax_unit


@dataclass(frozen=True)
class Variation:
    """The ratios of one unit under one change of the assumptions."""

    unit: str
    baseline: str
    clock_ns: float
    wire: str
    scores: str
    meets: bool
    area_ratio: float
    energy_ratio: float
    energy_ratio_zero_delay: float


def vary(
    library: Library,
    width: int,
    scores: Sequence[Scores],
    clocks: Sequence[float] = (1.0, 1.5),
    wires: Sequence[float] = (0.0, 1.0, 2.0),
    baselines: Sequence[str] = ("two-pass", "online"),
) -> list[Variation]:
    """One change at a time. Clocks and wire loads are factors of the library's own; every variation is
    reported for each kind of scores."""
    clock = library.description.clock_ns
    cases = [(clock * factor, library.wire) for factor in clocks]
    cases += [(clock, _scaled(library.wire, factor)) for factor in wires if factor != 1.0]
    found: list[Variation] = []
    for unit in ("unnormed", "normalization"):
        ours = softermax_unit(unit, presets_of(unit, width)[0], width)
        for baseline in baselines:
            theirs = baseline_unit(unit, baseline, width)
            # The other baseline differs in kind, not in how it answers to clock and wires.
            for period, wire in cases if baseline == baselines[0] else cases[:1]:
                a, b = (measure(u, library, period, scores, wire) for u in (ours, theirs))
                for kind in scores:
                    ratios = [
                        a.pj(kind.name, mode) / b.pj(kind.name, mode) for mode in (GLITCHES, ZERO_DELAY)
                    ]
                    met = a.meets and b.meets
                    area = a.area_um2 / b.area_um2
                    found.append(Variation(unit, baseline, period, wire.name, kind.name, met, area, *ratios))
    return found


def _scaled(wire: WireLoad, factor: float) -> WireLoad:
    return wire.scaled(factor) if factor else WireLoad("no wires")
