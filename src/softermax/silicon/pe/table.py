"""The PE with Softermax beside the PE with an FP16 softmax: area and energy of Q·K^T and softmax.

PEFigures at gate level, with glitches and operands of a real model (`softermax.silicon.pe.measurement`): a MAC lane, a
requantisation lane, the softmax units. Counted in the simulation of the RTL's schedule (`softermax.silicon.pe.counts`):
every access to every memory. Modelled by CACTI (`softermax.silicon.memory`): what an access to a memory costs, its area
and leakage. Control and the wires between the parts are in neither design's figures.

The work begins with operands in the global buffer and ends when what P·V takes is there: probabilities, or with deferred
normalisation weights. With ``, on read`` after a scheme's name it ends when P·V's operands have left the global buffer: rows
are normalised on the way to P·V, in both designs, and probabilities are never written; deferred weights are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softermax.paper import figures as paper_figures
from softermax.rtl.pe.config import ACCUMULATOR_BITS, OPERAND_BITS, PEConfig, Softmax
from softermax.silicon.memory import GLOBAL_BUFFER_BANK, Memory, Node, node_of
from softermax.silicon.pe.counts import Workload, composed
from softermax.silicon.pe.measurement import (
    DEFERRED,
    LEAN_SCHEMES,
    PEFigures,
    deferred_spec,
    preset_of,
    spec_of,
)
from softermax.silicon.pe.units import SCORE_NORMALIZATION
from softermax.silicon.units import BASELINES, NORMALIZATION, UNNORMED, WEIGHTS

ON_READ = ", on read"
"""After a scheme's name: rows are normalised on their way to P·V."""
_WRITTEN = ("fixed", "row-scaled", *LEAN_SCHEMES, DEFERRED)
SCHEMES = (*_WRITTEN, *(scheme + ON_READ for scheme in _WRITTEN))
SEQUENCE: int = paper_figures()["pe"]["sequence"]
"""The paper's."""
SHARED_BY = 4
"""PEs that share a Normalization unit."""
TWO_PASSES = ("two-pass", "generic")
"""Baselines that use the memories alike: generic components stand in the places of the lean ones."""
HALF_BITS = 16
PROBABILITY_BITS = 8
"""What P·V takes; the baseline's halves are counted as if they were rounded to it for nothing."""


@dataclass(frozen=True)
class ComponentCost:
    area_um2: float
    energy_pj: float


@dataclass(frozen=True)
class PECost:
    """A PE's area and its energy for a workload, component by component."""

    design: str
    components: dict[str, ComponentCost]

    @property
    def area_um2(self) -> float:
        return sum(part.area_um2 for part in self.components.values())

    @property
    def energy_pj(self) -> float:
        return sum(part.energy_pj for part in self.components.values())


def row_state_bits(design: str, width: int) -> int:
    """What a PE keeps of an open row, whatever its length: its max and its sum."""
    if design in TWO_PASSES:
        return 0  # a row is finished before the next one's max is known
    if design == "online":
        return 2 * HALF_BITS
    if design == DEFERRED:
        deferred = deferred_spec(width)
        return deferred.scores.max.integer + deferred.powsum.bits
    spec = spec_of(design, width)
    return spec.max.integer + spec.powsum.bits


def softermax_cost(
    measured: PEFigures,
    scheme: str,
    workload: Workload,
    node: Node | None = None,
    pes: int = SHARED_BY,
    keeps: str = "scores",
) -> PECost:
    """The PE with Softermax: fixed or row-scaled output, either also lean (A10), or deferred normalisation (A8); each also
    ``, on read``.

    ``keeps`` is what waits in the global buffer until a row is finished: ``scores``, of which Normalization makes its
    numerators anew, or ``unnormed`` words, as the paper draws it (fixed output only).
    """
    asked, on_read = scheme, scheme.endswith(ON_READ)
    scheme = scheme.removesuffix(ON_READ)
    if keeps not in ("scores", "unnormed") or (keeps == "unnormed" and scheme != "fixed"):
        raise ValueError(f"keeps = {keeps!r} with {scheme} output: must be scores, for fixed also unnormed")
    width = measured.width
    config = measured.config
    softmax: Softmax = "deferred" if scheme == DEFERRED else "softermax"
    cost = _Adding(measured, composed(config, softmax, workload), node, pes)
    cost.common("requantize")
    if scheme == DEFERRED:
        spec = deferred_spec(width)
        cost.unit(UNNORMED, WEIGHTS, DEFERRED)
        weights = spec.weight.bits * width + spec.scores.max.integer
        cost.slices("weights", weights, "weights_writes", read_back=on_read)
        cost.division(workload)
    else:
        preset, own = preset_of(scheme, width), spec_of(scheme, width)
        cost.unit(UNNORMED, UNNORMED, preset)
        if keeps == "scores":
            of_scores = NORMALIZATION if scheme in LEAN_SCHEMES else SCORE_NORMALIZATION
            cost.unit(NORMALIZATION, of_scores, preset, shared=True)
            cost.slices("scores", (own.input.bits + 1) * width, "scores_writes", "scores_reads")
        else:
            cost.unit(NORMALIZATION, NORMALIZATION, preset, shared=True)
            cost.slices(
                "scores", own.unnormed.bits * width + own.max.integer, "scores_writes", "scores_reads"
            )
        if not on_read:
            cost.slices("probabilities", PROBABILITY_BITS * width, "probabilities_writes")
    cost.row_state(row_state_bits(scheme, width))
    return cost.done(f"softermax {asked}" + (", unnormed words kept" if keeps == "unnormed" else ""))


def baseline_cost(
    measured: PEFigures,
    baseline: str,
    workload: Workload,
    node: Node | None = None,
    pes: int = SHARED_BY,
    on_read: bool = False,
    max_while_written: bool = False,
    exponential_bits: int = HALF_BITS,
) -> PECost:
    """The PE with an FP16 unit. Two passes: scores go to the global buffer and come back twice, exponentials once.

    With ``max_while_written`` two passes find a row's max while its scores are written, keep that of every open row
    in the PE, and read scores once.
    """
    config, width = measured.config, measured.width
    softmax: Softmax = "two-pass" if baseline in TWO_PASSES else "online"
    cost = _Adding(measured, composed(config, softmax, workload), node, pes)
    cost.common("requantize_half")
    cost.unit(UNNORMED, UNNORMED, baseline)
    cost.unit(NORMALIZATION, NORMALIZATION, baseline, shared=True)
    exponentials = exponential_bits * width
    if baseline in TWO_PASSES:
        # A bit of mask waits with every score, as with ours.
        ports = ("scores_writes", "scores_reads") + (() if max_while_written else ("scores_max_reads",))
        cost.slices("scores", (HALF_BITS + 1) * width, *ports)
        cost.slices("exponentials", exponentials, "unnormed_writes", "unnormed_reads")
        if max_while_written:
            cost.row_state(HALF_BITS)
    else:
        cost.row_state(row_state_bits(baseline, width))
        cost.slices("exponentials", exponentials + HALF_BITS, "unnormed_writes")
        cost.slices("exponentials", exponentials, "unnormed_reads")
        cost.slices("exponentials", HALF_BITS, "maxima_reads")
    if not on_read:
        cost.slices("probabilities", PROBABILITY_BITS * width, "probabilities_writes")
    return cost.done(baseline + (ON_READ if on_read else ""))


class _Adding:
    """A cost as it grows."""

    def __init__(self, measured: PEFigures, counts: dict[str, int], node: Node | None, pes: int) -> None:
        self._measured, self._counts, self._pes = measured, counts, pes
        self._node = node or node_of(measured.library)
        self._config: PEConfig = measured.config
        self._parts: dict[str, ComponentCost] = {}
        self._bank = Memory(GLOBAL_BUFFER_BANK, 64, banked=False)

    def add(self, name: str, area: float, energy: float) -> None:
        before = self._parts.get(name, ComponentCost(0.0, 0.0))
        self._parts[name] = ComponentCost(before.area_um2 + area, before.energy_pj + energy)

    @property
    def _scores(self) -> int:
        """Lanes at work, those of filled-up groups too: they switch all the same."""
        return self._counts["probabilities_writes"] * self._config.lanes

    def _lane_area(self, lane: str) -> float:
        return self._measured.lanes[lane].area_um2

    def common(self, requantize: str) -> None:
        """What both designs have: MACs, memories, requantisation."""
        config, counts = self._config, self._counts
        steps = config.lanes * counts["input_buffer_reads"]
        self.add("MACs", self._lane_area("mac") * config.lanes, self._measured.pj_per_step("mac") * steps)
        energy = self._measured.pj_per_step(requantize) * self._scores
        self.add("requantisation", self._lane_area(requantize) * config.lanes, energy)
        vector = OPERAND_BITS * config.vector_size
        memories = {
            "input_buffer": Memory(config.input_bytes, vector),
            "weight_buffer": Memory(config.weight_bytes, vector * config.lanes),
            "collector": Memory(config.collector_bytes, ACCUMULATOR_BITS * config.lanes),
        }
        nanoseconds = counts["cycles"] * self._measured.clock_ns
        for name, memory in memories.items():
            energy = (
                counts[f"{name}_reads"] * memory.read_pj(self._node)
                + counts[f"{name}_writes"] * memory.write_pj(self._node)
                + memory.leakage_pj(self._node, nanoseconds)
            )
            self.add(name.replace("_", " "), memory.area_um2(self._node), energy)
        loaded = (
            counts["input_buffer_writes"] * vector + counts["weight_buffer_writes"] * vector * config.lanes
        )
        self.add("global buffer, operands", 0.0, loaded / 64 * self._bank.read_pj(self._node))

    def unit(self, name: str, unit: str, design: str, shared: bool = False) -> None:
        """A softmax unit; of one that several PEs share the PE has its part."""
        figures = self._measured.units[unit, design]
        energy = self._measured.pj_per_score(unit, design) * self._scores
        self.add(name, figures.area_um2 / (self._pes if shared else 1), energy)

    def division(self, workload: Workload) -> None:
        """What deferred normalisation adds to P·V: shifts of accumulators, and a reciprocal per row in a shared unit.
        The requantisation of P·V's outputs, which every scheme has, multiplies with it."""
        shift, reciprocal = "accumulator_shift", "reciprocal"
        area = self._lane_area(shift) * self._config.lanes + self._lane_area(reciprocal) / self._pes
        shifts = self._counts["weights_writes"] * workload.head_size
        energy = self._measured.pj_per_step(shift) * shifts
        self.add(NORMALIZATION, area, energy + self._measured.pj_per_step(reciprocal) * workload.sequence)

    def row_state(self, bits: int) -> None:
        """Max and sum of every open row, read and written with every slice."""
        memory = Memory(-(-bits * self._config.rows // 8), bits)
        both = memory.read_pj(self._node) + memory.write_pj(self._node)
        self.add("row state", memory.area_um2(self._node), self._counts["probabilities_writes"] * both)

    def slices(self, name: str, bits: int, *ports: str, read_back: bool = False) -> None:
        """Slices to and from the global buffer, whose area belongs to no PE. What is read back is read once for each writing."""
        written = sum(self._counts[port] for port in ports if port.endswith("_writes"))
        read = sum(self._counts[port] for port in ports if port.endswith("_reads")) + read_back * written
        energy = written * self._bank.write_pj(self._node) + read * self._bank.read_pj(self._node)
        self.add(f"global buffer, {name}", 0.0, bits / 64 * energy)

    def done(self, design: str) -> PECost:
        return PECost(design, self._parts)


@dataclass(frozen=True)
class PERow:
    """A scheme against a baseline."""

    width: int
    sequence: int
    library: str
    scheme: str
    baseline: str
    ours: PECost
    theirs: PECost

    @property
    def area_ratio(self) -> float:
        return self.ours.area_um2 / self.theirs.area_um2

    @property
    def energy_ratio(self) -> float:
        return self.ours.energy_pj / self.theirs.energy_pj

    def pairs(self) -> dict[str, tuple[ComponentCost, ComponentCost]]:
        """Every component of either design: ours, the baseline's."""
        names = dict.fromkeys([*self.ours.components, *self.theirs.components])
        none = ComponentCost(0.0, 0.0)
        return {
            name: (self.ours.components.get(name, none), self.theirs.components.get(name, none))
            for name in names
        }

    def to_json(self) -> dict[str, object]:
        breakdown = {
            name: {
                "area_um2": round(mine.area_um2, 2),
                "energy_pj": round(mine.energy_pj, 2),
                "baseline_area_um2": round(other.area_um2, 2),
                "baseline_energy_pj": round(other.energy_pj, 2),
            }
            for name, (mine, other) in self.pairs().items()
        }
        return {
            "width": self.width,
            "sequence": self.sequence,
            "library": self.library,
            "scheme": self.scheme,
            "baseline": self.baseline,
            "area_ratio": round(self.area_ratio, 4),
            "energy_ratio": round(self.energy_ratio, 4),
            "energy_pj": round(self.ours.energy_pj, 1),
            "breakdown": breakdown,
        }


def pe_table(
    measured: Sequence[PEFigures],
    sequences: Sequence[int] = (SEQUENCE,),
    schemes: Sequence[str] = SCHEMES,
    baselines: Sequence[str] = BASELINES,
    node: Node | None = None,
) -> list[PERow]:
    """Every scheme against every baseline at every sequence length."""
    rows = []
    for figures in measured:
        for sequence in sequences:
            workload = Workload(sequence)
            theirs = {
                (name, on_read): baseline_cost(figures, name, workload, node, on_read=on_read)
                for name in baselines
                for on_read in (False, True)
            }
            for scheme in schemes:
                ours, on_read = softermax_cost(figures, scheme, workload, node), scheme.endswith(ON_READ)
                rows += [
                    PERow(figures.width, sequence, figures.library, scheme, name, ours, theirs[name, on_read])
                    for name in baselines
                ]
    return rows
