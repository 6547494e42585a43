"""What memories cost: area, energy of a reading and a writing, leakage. Modelled, not measured.

Everything else in the figures comes from mapped netlists; the memories come from this file alone: the PE's, and what waits
between the units of a whole softmax.

**CACTI** (`CACTI`), what everything is counted with. CACTI 7 was asked for memories of one port and 64-bit words from 256 bytes to 2 MB, of least energy and area, at
300 K; ``memories.json`` has its answers with version and configuration, `softermax.silicon.cacti` makes it anew.

- *45 nm*: CACTI's own 45 nm, transistors of low standby power, which it runs at 1.1 V, as NanGate's cells are: nothing is scaled. Its cell has
  0.296 µm² (146 F²); Intel's of that node had 0.346 [B06].
- *7 nm*: CACTI ends at 22 nm (0.8 V, a cell of 0.0707 µm²). Areas are scaled by the ratio of the cells, 0.027 µm² [C17] to that. Bit and word
  lines become shorter by the root of it, and a micrometre of wire keeps its capacitance, so energies are scaled by that root, and to
  ASAP7's 0.7 V by the square of the voltages. Leakage of a bit is that of 22 nm, by the ratio of the voltages.

**Published** (`PUBLISHED`), a what-if: of a PE (``--memories published``), and of a whole softmax (``--sensitivity``).

- [H14] M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014: 45 nm, energy
  of a 64-bit access of 8 KB, 32 KB and 1 MB: 10, 20 and 100 pJ, at 0.9 V. Confirmed in works that quote it.
- [J21] N. Jouppi et al., "Ten lessons from three generations shaped Google's TPUv4i", ISCA 2021, which brings [H14]'s
  table from 45 nm to 7 nm; that it does is confirmed. The three figures taken from it are not: no copy of the
  table could be compared.
- [B06] Intel's announcement of its 45 nm SRAM, January 2006: 6T cell of 0.346 µm². Confirmed in the press of the day;
  Renesas' 45 nm cell (K. Nii et al., ISQED 2013) has 0.37 µm².
- [C17] J. Chang et al., "A 7nm 256Mb SRAM in high-k metal-gate FinFET technology", ISSCC 2017: 6T cell of 0.027 µm².
  Confirmed in an encyclopedia that cites it.
- Half of the area is cells, writing costs as much as reading, a bit leaks 100 pA: assumptions without a source. Large arrays are cells by
  0.70 (D. Schor, "IEDM 2022: Did we just witness the death of SRAM?", WikiChip Fuse); small ones have more around them.
- At the 1.1 V of the 45 nm cells the energies of [H14] would be (1.1/0.9)^2 = 1.5 times as much (`Node.at_logic_voltage`); the what-ifs have
  both. [J21] gives no voltage: at 7 nm both are the same.

Assumptions of both, varied by `sensitivity`:

- Between two sizes a figure follows a power of the capacity; below the smallest and above the largest, energy follows its square
  root (the length of bit and word lines), area and leakage the capacity itself.
- A wide word is spread over banks of up to 64 bits, each with its share of the capacity, all accessed at
  once. The global buffer is not spread: a word crosses it in pieces of 64 bits.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

BANK_BITS = 64
KB = 1024
_ASKED = Path(__file__).with_name("memories.json")


@dataclass(frozen=True)
class MemorySample:
    """A memory of 64-bit words whose figures are known."""

    capacity: int
    """In bytes."""
    read_pj: float
    write_pj: float
    area_um2: float
    leakage_nw: float


@dataclass(frozen=True)
class Node:
    """A technology node's memories."""

    name: str
    samples: tuple[MemorySample, ...]
    """By rising capacity."""
    voltage: float
    """The logic's."""
    source: str = "CACTI"
    energy_factor: float = 1.0
    area_factor: float = 1.0
    leakage_factor: float = 1.0
    """For `sensitivity`."""
    published_voltage: float | None = None
    """Of the samples' energies, where it is known and another."""

    def at_logic_voltage(self) -> Node:
        """The node with energies at its cells' voltage, as far as the samples' is known."""
        scale = (self.voltage / (self.published_voltage or self.voltage)) ** 2
        return replace(self, energy_factor=self.energy_factor * scale, published_voltage=None)

    def read_pj(self, capacity: float) -> float:
        """64 bits of a memory of ``capacity`` bytes."""
        return self.energy_factor * self._at(capacity, "read_pj", 0.5)

    def write_pj(self, capacity: float) -> float:
        return self.energy_factor * self._at(capacity, "write_pj", 0.5)

    def area_um2(self, capacity: float) -> float:
        return self.area_factor * self._at(capacity, "area_um2", 1.0)

    def leakage_nw(self, capacity: float) -> float:
        return self.leakage_factor * self._at(capacity, "leakage_nw", 1.0)

    def _at(self, capacity: float, figure: str, power_outside: float) -> float:
        if capacity <= 0:
            raise ValueError(f"capacity {capacity}: must be more than 0 bytes")
        points = [(sample.capacity, float(getattr(sample, figure))) for sample in self.samples]
        for (low, first), (high, second) in itertools.pairwise(points):
            if low <= capacity <= high:
                power = math.log(second / first) / math.log(high / low)
                return first * float((capacity / low) ** power)
        nearest, value = points[0] if capacity < points[0][0] else points[-1]
        return value * float((capacity / nearest) ** power_outside)


def _asked(technology_nm: int) -> tuple[MemorySample, ...]:
    """CACTI's answers at a node of its own."""
    rows = json.loads(_ASKED.read_text(encoding="utf-8"))["rows"]
    return tuple(
        MemorySample(
            row["capacity"],
            row["read_pj"],
            row["write_pj"],
            row["area_um2"],
            row["leakage_nw"] + row["gate_leakage_nw"],
        )
        for row in rows
        if row["technology_nm"] == technology_nm
    )


_CELL_22NM_UM2, _CELL_7NM_UM2 = 146 * 0.022**2, 0.027
_VOLTS_22NM, _VOLTS_7NM = 0.8, 0.7


def _brought_to_7nm(sample: MemorySample) -> MemorySample:
    area, volts = _CELL_7NM_UM2 / _CELL_22NM_UM2, _VOLTS_7NM / _VOLTS_22NM
    energy = math.sqrt(area) * volts**2
    return MemorySample(
        sample.capacity,
        sample.read_pj * energy,
        sample.write_pj * energy,
        sample.area_um2 * area,
        sample.leakage_nw * volts,
    )


def _published(energies: dict[int, float], cell_um2: float, voltage: float) -> tuple[MemorySample, ...]:
    """Half cells, 100 pA per bit: pA times V are 1e-3 nW."""
    return tuple(
        MemorySample(
            kilobytes * KB, pj, pj, kilobytes * KB * 8 * cell_um2 / 0.5, kilobytes * KB * 8 * voltage * 0.1
        )
        for kilobytes, pj in energies.items()
    )


CACTI: dict[str, Node] = {
    "45nm": Node("45nm", _asked(45), 1.1),
    "7nm": Node("7nm", tuple(map(_brought_to_7nm, _asked(22))), _VOLTS_7NM),
}
PUBLISHED: dict[str, Node] = {
    "45nm": Node(
        "45nm",
        _published({8: 10.0, 32: 20.0, 1024: 100.0}, 0.346, 1.1),
        1.1,
        "published",
        published_voltage=0.9,
    ),
    "7nm": Node("7nm", _published({8: 7.5, 32: 8.5, 1024: 14.0}, _CELL_7NM_UM2, 0.7), 0.7, "published"),
}
MODELS = {"cacti": CACTI, "published": PUBLISHED}
MEMORIES = "cacti"
"""What memories are counted with unless told otherwise: a PE's, and those of what waits between units."""
NODE_OF_LIBRARY = {"nangate45": "45nm", "asap7": "7nm"}


def node_of(library: str, memories: str = MEMORIES) -> Node:
    """The node of a cell library, by a name of `MODELS`."""
    if library not in NODE_OF_LIBRARY:
        raise ValueError(f"library {library!r}: memories are modelled for {', '.join(NODE_OF_LIBRARY)}")
    return MODELS[memories][NODE_OF_LIBRARY[library]]


@dataclass(frozen=True)
class Memory:
    """A memory of ``capacity`` bytes in words of ``word_bits``."""

    capacity: int
    word_bits: int
    banked: bool = True

    @property
    def _banks(self) -> int:
        return math.ceil(self.word_bits / BANK_BITS) if self.banked else 1

    def area_um2(self, node: Node) -> float:
        return self._banks * node.area_um2(self.capacity / self._banks)

    def read_pj(self, node: Node) -> float:
        """A word."""
        return self.word_bits / BANK_BITS * node.read_pj(self.capacity / self._banks)

    def write_pj(self, node: Node) -> float:
        return self.word_bits / BANK_BITS * node.write_pj(self.capacity / self._banks)

    def leakage_pj(self, node: Node, nanoseconds: float) -> float:
        # nW times ns are 1e-6 pJ.
        return self._banks * node.leakage_nw(self.capacity / self._banks) * nanoseconds * 1e-6


AS_PUBLISHED = "memories as published"
GLOBAL_BUFFER_BANK = 1024 * KB
"""The global buffer is made of banks of this size; an access goes to one of them."""


def sensitivity(node: Node, factors: Iterable[float] = (0.25, 0.5, 1.5, 2.0, 4.0)) -> dict[str, Node]:
    """The node with one of its figures changed at a time, by what was changed, and as it was published."""
    changed: dict[str, Node] = {"as modelled": node}
    for factor in factors:
        changed[f"access energy x {factor:g}"] = replace(node, energy_factor=node.energy_factor * factor)
    for factor in factors:
        changed[f"area x {factor:g}"] = replace(node, area_factor=node.area_factor * factor)
    changed["leakage x 10"] = replace(node, leakage_factor=10 * node.leakage_factor)
    return changed | {AS_PUBLISHED: PUBLISHED[node.name]}


def as_published(library: str) -> dict[str, Node]:
    """The published memories of a library by what was changed: as they are, and at the logic's voltage where that is another."""
    node = node_of(library, "published")
    found = {AS_PUBLISHED: node}
    if node.published_voltage:
        found[f"{AS_PUBLISHED}, at the logic's {node.voltage} V"] = node.at_logic_voltage()
    return found
