"""The half-precision exponential of the baseline: e^-d for d >= 0."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.baseline import model

D_BITS = 4 + model.DISTANCE_FRACTION
Z_BITS = 5 + model.PRODUCT_FRACTION


class Exponential(wiring.Component):
    """``e^-d`` lane by lane, d as `Subtract` gives it; `model.exponential` has the algorithm.

    At most a unit in the last place from the correctly rounded value, and 1 for d = 0. Below 2^-14
    the result is zero, as it is for lanes that are masked. The sign and the upper exponent bit of a
    result are zero and not stored: e^-d is at most 1.

    stage 1   d aligned to a fixed point, overflow found          | d, whether the lane is zero
    stage 2   -d·log2(e), shifts added up: exponent and fraction  | -1 - d·log2(e)
    stage 3   2^fraction by a line from a table                   | four bits of exponent, ten of fraction

    With ``base_two`` it is ``2^-d``, for scores that carry log2(e) in their scale: the first two stages are one.
    """

    def __init__(self, lanes: int, base_two: bool = False) -> None:
        self._lanes = lanes
        self._base_two = base_two
        self.stages = 2 if base_two else 3
        super().__init__(
            {
                "significand": In(data.ArrayLayout(unsigned(13), lanes)),
                "exponent": In(data.ArrayLayout(unsigned(5), lanes)),
                "mask": In(lanes),
                "enable": In(self.stages),
                "result": Out(data.ArrayLayout(unsigned(14), lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        def register(bits: int, name: str) -> Signal:
            return Signal(bits, reset_less=True, name=f"{name}_{lane}")

        power, gone = register(4 + model.POWER_FRACTION, "power"), register(1, "gone")
        aligned, overflow = _align(m, self.significand[lane], self.exponent[lane], lane)
        z = Signal(Z_BITS, name=f"z_{lane}")
        if self._base_two:
            # Stages 1 and 2 in one.
            zero: Value = overflow | ~self.mask[lane]
            m.d.comb += z.eq(_minus_one_less(aligned))
        else:
            # Stage 1.
            d, zero = register(D_BITS, "d"), register(1, "zero")
            with m.If(self.enable[0]):
                m.d.sync += [d.eq(aligned), zero.eq(overflow | ~self.mask[lane])]
            # Stage 2.
            m.d.comb += z.eq(_minus_one_less_product(m, d, lane))
        # The first bit is zero where the exponent is far below zero.
        with m.If(self.enable[-2]):
            m.d.sync += [
                power.eq(z[model.PRODUCT_FRACTION - model.POWER_FRACTION :]),
                gone.eq(zero | ~z[-1]),
            ]

        # Stage 3. With exponent bits of zero the result is below 2^-14.
        fraction, exponent = (
            _power_fraction(m, power[: model.POWER_FRACTION], lane),
            power[model.POWER_FRACTION :],
        )
        with m.If(self.enable[-1]):
            m.d.sync += self.result[lane].eq(Mux(gone | ~exponent.any(), 0, Cat(fraction, exponent)))


def _align(m: Module, significand: Value, exponent: Value, lane: int) -> tuple[Value, Value]:
    """``significand·2^(exponent-26)`` in a fixed point of four integer bits, and whether it has more."""
    by = ~exponent
    value: Value = Cat(Const(0, 31 - 26 + model.DISTANCE_FRACTION), significand)
    overflow: Value = Const(0, 1)
    for level in reversed(range(5)):
        shifted = Signal(len(value), name=f"shifted_{1 << level}_{lane}")
        m.d.comb += shifted.eq(Mux(by[level], value >> (1 << level), value))
        # The shifts that follow cannot bring these places down any more.
        reach = D_BITS + (1 << level) - 1
        value, overflow = shifted[:reach], overflow | shifted[reach:].any()
    return value, overflow


def _minus_one_less(d: Value) -> Value:
    """``-1 - d``: its integer bits, modulo 32, are 16 and the exponent of 2^-d."""
    places = model.PRODUCT_FRACTION
    scaled = Cat(Const(0, places - model.DISTANCE_FRACTION), d)
    # -d is ~d + 1 with ones all the way up.
    above = Const(-1, Z_BITS - len(scaled))
    return (Cat(~scaled, above) + (1 - (1 << places)) % (1 << Z_BITS))[:Z_BITS]


def _minus_one_less_product(m: Module, d: Signal, lane: int) -> Value:
    """``-1 - d·log2(e)``: its integer bits, modulo 32, are 16 and the exponent of 2^(-d·log2(e))."""
    places = model.PRODUCT_FRACTION
    scaled = Cat(Const(0, places - model.DISTANCE_FRACTION), d)
    words: list[tuple[Value, int]] = []
    constant = -(1 << places)
    for right, sign in model.LOG2E_TERMS:
        term = scaled[right:] if right else scaled
        if sign > 0:
            # -t is ~t + 1 with ones all the way up.
            constant += 1 - (1 << len(term))
            term = ~term
        words.append((term, 0))
    return sum_of(m, words, constant % (1 << Z_BITS), Z_BITS, f"product_{lane}")


def _power_fraction(m: Module, g: Value, lane: int) -> Value:
    """The ten bits after the point of 2^g."""
    lines = model.power_lines()
    rest_bits = model.POWER_FRACTION - model.INDEX_BITS
    bits = 10 + model.SLOPE_FRACTION
    index, rest = g[rest_bits:], g[:rest_bits]
    offset = Signal(bits, name=f"offset_{lane}")
    slope = Signal(max(lines.slope).bit_length(), name=f"slope_{lane}")
    m.d.comb += [offset.eq(Array(lines.offset)[index]), slope.eq(Array(lines.slope)[index])]
    products = [(slope & bit.replicate(len(slope)), place) for place, bit in enumerate(rest)]
    return sum_of(m, [(offset, 0), *products], 0, bits, f"line_{lane}")[model.SLOPE_FRACTION :]
