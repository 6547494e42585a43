"""The PE with Softermax beside the PE with an FP16 softmax: area and energy of Q·K^T and softmax.

Measured at gate level, with glitches and operands of a real model: a MAC lane, a requantisation lane, the
Unnormed Softmax and Normalization units. Counted in the simulation of the RTL's schedule: every access to
every memory. Modelled (`softermax.silicon.memory`): what an access to a memory costs, its area and leakage.
Control and the wires between the parts are in neither design's figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softermax.rtl.pe.config import ACCUMULATOR_BITS, CONFIGS, OPERAND_BITS, PEConfig, Softmax
from softermax.silicon import pdk, pe_lanes
from softermax.silicon.flow import GLITCHES, Result
from softermax.silicon.flow import measure as measure_unit
from softermax.silicon.memory import GLOBAL_BUFFER_BANK, Memory, Node, node_of
from softermax.silicon.pe_counts import Workload, composed
from softermax.silicon.pe_lanes import Lane
from softermax.silicon.table import UNITS, stimuli
from softermax.silicon.units import baseline_unit, softermax_unit, spec_of
from softermax.spec import DeferredSpec

SCHEMES = ("fixed", "row-scaled", "deferred")
BASELINES = ("two-pass", "online")
PAPER = {"area_ratio": 0.90, "energy_ratio": 0.43}
"""The paper's PE, 32 wide, sequence 384."""
SHARED_BY = 4
"""PEs that share a Normalization unit."""
HALF_BITS = 16
PROBABILITY_BITS = 8
"""What P·V takes; the baseline's halves are counted as if they were rounded to it for nothing."""


@dataclass(frozen=True)
class Measured:
    """Gate-level figures of everything that a PE of one width is made of."""

    library: str
    width: int
    clock_ns: float
    lanes: dict[str, Lane]
    units: dict[tuple[str, str], Result]
    """By unit and design: (unnormed, paper), (unnormed, two-pass), (normalization, two-pass), ..."""
    stimulus: str
    note: str

    def pj_per_score(self, unit: str, design: str) -> float:
        return self.units[unit, design].pj(self.stimulus, GLITCHES)


@dataclass(frozen=True)
class Component:
    area_um2: float
    energy_pj: float


@dataclass(frozen=True)
class Cost:
    """A PE's area and its energy for a workload, component by component."""

    design: str
    components: dict[str, Component]

    @property
    def area_um2(self) -> float:
        return sum(part.area_um2 for part in self.components.values())

    @property
    def energy_pj(self) -> float:
        return sum(part.energy_pj for part in self.components.values())


def preset_of(scheme: str, width: int) -> str:
    """The units that a scheme is built of. Deferred normalisation has row-scaled's long PowSum; its own
    rounding of unnormed words to eight bits is not in the netlist."""
    return {"fixed": "paper-32" if width == 32 else "paper"}.get(scheme, "row-scaled")


def netlists(baselines: Sequence[str] = BASELINES) -> int:
    """How many netlists `measure` reports of, one call of ``progress`` each."""
    presets = {preset_of(scheme, 32) for scheme in SCHEMES}
    return len(pe_lanes.LANES) + len(UNITS) * (len(presets) + len(baselines))


def measure(
    library_name: str,
    width: int,
    pdk_root: str | None = None,
    clock_ns: float | None = None,
    baselines: Sequence[str] = BASELINES,
    progress: Callable[[str], None] | None = None,
) -> Measured:
    """Every netlist that a PE of this width needs, with our softmax and with the baselines'."""
    library = pdk.load(library_name, pdk_root)
    clock = clock_ns or library.description.clock_ns
    operands, note = pe_lanes.operands()
    scores, no_scores = stimuli()
    lanes, units = {}, {}
    for name in pe_lanes.LANES:
        lanes[name] = pe_lanes.measure(name, CONFIGS[width], library, clock, operands)
        if progress:
            progress(f"{name} lane, {width} wide, {library_name}")
    presets = dict.fromkeys(preset_of(scheme, width) for scheme in SCHEMES)
    for design, unit in itertools.product([*presets, *baselines], UNITS):
        make = softermax_unit if design in presets else baseline_unit
        made = make(unit, design, width)
        units[unit, design] = measure_unit(made, library, clock, scores)
        if progress:
            progress(f"{unit} {design}, {width} wide, {library_name}")
    return Measured(library_name, width, clock, lanes, units, scores[0].name, note or no_scores)


def softermax_cost(
    measured: Measured, scheme: str, workload: Workload, node: Node | None = None, pes: int = SHARED_BY
) -> Cost:
    """The PE with Softermax: fixed or row-scaled output, or deferred normalisation (A8)."""
    config, preset = CONFIGS[measured.width], preset_of(scheme, measured.width)
    spec = spec_of(preset, measured.width)
    counts = composed(config, "softermax", workload)
    cost = _Adding(measured, config, counts, node or node_of(measured.library))
    cost.common("requantize")
    cost.unit("unnormed", preset, 1.0)
    state = spec.max.integer + spec.powsum.bits
    cost.row_state(state)
    if scheme == "deferred":
        # P·V takes the unnormed weights; a row is divided once, with its outputs.
        weight = DeferredSpec(spec).weight.bits
        cost.slices(weight * config.lanes + spec.max.integer, ("unnormed_writes",))
    else:
        cost.slices(
            spec.unnormed.bits * config.lanes + spec.max.integer, ("unnormed_writes", "unnormed_reads")
        )
        cost.unit("normalization", preset, 1.0 / pes)
        cost.slices(PROBABILITY_BITS * config.lanes, ("probabilities_writes",))
    return cost.done(f"softermax {scheme}")


def baseline_cost(
    measured: Measured, baseline: str, workload: Workload, node: Node | None = None, pes: int = SHARED_BY
) -> Cost:
    """The PE with an FP16 unit.

    Two passes: scores go to the global buffer and come back twice. Online: as ours, with half-precision
    words; its accesses are those of our schedule, for it too works slice by slice.
    """
    config = CONFIGS[measured.width]
    softmax: Softmax = "two-pass" if baseline == "two-pass" else "softermax"
    cost = _Adding(measured, config, composed(config, softmax, workload), node or node_of(measured.library))
    cost.common("requantize_half")
    cost.unit("unnormed", baseline, 1.0)
    cost.unit("normalization", baseline, 1.0 / pes)
    halves = HALF_BITS * config.lanes
    unnormed_bits = halves
    if baseline == "two-pass":
        cost.slices(halves, ("scores_writes", "scores_max_reads", "scores_reads"), "score passes")
    else:
        cost.row_state(2 * HALF_BITS)
        unnormed_bits += HALF_BITS
    cost.slices(unnormed_bits, ("unnormed_writes", "unnormed_reads"))
    cost.slices(PROBABILITY_BITS * config.lanes, ("probabilities_writes",))
    return cost.done(baseline)


class _Adding:
    """A cost as it grows."""

    def __init__(self, measured: Measured, config: PEConfig, counts: dict[str, int], node: Node) -> None:
        self._measured, self._config, self._counts, self._node = measured, config, counts, node
        self._parts: dict[str, Component] = {}
        self._bank = Memory(GLOBAL_BUFFER_BANK, 64, banked=False)

    def add(self, name: str, area: float, energy: float) -> None:
        before = self._parts.get(name, Component(0.0, 0.0))
        self._parts[name] = Component(before.area_um2 + area, before.energy_pj + energy)

    @property
    def _scores(self) -> int:
        """Lanes at work, those of filled-up groups too: they switch all the same."""
        return self._counts["probabilities_writes"] * self._config.lanes

    def common(self, requantize: str) -> None:
        """What both designs have: MACs, memories, requantisation."""
        config, counts, lanes = self._config, self._counts, self._measured.lanes
        mac, score = lanes["mac"], lanes[requantize]
        self.add("MACs", mac.area_um2 * config.lanes, mac.pj * config.lanes * counts["input_buffer_reads"])
        self.add("requantisation", score.area_um2 * config.lanes, score.pj * self._scores)
        vector = OPERAND_BITS * config.vector_size
        memories = {
            "input_buffer": Memory(config.input_bytes, vector),
            "weight_buffer": Memory(config.weight_bytes, vector * config.lanes),
            "collector": Memory(config.collector_bytes, ACCUMULATOR_BITS * config.lanes),
        }
        nanoseconds = counts["cycles"] * self._measured.clock_ns
        for name, memory in memories.items():
            accesses = counts[f"{name}_reads"] + counts[f"{name}_writes"]
            energy = accesses * memory.access_pj(self._node) + memory.leakage_pj(self._node, nanoseconds)
            self.add(name.replace("_", " "), memory.area_um2(self._node), energy)
        loaded = (
            counts["input_buffer_writes"] * vector + counts["weight_buffer_writes"] * vector * config.lanes
        )
        self.add("global buffer, operands", 0.0, loaded / 64 * self._bank.access_pj(self._node))

    def unit(self, unit: str, design: str, share: float) -> None:
        """A softmax unit, of whose area the PE has a share."""
        figures = self._measured.units[unit, design]
        energy = self._measured.pj_per_score(unit, design) * self._scores
        self.add(unit, figures.area_um2 * share, energy)

    def row_state(self, bits: int) -> None:
        """Max and sum of every open row, read and written with every slice."""
        memory = Memory(-(-bits * self._config.rows // 8), bits)
        slices = self._counts["probabilities_writes"]
        self.add("row state", memory.area_um2(self._node), 2 * slices * memory.access_pj(self._node))

    def slices(self, bits: int, ports: Sequence[str], name: str = "slices") -> None:
        """Slices to and from the global buffer, whose area belongs to no PE."""
        accesses = sum(self._counts[port] for port in ports)
        self.add(f"global buffer, {name}", 0.0, accesses * bits / 64 * self._bank.access_pj(self._node))

    def done(self, design: str) -> Cost:
        return Cost(design, self._parts)


@dataclass(frozen=True)
class Row:
    """A scheme against a baseline."""

    width: int
    sequence: int
    library: str
    scheme: str
    baseline: str
    ours: Cost
    theirs: Cost

    def to_json(self) -> dict[str, object]:
        names = dict.fromkeys([*self.ours.components, *self.theirs.components])
        none = Component(0.0, 0.0)
        breakdown = {}
        for name in names:
            mine, other = self.ours.components.get(name, none), self.theirs.components.get(name, none)
            breakdown[name] = {
                "area_um2": round(mine.area_um2, 2),
                "energy_pj": round(mine.energy_pj, 2),
                "baseline_area_um2": round(other.area_um2, 2),
                "baseline_energy_pj": round(other.energy_pj, 2),
            }
        return {
            "width": self.width,
            "sequence": self.sequence,
            "library": self.library,
            "scheme": self.scheme,
            "baseline": self.baseline,
            "area_ratio": round(self.ours.area_um2 / self.theirs.area_um2, 4),
            "energy_ratio": round(self.ours.energy_pj / self.theirs.energy_pj, 4),
            "energy_pj": round(self.ours.energy_pj, 1),
            "breakdown": breakdown,
        }


def table(
    measured: Sequence[Measured],
    sequences: Sequence[int] = (384,),
    schemes: Sequence[str] = SCHEMES,
    baselines: Sequence[str] = BASELINES,
    node: Node | None = None,
) -> list[Row]:
    """Every scheme against every baseline at every sequence length."""
    rows = []
    for figures in measured:
        for sequence in sequences:
            workload = Workload(sequence)
            theirs = {name: baseline_cost(figures, name, workload, node) for name in baselines}
            for scheme in schemes:
                ours = softermax_cost(figures, scheme, workload, node)
                rows += [
                    Row(figures.width, sequence, figures.library, scheme, name, ours, theirs[name])
                    for name in baselines
                ]
    return rows
