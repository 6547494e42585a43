"""The reciprocal of a row's PowSum (A5): its leading one and the table's value for the rest."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.piecewise import lookup
from softermax.rtl.payloads import word
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.tables import reciprocal_table


class Reciprocal(wiring.Component):
    """Two stages: the leading one is found and shifted out, then the rest goes through the table."""

    def __init__(self, spec: SoftermaxSpec | DeferredSpec) -> None:
        self._spec = spec
        super().__init__(
            {
                "powsum": In(word(spec.powsum)),
                "enable_1": In(1),  # a PowSum enters
                "enable_2": In(1),  # its mantissa goes on to the table
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
        leading_one_1 = Signal.like(self.leading_one, reset_less=True)
        # Only these bits of the fraction reach the table.
        fraction = Signal(table.used_bits, reset_less=True)
        with m.If(self.enable_1):
            m.d.sync += [
                leading_one_1.eq(Const(bits - 1) - sum(bit << j for j, bit in enumerate(zeros))),
                fraction.eq(mantissa[bits - 1 - table.used_bits : bits - 1]),
            ]
        value = lookup(m, table, fraction << (table.argument_bits - table.used_bits), "value")
        leading_one_2 = Signal.like(self.leading_one, reset_less=True)
        reciprocal = Signal.like(self.reciprocal, reset_less=True, name="found")
        with m.If(self.enable_2):
            m.d.sync += [leading_one_2.eq(leading_one_1), reciprocal.eq(value)]
        m.d.comb += [self.leading_one.eq(leading_one_2), self.reciprocal.eq(reciprocal)]
        return m
