"""What memories cost: area, energy of a reading and a writing, leakage. Modelled, not measured.

Everything else in the figures comes from mapped netlists; the memories come from this file alone: the PE's, and what waits
between the units of a whole softmax.

Sources, and how far they were checked:

- [H14] M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014: 45 nm, energy
  of a 64-bit access of 8 KB, 32 KB and 1 MB: 10, 20 and 100 pJ, at 0.9 V. Confirmed in works that quote it.
- [J21] N. Jouppi et al., "Ten lessons from three generations shaped Google's TPUv4i", ISCA 2021, which brings [H14]'s
  table from 45 nm to 7 nm; that it does is confirmed. The three figures taken from it are not: no copy of the
  table could be compared. `sensitivity` has four times less and four times more.
- [B06] Intel's announcement of its 45 nm SRAM, January 2006: 6T cell of 0.346 µm². Confirmed in the press of the day;
  Renesas' 45 nm cell (K. Nii et al., ISQED 2013) has 0.37 µm².
- [C17] J. Chang et al., "A 7nm 256Mb SRAM in high-k metal-gate FinFET technology", ISSCC 2017: 6T cell of 0.027 µm².
  Confirmed in an encyclopedia that cites it.
- [S22] D. Schor, "IEDM 2022: Did we just witness the death of SRAM?", WikiChip Fuse: large arrays of cells of 0.021 µm²
  hold 31.8 Mib/mm², so cells are 0.70 of their area. Confirmed. Small memories have more around their cells.

Assumptions, the same for both nodes, varied by `sensitivity`:

- Between published sizes energy follows a power of the capacity; below the smallest and above the
  largest, its square root (the length of bit and word lines). The square root is also what [H14] gives
  from 8 to 32 KB.
- A wide word is spread over banks of up to 64 bits, each with its share of the capacity, all accessed at
  once. The global buffer is not spread: a word crosses it in pieces of 64 bits.
- Writing costs as much as reading: neither source tells them apart.
- Half of a memory's area is cells: less than in [S22], for these are small.
- A bit leaks 100 pA at the node's voltage: an assumption without a source. At ten times that, leakage is still the
  smallest part.
- The PE's energies are taken as published. At the 1.1 V of the 45 nm cells those of [H14] would be (1.1/0.9)^2 = 1.5
  times as much (`Node.at_logic_voltage`), which is what a whole softmax is counted with, and the PE's what-if. [J21]
  gives no voltage: at 7 nm both are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

BANK_BITS = 64
KB = 1024


@dataclass(frozen=True)
class Node:
    """A technology node's memories."""

    name: str
    anchors: tuple[tuple[int, float], ...]
    """Capacity in bytes and picojoules of a 64-bit access, rising."""
    cell_um2: float
    voltage: float
    cell_share: float = 0.5
    leakage_pa_per_bit: float = 100.0
    energy_factor: float = 1.0
    """For `sensitivity`."""
    published_voltage: float | None = None
    """Of the anchors' energies, where it is known."""

    def at_logic_voltage(self) -> Node:
        """The node with energies at its cells' voltage, as far as the published one is known."""
        scale = (self.voltage / (self.published_voltage or self.voltage)) ** 2
        return replace(self, energy_factor=self.energy_factor * scale, published_voltage=self.voltage)

    def access_pj(self, capacity: float) -> float:
        """64 bits of a memory of ``capacity`` bytes."""
        if capacity <= 0:
            raise ValueError(f"capacity {capacity}: must be more than 0 bytes")
        for (low, low_pj), (high, high_pj) in zip(self.anchors, self.anchors[1:], strict=False):
            if low <= capacity <= high:
                power = math.log(high_pj / low_pj) / math.log(high / low)
                return self.energy_factor * low_pj * float((capacity / low) ** power)
        nearest, pj = self.anchors[0] if capacity < self.anchors[0][0] else self.anchors[-1]
        return self.energy_factor * pj * math.sqrt(capacity / nearest)


NODES: dict[str, Node] = {
    "45nm": Node(
        "45nm", ((8 * KB, 10.0), (32 * KB, 20.0), (1024 * KB, 100.0)), 0.346, 1.1, published_voltage=0.9
    ),
    "7nm": Node("7nm", ((8 * KB, 7.5), (32 * KB, 8.5), (1024 * KB, 14.0)), 0.027, 0.7),
}
NODE_OF_LIBRARY = {"nangate45": "45nm", "asap7": "7nm"}


def node_of(library: str) -> Node:
    """The node of a cell library."""
    if library not in NODE_OF_LIBRARY:
        raise ValueError(f"library {library!r}: memories are modelled for {', '.join(NODE_OF_LIBRARY)}")
    return NODES[NODE_OF_LIBRARY[library]]


@dataclass(frozen=True)
class Memory:
    """A memory of ``capacity`` bytes in words of ``word_bits``."""

    capacity: int
    word_bits: int
    banked: bool = True

    def area_um2(self, node: Node) -> float:
        return self.capacity * 8 * node.cell_um2 / node.cell_share

    def access_pj(self, node: Node) -> float:
        """Reading or writing a word."""
        pieces = self.word_bits / BANK_BITS
        if not self.banked:
            return pieces * node.access_pj(self.capacity)
        banks = math.ceil(pieces)
        return pieces * node.access_pj(self.capacity / banks)

    def leakage_pj(self, node: Node, nanoseconds: float) -> float:
        # pA times V times ns are 1e-21 J.
        return self.capacity * 8 * node.leakage_pa_per_bit * node.voltage * nanoseconds * 1e-9


GLOBAL_BUFFER_BANK = 1024 * KB
"""The global buffer is made of banks of this size; an access goes to one of them."""


def sensitivity(node: Node, factors: Iterable[float] = (0.25, 0.5, 1.5, 2.0, 4.0)) -> dict[str, Node]:
    """The node with one of its figures changed at a time, by what was changed."""
    changed: dict[str, Node] = {"as modelled": node}
    for factor in factors:
        changed[f"access energy x {factor:g}"] = replace(node, energy_factor=node.energy_factor * factor)
    for factor in factors:
        share = min(node.cell_share / factor, 1.0)
        changed[f"area x {node.cell_share / share:g}"] = replace(node, cell_share=share)
    changed["leakage x 10"] = replace(node, leakage_pa_per_bit=10 * node.leakage_pa_per_bit)
    return changed
