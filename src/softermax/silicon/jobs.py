"""What a design is measured on: words for its inputs cycle by cycle, and what its outputs must be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.rtl.packing import Bits, bits_of
from softermax.rtl.simulation import ports_of

RESET_CYCLES = 2


@dataclass
class GateJob:
    """Some copies of a design at work, each with data of its own.

    Streams are offered and answered transfer by transfer (`send`, `hold`, `receive`), plain wires have a word in every cycle
    (`set`, `expect`). All are packed by the layout of the component's ports.
    """

    component: Any
    cycles: int
    copies: int
    elements: int
    """What the energy is divided by, over all copies: scores, or steps of a lane."""
    counted_from: int = RESET_CYCLES
    """Cycles before this one belong to no element."""
    inputs: dict[str, Bits] = field(default_factory=dict)
    transfers: dict[str, Bits] = field(default_factory=dict)
    """Stream to the payloads (transfers, copies, bits) that must leave it, in order."""
    must_be_ready: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Stream to the cycles in which the unit must take what is offered."""
    words: dict[str, Bits] = field(default_factory=dict)
    """Output wire to what it must be (cycles, copies, bits) in every counted cycle."""

    def reset(self) -> None:
        """Registers have their values from a reset alone: the first cycles are one."""
        self.inputs["rst"] = self._all(0)
        self.inputs["rst"][:RESET_CYCLES] = 1

    def payload(self, stream: str, fields: Mapping[str, IntArray]) -> Bits:
        """Fields of all copies, one copy after the other, as (transfers, copies, bits)."""
        layout = next(port.layout for port in ports_of(self.component) if port.name == stream)
        bits = bits_of(layout, fields)
        return np.moveaxis(bits.reshape(self.copies, -1, bits.shape[1]), 0, 1)

    def send(self, stream: str, start: int, payload: Bits) -> None:
        """Offer payloads in the cycles from ``start`` on, one each; all must be taken at once. Between transfers the
        payload keeps its value."""
        self._offer(stream, start, payload)
        self.must_be_ready[stream][start : start + len(payload)] = True

    def hold(self, stream: str, start: int, payload: Bits, cycles: int) -> None:
        """Offer each payload for so many cycles: the unit takes it in one of them."""
        self._offer(stream, start, np.repeat(payload, cycles, axis=0))

    def take(self, stream: str) -> None:
        """Take everything that a stream gives at once."""
        self.inputs[f"{stream}__ready"] = self._all(1)

    def receive(self, stream: str, fields: Mapping[str, IntArray]) -> None:
        """Take everything that a stream gives, and expect these transfers of it."""
        self.take(stream)
        self.transfers[stream] = self.payload(stream, fields)

    def set(self, wire: str, values: IntArray) -> None:
        """The words (cycles, copies) or (cycles, copies, lanes) of an input."""
        self.inputs[wire] = self._wire(wire, values)

    def expect(self, wire: str, values: IntArray) -> None:
        self.words[wire] = self._wire(wire, values)

    @property
    def content(self) -> str:
        """Changes with everything that is put in or expected."""
        digest = hashlib.sha256(f"{self.cycles} {self.copies} {self.elements} {self.counted_from}".encode())
        for part in (self.inputs, self.transfers, self.must_be_ready, self.words):
            for name, values in part.items():
                digest.update(f"{name} {values.shape}".encode() + values.tobytes())
        return digest.hexdigest()

    def _all(self, value: int) -> Bits:
        return np.full((self.cycles, self.copies, 1), value, dtype=np.uint8)

    def _offer(self, stream: str, start: int, payload: Bits) -> None:
        if f"{stream}__valid" not in self.inputs:
            self.inputs[f"{stream}__valid"] = self._all(0)
            shape = (self.cycles, self.copies, payload.shape[2])
            self.inputs[f"{stream}__payload"] = np.zeros(shape, dtype=np.uint8)
            self.must_be_ready[stream] = np.zeros(self.cycles, dtype=np.bool_)
        end = start + len(payload)
        self.inputs[f"{stream}__valid"][start:end] = 1
        self.inputs[f"{stream}__payload"][start:end] = payload
        self.inputs[f"{stream}__payload"][end:] = payload[-1]

    def _wire(self, wire: str, values: IntArray) -> Bits:
        layout = data.StructLayout({wire: self.component.signature.members[wire].shape})
        flat = np.asarray(values, dtype=np.int64).reshape(self.cycles * self.copies, *values.shape[2:])
        return bits_of(layout, {wire: flat}).reshape(self.cycles, self.copies, -1)
