"""Requantisation: an accumulator times the scale, rounded and saturated to Softermax's input word."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.carry_save import carry_save
from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.payloads import word
from softermax.rtl.pe.config import ACCUMULATOR_BITS, PEConfig
from softermax.rtl.pe.payloads import SHIFT_BITS
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
    stage 3   shifted                                | whole part and fraction
    stage 4   rounded, saturated, without a register

    The mantissa is taken in stage 2, the shift in stage 3.
    """

    registers = 3

    def __init__(self, config: PEConfig, spec: SoftermaxSpec) -> None:
        if spec.input_rounding != "half-even":
            raise ValueError(f"input_rounding = {spec.input_rounding}: the PE rounds half-even")
        self._config, self._spec = config, spec
        super().__init__(
            {
                "acc": In(signed(ACCUMULATOR_BITS)),
                "mantissa": In(unsigned(config.scale_bits)),
                "enable": In(self.registers),  # each stage's take what is before them
                "shift": In(unsigned(SHIFT_BITS)),
                "x": Out(word(spec.input)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        product, negative = magnitude_product(m, self.acc, self.mantissa, self.enable)
        bits = self._spec.input.bits
        reach = SINGLE_BITS + 2  # fraction bits that can decide: those of a number just below a half
        shifted, lost = shift_right_sticky(m, Cat(Const(0, reach), product), self.shift, "shifted")
        fraction, whole = Signal(reach, reset_less=True), Signal(bits, reset_less=True)
        over, sticky, minus = (Signal(reset_less=True, name=name) for name in ("over", "sticky", "minus"))
        with m.If(self.enable[2]):
            m.d.sync += [
                Cat(fraction, whole).eq(shifted),
                over.eq(shifted[reach + bits :].any()),
                sticky.eq(lost),
                minus.eq(negative),
            ]

        up = Mux(self._near_a_half(m, whole, fraction, sticky), whole[0], fraction[-1])
        rounded = Signal(bits + 1)
        high = (1 << (bits - 1)) - 1
        m.d.comb += rounded.eq(whole + up)
        with m.If(over | (rounded > Mux(minus, high + 1, high))):
            m.d.comb += self.x.eq(Mux(minus, -high - 1, high))
        with m.Else():
            m.d.comb += self.x.eq(Mux(minus, -rounded, rounded))
        return m

    @staticmethod
    def _near_a_half(m: Module, whole: Signal, fraction: Signal, sticky: Value) -> Value:
        """Single precision cannot tell the number from a half.

        A half is 100..., and just below it lies 011...: after the first bit there are only opposites of it, as far
        as single precision reaches. It reaches `SINGLE_BITS` places from the leading one, one further where the
        number is rounded, and one further still below a power of two.
        """
        bits, half = len(whole), fraction[-1]
        opposite = [half, *(bit ^ half for bit in reversed(fraction[:-1]))]
        # A word past the last of these saturates whatever its fraction.
        cases = [(whole[e:] == 1, SINGLE_BITS - e, SINGLE_BITS - e) for e in range(bits - 1)]
        cases.append((whole == 0, SINGLE_BITS + 1, SINGLE_BITS + 2))
        near = Signal()
        for chosen, above, below in cases:
            reached = Cat(*opposite[1 : above - 1]).all()
            exact = ~(fraction[:-above].any() | sticky)
            # Above a half the last place may be reached by as much as half a unit.
            up_to = Mux(half, opposite[above - 1] | exact, Cat(*opposite[above - 1 : below]).all())
            with m.If(chosen):
                m.d.comb += near.eq(reached & up_to)
        return near


def magnitude_product(m: Module, acc: Value, mantissa: Value, enable: Value) -> tuple[Signal, Signal]:
    """``|acc| * mantissa`` and whether acc is negative, after two registers.

    Carries run through the lower half before the second register and through the upper half after it.
    """
    magnitude = Signal(ACCUMULATOR_BITS, reset_less=True)
    product = Signal(ACCUMULATOR_BITS + len(mantissa))
    minus, negative = Signal(reset_less=True), Signal(reset_less=True)
    with m.If(enable[0]):
        m.d.sync += [magnitude.eq(Mux(acc < 0, -acc, acc)), minus.eq(acc < 0)]
    rows = [Cat(Const(0, place), Mux(bit, magnitude, 0)) for place, bit in enumerate(mantissa)]
    a, b = carry_save(m, rows, len(product), "product")
    middle = len(product) // 2
    low = Signal(middle + 1, reset_less=True)
    high = [Signal(len(product) - middle, reset_less=True, name=f"high_{i}") for i in range(2)]
    with m.If(enable[1]):
        m.d.sync += [low.eq(a[:middle] + b[:middle]), negative.eq(minus)]
        m.d.sync += [register.eq(row[middle:]) for register, row in zip(high, (a, b), strict=True)]
    m.d.comb += product.eq(Cat(low[:middle], high[0] + high[1] + low[middle]))
    return product, negative
