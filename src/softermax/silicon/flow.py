"""One design from RTL to area, slack and energy: synthesis, timing, equivalence, activity, power.

Results are cached by the content of everything that they depend on, the code of the meter among it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cache import cache_dir, kept, key
from softermax.silicon.equivalence import require_equal
from softermax.silicon.jobs import GateJob
from softermax.silicon.library import Library, WireLoad
from softermax.silicon.netlist import Netlist
from softermax.silicon.power import energy_of
from softermax.silicon.simulation import Simulator
from softermax.silicon.synthesis import synthesise
from softermax.silicon.timing import Timing, analyse

if TYPE_CHECKING:
    from softermax.silicon.stimuli import Scores
    from softermax.silicon.units import Design, Unit

SOURCES = (
    "silicon/flow.py",
    "silicon/equivalence.py",
    "silicon.power",
    "silicon.simulation",
    "silicon.synthesis",
    "silicon.timing",
    "silicon/engine.cpp",
)
"""The code that makes figures of a design and its jobs. These two are in a result's key by their content."""
COPIES, ROWS = 16, 2
"""Copies simulated at once, and rows that each works on one after the other."""
ZERO_DELAY, GLITCHES = "zero delay", "glitches"
EFFORTS = (1.0, 0.6, 0.3)
"""What ABC aims at, in clock periods: the first with which the clock is met is taken."""


@dataclass(frozen=True)
class EnergyResult:
    """Picojoules per element with one kind of scores in one mode."""

    stimulus: str
    mode: str
    pj_per_element: float
    by_unit: dict[str, float]
    internal: float
    switching: float
    leakage: float


@dataclass(frozen=True)
class Result:
    """What was measured of a design, and which it is."""

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
    spec: dict[str, Any] | None = None
    """Its fields, for a unit of Softermax."""

    @property
    def meets(self) -> bool:
        return self.slack_ns >= 0

    def pj(self, stimulus: str, mode: str = GLITCHES) -> float:
        return self._energy(stimulus, mode).pj_per_element

    def energy_by_unit(self, stimulus: str, mode: str = GLITCHES) -> dict[str, float]:
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


def measure_unit(
    unit: Unit,
    library: Library,
    clock_ns: float,
    stimuli: Sequence[Scores],
    wire: WireLoad | None = None,
    copies: int = COPIES,
    rows: int = ROWS,
) -> Result:
    """A unit's figures at a clock period, with each kind of scores.

    A netlist that disagrees with its model raises `Disagreement`.
    """
    jobs = {scores.name: unit.job(scores.take(copies * rows), copies, rows) for scores in stimuli}
    return measure_jobs(unit, library, clock_ns, jobs, wire)


def measure_jobs(
    design: Design,
    library: Library,
    clock_ns: float,
    jobs: Mapping[str, GateJob],
    wire: WireLoad | None = None,
    modes: Sequence[str] = (ZERO_DELAY, GLITCHES),
) -> Result:
    """The figures of any design that works on these jobs, by the name of what they are made of."""
    wire = wire or library.wire
    contents = [(name, job.content) for name, job in jobs.items()]
    content = key(design.rtlil(), library.content, clock_ns, wire, contents, modes, sources=SOURCES)

    def make(partial: Path) -> None:
        made = _measured(design, library, clock_ns, jobs, wire, modes)
        partial.write_text(json.dumps(asdict(made)), encoding="utf-8")

    def read(path: Path) -> Result:
        values = json.loads(path.read_text(encoding="utf-8"))
        values["energy"] = [EnergyResult(**entry) for entry in values["energy"]]
        # Specs may make the same hardware: what was measured is shared, the name is not.
        return Result(**values | design.described())

    return kept(cache_dir("silicon", "results") / f"{content}.json", make, read)


def _measured(
    design: Design,
    library: Library,
    clock_ns: float,
    jobs: Mapping[str, GateJob],
    wire: WireLoad,
    modes: Sequence[str],
) -> Result:
    netlist, timing = mapped(design.rtlil(), library, clock_ns)
    if wire != library.wire:
        # The same netlist with other wires, not one that was mapped for them.
        timing = analyse(netlist, clock_ns, wire)
    simulator = Simulator(netlist, timing)
    # A design that misses its clock is simulated at the period it does meet: its energy per cycle is
    # hardly different, and it must compute the right words to have any.
    period = clock_ns if timing.meets else clock_ns - timing.slack_ns
    energy: list[EnergyResult] = []
    words = 0
    for name, job in jobs.items():
        for mode in modes:
            activity = simulator.run(job.inputs, period if mode == GLITCHES else None, job.counted_from)
            words += require_equal(job, activity, f"{design.label} in {library.name}, {mode}")
            spent = energy_of(activity, timing)
            scale = 1e-3 / job.elements
            energy.append(
                EnergyResult(
                    name,
                    mode,
                    spent.total * scale,
                    {part: value * scale for part, value in spent.by_unit().items()},
                    float(spent.internal.sum()) * scale,
                    (float(spent.switching.sum()) + spent.inputs + spent.clock) * scale,
                    float(spent.leakage.sum()) * scale,
                )
            )
    figures = {
        "library": library.name,
        "clock_ns": clock_ns,
        "wire": wire.name,
        "area_um2": netlist.area,
        "area_by_unit": netlist.area_by_unit(),
        "cells": netlist.counts(),
        "slack_ns": timing.slack_ns,
        "critical_path": [
            f"{step.arrival_ns:.3f} {step.type} {step.unit} {step.net} {step.edge}"
            for step in timing.critical_path
        ],
        "words_equal": words,
        "energy": energy,
    }
    return Result(**design.described() | figures)
