"""A unit placed and routed: its layout, its words, and the energy of what was simulated on it.

The slacks are OpenROAD's, with wires and clock tree. Delays and slews of the simulation are our own analysis' with the capacitance of every
routed wire; the clock comes to all flip-flops at once, so differences within the tree make no glitches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cache import cache_dir, kept, key
from softermax.silicon.equivalence import require_equal
from softermax.silicon.flow import COPIES, GLITCHES, ROWS, ZERO_DELAY, EnergyResult, Result, mapped
from softermax.silicon.flow import SOURCES as METER
from softermax.silicon.jobs import GateJob
from softermax.silicon.library import Library
from softermax.silicon.netlist import Netlist
from softermax.silicon.power import Energy, energy_of
from softermax.silicon.route.activity import switching
from softermax.silicon.route.netlist import BUFFERS, routed
from softermax.silicon.route.openroad import Detailed, Layout, LayoutOptions, lay_out, power_w
from softermax.silicon.simulation import Simulator
from softermax.silicon.timing import analyse

if TYPE_CHECKING:
    from softermax.silicon.stimuli import Scores
    from softermax.silicon.units import Unit

SOURCES = (
    *METER,
    *(f"silicon/route/{name}.py" for name in ("activity", "flow", "layout", "netlist")),
)


@dataclass(frozen=True)
class Added:
    """What layout added to a mapped netlist, and what it came to."""

    tree_cells: int
    buffers: int
    resized: int
    wire_um: float
    wire_ff: float
    wire_load_ff: float
    """What the wires of the mapped netlist were taken for."""
    latency_ns: float
    skew_ns: float
    hold_slack_ns: float
    core_um2: float
    detailed: Detailed | None


@dataclass(frozen=True)
class RoutedResult(Result):
    added: Added | None = None
    openroad_pj: dict[str, float] = field(default_factory=dict)
    """Picojoules per element that OpenROAD's own power report comes to with the transitions that were simulated, glitches among
    them, by kind of scores: of the first one alone."""


def measure_routed(
    unit: Unit, library: Library, clock_ns: float, stimuli: Sequence[Scores], options: LayoutOptions
) -> RoutedResult:
    """A unit's figures after layout; a netlist that disagrees with its model raises `Disagreement`."""
    jobs = {scores.name: unit.job(scores.take(COPIES * ROWS), COPIES, ROWS) for scores in stimuli}
    netlist, _ = mapped(unit.rtlil(), library, clock_ns)
    layout = lay_out(netlist, clock_ns, options)
    contents = [(name, job.content) for name, job in jobs.items()]
    content = key(unit.rtlil(), library.content, clock_ns, layout, contents, sources=SOURCES)

    def make(partial: Path) -> None:
        made = _measured(unit, netlist, layout, clock_ns, jobs, options.python)
        partial.write_text(json.dumps(asdict(made)), encoding="utf-8")

    def read(path: Path) -> RoutedResult:
        values = json.loads(path.read_text(encoding="utf-8"))
        values["energy"] = [EnergyResult(**entry) for entry in values["energy"]]
        detailed = values["added"]["detailed"]
        values["added"] = Added(**values["added"] | {"detailed": Detailed(**detailed) if detailed else None})
        return RoutedResult(**values | unit.described())

    return kept(cache_dir("silicon", "routed") / f"{content}.json", make, read)


def _measured(
    unit: Unit, before: Netlist, layout: Layout, clock_ns: float, jobs: Mapping[str, GateJob], python: str
) -> RoutedResult:
    netlist = routed(layout, before)
    ideal = netlist.without_tree()
    at_once, with_tree = analyse(ideal, clock_ns), analyse(netlist, clock_ns)
    simulator = Simulator(ideal, at_once)
    period = clock_ns if at_once.meets else clock_ns - at_once.slack_ns
    energy: list[EnergyResult] = []
    reported: dict[str, float] = {}
    words = 0
    for name, job in jobs.items():
        for mode in (ZERO_DELAY, GLITCHES):
            activity = simulator.run(job.inputs, period if mode == GLITCHES else None, job.counted_from)
            words += require_equal(job, activity, f"routed {unit.label} in {netlist.library.name}, {mode}")
            whole = netlist.with_tree(activity)
            energy.append(_per_element(name, mode, energy_of(whole, with_tree), job.elements))
            if mode == GLITCHES and not reported:
                watts = power_w(layout, before, clock_ns, switching(whole, job), python)
                cycles = activity.copies * activity.cycles
                # W times ns are 1e3 pJ.
                reported[name] = watts * clock_ns * 1e3 * cycles / job.elements
    wires = before.loads(before.library.wire)[1]
    added = Added(
        tree_cells=len(netlist.tree_cells),
        buffers=netlist.units.count(BUFFERS),
        resized=netlist.resized,
        wire_um=layout.wire_um,
        wire_ff=float(netlist.wires.sum()),
        wire_load_ff=float(wires.sum()),
        latency_ns=layout.latency_ns,
        skew_ns=layout.skew_ns,
        hold_slack_ns=layout.hold_slack_ns,
        core_um2=layout.core_um2,
        detailed=layout.detailed,
    )
    return RoutedResult(
        **unit.described(),
        library=netlist.library.name,
        clock_ns=clock_ns,
        wire="routed",
        area_um2=netlist.area,
        area_by_unit=netlist.area_by_unit(),
        cells=netlist.counts(),
        slack_ns=layout.slack_ns,
        critical_path=[
            f"{step.arrival_ns:.3f} {step.type} {step.unit} {step.net} {step.edge}"
            for step in at_once.critical_path
        ],
        words_equal=words,
        energy=energy,
        added=added,
        openroad_pj=reported,
    )


def _per_element(stimulus: str, mode: str, spent: Energy, elements: int) -> EnergyResult:
    """Picojoules per element of the femtojoules of all copies."""
    scale = 1e-3 / elements
    return EnergyResult(
        stimulus,
        mode,
        spent.total * scale,
        {part: value * scale for part, value in spent.by_unit().items()},
        float(spent.internal.sum()) * scale,
        (float(spent.switching.sum()) + spent.inputs + spent.clock) * scale,
        float(spent.leakage.sum()) * scale,
    )
