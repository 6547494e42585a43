"""One unit from RTL to area, slack and energy: synthesis, timing, equivalence, activity, power.

Results are cached by the content of everything they depend on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from softermax.cache import cache_dir
from softermax.files import write_text
from softermax.silicon import power
from softermax.silicon.equivalence import require_equal
from softermax.silicon.library import Library, WireLoad
from softermax.silicon.netlist import Netlist
from softermax.silicon.simulation import Simulator
from softermax.silicon.stimuli import Scores
from softermax.silicon.synthesis import RECIPE, synthesise
from softermax.silicon.timing import Timing, analyse
from softermax.silicon.units import RESET_CYCLES, Unit

METHOD = 1
"""Raised when anything that changes a figure changes here, so that cached results are made anew."""
COPIES, ROWS = 16, 2
"""Copies simulated at once, and rows that each works on one after the other."""
ZERO_DELAY, GLITCHES = "zero delay", "glitches"
EFFORTS = (1.0, 0.6, 0.3)
"""What ABC aims at, in clock periods: the first with which the clock is met is taken."""


@dataclass(frozen=True)
class EnergyResult:
    """Picojoules an element with one kind of scores in one mode."""

    stimulus: str
    mode: str
    pj_per_element: float
    by_unit: dict[str, float]
    internal: float
    switching: float
    leakage: float


@dataclass(frozen=True)
class Result:
    unit: str
    design: str
    preset: str
    width: int
    library: str
    clock_ns: float
    wire: str
    area_um2: float
    area_by_unit: dict[str, float]
    cells: dict[str, int]
    slack_ns: float
    critical_path: list[str]
    words_equal: int
    energy: list[EnergyResult]

    @property
    def meets(self) -> bool:
        return self.slack_ns >= 0

    def pj(self, stimulus: str, mode: str) -> float:
        return self._energy(stimulus, mode).pj_per_element

    def energy_by_unit(self, stimulus: str, mode: str) -> dict[str, float]:
        return self._energy(stimulus, mode).by_unit

    def _energy(self, stimulus: str, mode: str) -> EnergyResult:
        return next(e for e in self.energy if e.stimulus == stimulus and e.mode == mode)


def mapped(rtlil: str, library: Library, clock_ns: float) -> tuple[Netlist, Timing]:
    """The netlist of the least effort that meets the clock; where none does, of the fastest."""
    best: tuple[Netlist, Timing] | None = None
    for effort in EFFORTS:
        netlist = synthesise(rtlil, library, clock_ns, effort * clock_ns)
        timing = analyse(netlist, clock_ns)
        if best is None or timing.slack_ns > best[1].slack_ns:
            best = netlist, timing
        if timing.meets:
            break
    assert best is not None
    return best


def measure(
    unit: Unit,
    library: Library,
    clock_ns: float,
    stimuli: Sequence[Scores],
    wire: WireLoad | None = None,
    copies: int = COPIES,
    rows: int = ROWS,
) -> Result:
    """A unit's figures at a clock period. A netlist that disagrees with its model raises `Disagreement`."""
    rtlil = unit.rtlil()
    wire = wire or library.wire
    parts = [
        METHOD,
        RECIPE,
        rtlil,
        library.content,
        clock_ns,
        wire,
        copies,
        rows,
        [s.content for s in stimuli],
    ]
    key = hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()[:24]
    saved = cache_dir("silicon", "results") / f"{key}.json"
    if saved.is_file():
        values = json.loads(saved.read_text(encoding="utf-8"))
        values["energy"] = [EnergyResult(**entry) for entry in values["energy"]]
        # Presets may make the same hardware: what was measured is shared, the name is not.
        names = {"unit": unit.name, "design": unit.design, "preset": unit.preset, "width": unit.width}
        return Result(**values | names)
    netlist, timing = mapped(rtlil, library, clock_ns)
    if wire != library.wire:
        # The same netlist with other wires, not one that was mapped for them.
        timing = analyse(netlist, clock_ns, wire)
    simulator = Simulator(netlist, timing)
    energy: list[EnergyResult] = []
    words = 0
    for scores in stimuli:
        job = unit.job(scores.take(copies * rows), copies, rows)
        for mode, period in ((ZERO_DELAY, None), (GLITCHES, clock_ns)):
            # A design that misses its clock is simulated at the period it does meet: its energy a cycle is
            # hardly different, and it must compute the right words to have any.
            if period is not None and not timing.meets:
                period = clock_ns - timing.slack_ns
            activity = simulator.run(job.inputs, period, RESET_CYCLES)
            words += require_equal(job, activity, f"{unit.label} in {library.name}, {mode}")
            spent = power.measure(activity, timing)
            scale = 1e-3 / job.elements
            energy.append(
                EnergyResult(
                    scores.name,
                    mode,
                    spent.total * scale,
                    {name: value * scale for name, value in spent.by_unit().items()},
                    float(spent.internal.sum()) * scale,
                    (float(spent.switching.sum()) + spent.inputs + spent.clock) * scale,
                    float(spent.leakage.sum()) * scale,
                )
            )
    result = Result(
        unit.name,
        unit.design,
        unit.preset,
        unit.width,
        library.name,
        clock_ns,
        wire.name,
        netlist.area,
        netlist.area_by_unit(),
        netlist.counts(),
        timing.slack_ns,
        [
            f"{step.arrival_ns:.3f} {step.type} {step.unit} {step.net} {step.edge}"
            for step in timing.critical_path
        ],
        words,
        energy,
    )
    write_text(saved, json.dumps(asdict(result)))
    return result
