"""ConSmax in RTL: two tables of 16 BF16 numbers and a product. No max, no sum, no division: one unit, and nothing waits.

The tables are wired. A model with constants of its own per head would load them into registers, which all lanes could share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rivals.designs.consmax import ONE, ConSmax
from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.pipeline import follow, register, stages
from softermax.rtl.rivals.parts.interface import WHOLE, Hardware, Kept
from softermax.rtl.rivals.parts.payloads import INT8, check_lanes, output_layout, scores_layout
from softermax.rtl.vectors import Streams, slice_fields

OUTPUT = unsigned(16)
FRACTION = 7
"""Bits after the point of a BF16 number."""


class Tables:
    """Both tables as fractions and exponents. An exponent counts from the table's lowest, so that few bits are added."""

    def __init__(self, design: ConSmax) -> None:
        products = np.asarray(design.products(np.arange(-128, 128)))
        if not ((products >> FRACTION > 0) & (products >> FRACTION < 255)).all():
            raise ValueError(
                f"{design.name}: scale = {design.scale}: must keep every product a normal number"
            )
        high, low = design.tables()
        # The upper nibble is signed: its index is what its bits say without a sign.
        self.high, self.low = np.roll(high, 8), low
        self.exponent = int(sum((words >> FRACTION).min() for words in (high, low))) - 127

    @staticmethod
    def look_up(words: IntArray, index: Value) -> tuple[Value, Value]:
        """The significand and the exponent of the entry."""
        fractions = words & ((1 << FRACTION) - 1)
        exponents = (words >> FRACTION) - (words >> FRACTION).min()
        bits = max(1, int(exponents.max()).bit_length())
        significand = Cat(Array(Const(int(word), FRACTION) for word in fractions)[index], Const(1, 1))
        return significand, Array(Const(int(word), bits) for word in exponents)[index]


class ConSmaxLanes(wiring.Component):
    """Slices of scores in, probabilities out.

    stage 1   both table entries; exponents added      | significands, exponent
    then      product, rounded to nearest, ties to even; from 1 on it is 1
    A masked lane stands still.
    """

    latency = 1

    def __init__(self, design: ConSmax, lanes: int) -> None:
        self.lanes = check_lanes(lanes)
        self._tables = Tables(design)
        super().__init__(
            {
                "slices": In(stream.Signature(scores_layout(INT8, lanes))),
                "probabilities": Out(stream.Signature(output_layout(OUTPUT, lanes))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        slices, out = self.slices, self.probabilities
        advance = Signal()
        valids, enables = stages(m, slices.valid, advance, self.latency, "stage")
        m.d.comb += [
            advance.eq(~out.valid | out.ready),
            slices.ready.eq(advance),
            out.valid.eq(valids[-1]),
            out.p.last.eq(follow(m, slices.p.last, enables, "last")[-1]),
        ]
        live = register(m, slices.p.mask, enables[0], "live")
        for lane in range(self.lanes):
            word = self._lane(m, lane, enables[0] & slices.p.mask[lane])
            m.d.comb += out.p.y[lane].eq(Mux(live[lane], word, 0))
        return m

    def _lane(self, m: Module, lane: int, enable: Value) -> Value:
        x, tables = self.slices.p.x[lane], self._tables
        # Stage 1.
        high, high_exponent = tables.look_up(tables.high, x[4:])
        low, low_exponent = tables.look_up(tables.low, x[:4])
        a = Cat(register(m, high[:FRACTION], enable, f"high_{lane}"), Const(1, 1))
        b = Cat(register(m, low[:FRACTION], enable, f"low_{lane}"), Const(1, 1))
        exponent = register(m, high_exponent + low_exponent, enable, f"exponent_{lane}")

        # After it.
        product = Signal(2 * FRACTION + 2, name=f"product_{lane}")
        rows = [(a & bit.replicate(len(a)), place) for place, bit in enumerate(b)]
        m.d.comb += product.eq(sum_of(m, rows, 0, len(product), f"product_{lane}_rows"))
        carry = product[-1]
        fraction = Mux(carry, product[FRACTION + 1 : -1], product[FRACTION:-2])
        half = Mux(carry, product[FRACTION], product[FRACTION - 1])
        below = product[: FRACTION - 1].any() | (carry & product[FRACTION - 1])
        up = half & (below | fraction[0])
        word = Signal(OUTPUT.width, name=f"word_{lane}")
        # A fraction that overflows is the next exponent.
        m.d.comb += word.eq(
            Cat(fraction, exponent) + Cat(up, Const(0, FRACTION - 1), carry) + (tables.exponent << FRACTION)
        )
        # Known before the sum: what rounds up to 1 is 1 by itself.
        one = (ONE >> FRACTION) - tables.exponent
        return Mux((exponent >= one) | (carry & (exponent == one - 1)), ONE, word)


class ConSmaxHardware(Hardware):
    name = "consmax"
    units = (WHOLE,)

    def make(self, unit: str, design: ConSmax, lanes: int) -> Any:
        return ConSmaxLanes(design, lanes)

    def streams(self, design: ConSmax, lanes: int, raw: IntArray, mask: BoolArray) -> dict[str, Streams]:
        probabilities = self.probabilities(design, lanes, raw, mask)
        return {WHOLE: {"slices": slice_fields(lanes, raw, mask), "probabilities": probabilities}}

    def waiting(self, design: ConSmax) -> tuple[Kept, ...]:
        return ()


HARDWARE = ConSmaxHardware()
