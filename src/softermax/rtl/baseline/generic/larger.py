"""A generic comparator: the larger of two halves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.generic.fields import NAN, unpack


class Larger(wiring.Component):
    """The larger of ``a`` and ``b``, a where they are equal, as the zeros are; NaN if either is. Without a register."""

    def __init__(self) -> None:
        super().__init__({"a": In(16), "b": In(16), "larger": Out(16)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        a, b = unpack(m, self.a, "a"), unpack(m, self.b, "b")
        less, equal, keep = Signal(), Signal(), Signal()
        m.d.comb += [
            less.eq(self.a[:15] < self.b[:15]),
            equal.eq(self.a[:15] == self.b[:15]),
            keep.eq(
                Mux(a.sign ^ b.sign, ~a.sign | (a.is_zero & b.is_zero), Mux(a.sign, less | equal, ~less))
            ),
            self.larger.eq(Mux(a.is_nan | b.is_nan, NAN, Mux(keep, self.a, self.b))),
        ]
        return m
