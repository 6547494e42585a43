"""The reciprocal of a row's PowSum (A5): its leading one and the table's value for the rest."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.piecewise import lookup
from softermax.rtl.words import word
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.tables import reciprocal_table


class Reciprocal(wiring.Component):
    """One register: before it the leading one is found and shifted out, behind it the table."""

    def __init__(self, spec: SoftermaxSpec | DeferredSpec) -> None:
        self._spec = spec
        super().__init__(
            {
                "powsum": In(word(spec.powsum)),
                "enable": In(1),
                "leading_one": Out(unsigned((spec.powsum.bits - 1).bit_length())),
                "reciprocal": Out(unsigned(spec.reciprocal.fraction + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        bits = self._spec.powsum.bits
        table = reciprocal_table(self._spec)

        # Shifted up in steps of 2^j where as many bits on top are zero. A sum of 0 counts as one unit.
        mantissa: Value = self.powsum | ~self.powsum.any()
        zeros: list[Value] = []
        for j in reversed(range((bits - 1).bit_length())):
            step = 1 << j
            clear = Signal(name=f"clear_{step}")
            shifted = Signal(bits, name=f"shifted_{step}")
            m.d.comb += [
                clear.eq(~mantissa[bits - step :].any()),
                shifted.eq(Mux(clear, mantissa << step, mantissa)),
            ]
            mantissa = shifted
            zeros.insert(0, clear)
        leading_one = Signal.like(self.leading_one, reset_less=True)
        # Only these bits of the fraction reach the table.
        fraction = Signal(table.used_bits, reset_less=True)
        with m.If(self.enable):
            m.d.sync += [
                leading_one.eq(Const(bits - 1) - sum(bit << j for j, bit in enumerate(zeros))),
                fraction.eq(mantissa[bits - 1 - table.used_bits : bits - 1]),
            ]
        padded = fraction << (table.argument_bits - table.used_bits)
        m.d.comb += [
            self.leading_one.eq(leading_one),
            self.reciprocal.eq(lookup(m, table, padded, "value")),
        ]
        return m
