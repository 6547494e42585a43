"""Requantisation: an accumulator times the scale, rounded and saturated to Softermax's input word."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.shifter import shift_right_sticky
from softermax.rtl.pe.config import ACCUMULATOR_BITS, PEConfig
from softermax.rtl.pe.words import SHIFT_BITS
from softermax.rtl.words import word
from softermax.spec import SoftermaxSpec

SINGLE_BITS = 24
"""Bits of a single-precision significand, to which the software rounds the product first."""


class Requantize(wiring.Component):
    """One lane, bit-exact with `golden_attention.requantize`.

    The software rounds twice: the product to single precision, then that to an integer, half to even.
    So a product that lies within half a unit of single precision from a half counts as a half. The
    exact product shows that in its fraction: ones or zeros as far as single precision reaches.

    stage 1   magnitude                              | magnitude and sign
    stage 2   times mantissa                         | product
    stage 3   shifted, rounded, saturated, without a register

    The mantissa is taken in stage 2, the shift in stage 3.
    """

    def __init__(self, config: PEConfig, spec: SoftermaxSpec) -> None:
        if spec.input_rounding != "half-even":
            raise ValueError(f"input_rounding = {spec.input_rounding}: the PE rounds half-even")
        self._config, self._spec = config, spec
        super().__init__(
            {
                "acc": In(signed(ACCUMULATOR_BITS)),
                "mantissa": In(unsigned(config.scale_bits)),
                "enable": In(2),  # the registers of each stage take what is in front of them
                "shift": In(unsigned(SHIFT_BITS)),
                "x": Out(word(spec.input)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product, negative = magnitude_product(m, self.acc, self.mantissa, self.enable)
        bits = self._spec.input.bits
        reach = SINGLE_BITS + 2  # fraction bits that can decide: those of a number just below a half
        fixed, sticky = shift_right_sticky(m, Cat(Const(0, reach), product), self.shift, "fixed")
        whole, fraction = fixed[reach : reach + bits], fixed[:reach]
        over = fixed[reach + bits :].any()

        # Where the integer part's leading one is at e, a unit of single precision is 2^(e-23).
        above, below = [], []
        for e in range(bits - 1):
            above.append(self._zero_but_half(fraction, SINGLE_BITS - e, sticky))
            below.append(self._all_but_half(fraction, SINGLE_BITS - e))
        near = Signal()
        leading = Signal(range(bits))
        for e in range(bits):
            with m.If(whole[e]):
                m.d.comb += leading.eq(e)
        with m.If(whole.any()):
            # A word past the last entry saturates whatever its fraction.
            m.d.comb += near.eq((Array(above)[leading] | Array(below)[leading]) & ~whole[bits - 1])
        with m.Else():
            m.d.comb += near.eq(
                self._zero_but_half(fraction, SINGLE_BITS + 1, sticky)
                | self._all_but_half(fraction, SINGLE_BITS + 2)
            )
        up = Mux(near, whole[0], fraction[-1])
        rounded = Signal(bits + 1)
        high = (1 << (bits - 1)) - 1
        m.d.comb += rounded.eq(whole + up)
        with m.If(over | (rounded > Mux(negative, high + 1, high))):
            m.d.comb += self.x.eq(Mux(negative, -high - 1, high))
        with m.Else():
            m.d.comb += self.x.eq(Mux(negative, -rounded, rounded))
        return m

    @staticmethod
    def _zero_but_half(fraction: Value, places: int, sticky: Value) -> Value:
        """At most 2^-places above a half."""
        between, behind = fraction[-places + 1 : -1], fraction[:-places]
        less = ~fraction[-places]
        exact = ~(behind.any() | sticky)
        return fraction[-1] & ~between.any() & (less | exact)

    @staticmethod
    def _all_but_half(fraction: Value, places: int) -> Value:
        """At most 2^-places below a half, and below it."""
        return ~fraction[-1] & fraction[-places:-1].all()


def magnitude_product(m: Module, acc: Value, mantissa: Value, enable: Value) -> tuple[Signal, Signal]:
    """``|acc| * mantissa`` and whether acc is negative, behind two registers."""
    magnitude = Signal(ACCUMULATOR_BITS, reset_less=True)
    product = Signal(ACCUMULATOR_BITS + len(mantissa), reset_less=True)
    minus, negative = Signal(reset_less=True), Signal(reset_less=True)
    with m.If(enable[0]):
        m.d.sync += [magnitude.eq(Mux(acc < 0, -acc, acc)), minus.eq(acc < 0)]
    with m.If(enable[1]):
        m.d.sync += [product.eq(magnitude * mantissa), negative.eq(minus)]
    return product, negative
