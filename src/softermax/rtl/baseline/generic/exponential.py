"""A generic exponential of halves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.baseline.generic import model
from softermax.rtl.baseline.generic.fields import pack, unpack
from softermax.rtl.baseline.model import LOG2E_TERMS
from softermax.rtl.pipeline import register

MAGNITUDE_BITS = model.ARGUMENT_INTEGER + model.ARGUMENT_FRACTION
PRODUCT_BITS = model.ARGUMENT_INTEGER + 1 + model.PRODUCT_FRACTION
PLACES = 1 + 10 + model.GUARD


class Exponential(wiring.Component):
    """``e^x`` of any half, of either sign; `model.exponential` has the algorithm.

    stage 1   unpacked, aligned to a fixed point               | magnitude, sign
    stage 2   times log2(e), shifts added up, negated          | product
    stage 3   2^fraction by a line from a table                | 13 places, exponent, how far below it
    stage 4   shifted down if subnormal, rounded               | the power
    """

    stages = 4

    def __init__(self) -> None:
        super().__init__({"x": In(16), "enable": In(self.stages), "power": Out(16)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        x = unpack(m, self.x, "x")

        # Stage 1.
        top = 14 + model.ARGUMENT_INTEGER
        by, beyond = Signal(5), Signal()
        m.d.comb += [by.eq(top - x.exponent), beyond.eq(x.exponent > top)]
        aligned = Signal(MAGNITUDE_BITS)
        m.d.comb += aligned.eq(Cat(Const(0, MAGNITUDE_BITS - 11), x.significand) >> by)
        flags = Cat(x.sign, beyond, x.is_nan)
        held = register(m, Cat(aligned, flags), self.enable[0], "stage_1")
        magnitude, flags = held[:MAGNITUDE_BITS], held[MAGNITUDE_BITS:]

        # Stage 2.
        cut = model.PRODUCT_FRACTION - model.POWER_FRACTION
        product, power = Signal(PRODUCT_BITS), Signal(PRODUCT_BITS - cut)
        m.d.comb += [
            product.eq(_times_log2e(m, magnitude)),
            power.eq(product[cut:] ^ flags[0].replicate(len(power))),
        ]
        held = register(m, Cat(power, flags), self.enable[1], "stage_2")
        power, flags = held[: len(power)], held[len(power) :]

        # Stage 3. The exponent is the integer part, with its sign.
        line = _power_fraction(m, power[: model.POWER_FRACTION])
        whole = Cat(power[model.POWER_FRACTION :], flags[0])
        exponent, down, below = Signal(signed(len(whole))), Signal(signed(len(whole) + 1)), Signal(4)
        negative, beyond, nan = flags
        m.d.comb += [
            exponent.eq(whole.as_signed()),
            down.eq(-14 - exponent),
            below.eq(Mux(down < 0, 0, Mux(down > 15, 15, down))),
        ]
        above = Mux(down > 0, Const(0, 5), (exponent + 15)[:5])
        flags = Cat(negative & beyond, ~negative & (beyond | (exponent > 15)), nan)
        held = register(m, Cat(line, below, above, flags), self.enable[2], "stage_3")
        line, below, above = held[: PLACES - 1], held[PLACES - 1 :][:4], held[PLACES + 3 :][:5]
        zero, infinite, nan = held[-3:]

        # Stage 4. What rounds up to two carries into the exponent.
        places, sticky = shift_right_sticky(m, Cat(line, 1), below, "shifted")
        guard = model.GUARD
        up, magnitude = Signal(), Signal(15)
        m.d.comb += [
            up.eq(places[guard - 1] & (places[: guard - 1].any() | sticky | places[guard])),
            magnitude.eq(Cat(places[guard : guard + 10], above) + up),
        ]
        result = pack(Const(0, 1), Mux(zero, Const(0, 15), magnitude), infinite, nan)
        m.d.comb += self.power.eq(register(m, result, self.enable[3], "result"))
        return m


def _times_log2e(m: Module, magnitude: Value) -> Value:
    scaled = Cat(Const(0, model.PRODUCT_FRACTION - model.ARGUMENT_FRACTION), magnitude)
    words: list[tuple[Value, int]] = []
    constant = 0
    for right, sign in LOG2E_TERMS:
        term = scaled[right:]
        if sign < 0:
            # -t is ~t + 1 with ones all the way up.
            constant += 1 - (1 << len(term))
            term = ~term
        words.append((term, 0))
    return sum_of(m, words, constant % (1 << PRODUCT_BITS), PRODUCT_BITS, "product")


def _power_fraction(m: Module, f: Value) -> Value:
    """The places after the point of 2^f."""
    offsets, slopes = model.power_lines()
    rest_bits = model.POWER_FRACTION - model.INDEX_BITS
    bits = 10 + model.GUARD + model.LINE_FRACTION
    index, rest = f[rest_bits:], f[:rest_bits]
    offset, slope = Signal(bits), Signal(max(slopes).bit_length())
    m.d.comb += [offset.eq(Array(offsets)[index]), slope.eq(Array(slopes)[index])]
    products = [(slope & bit.replicate(len(slope)), place) for place, bit in enumerate(rest)]
    return sum_of(m, [(offset, 0), *products], 0, bits, "line")[model.LINE_FRACTION :]
