"""gemmlowp's reciprocal by three Newton steps, with one multiplier that all lanes and up to five rows share."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rivals.designs.cmsis_nn import HIGHEST
from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.row_factor import partial_products, recoded
from softermax.rtl.rivals.parts.two_pass import finished_layout

SEED, SLOPE = 1515870810, -1010580540
"""48/17 and -32/17 in Q2.29: the first approximation is a line."""
ONE = 1 << 29
PRODUCTS = 7
"""One for the line, then two for each step."""
TOTAL_BITS = 32


def reciprocal_layout() -> data.StructLayout:
    """1 over a normalised sum in Q0.31, and how far the sum was shifted to the left."""
    return data.StructLayout({"inverse": unsigned(31), "headroom": unsigned(5)})


class Reciprocal(wiring.Component):
    """Sums in, their reciprocals out, in order.

    A row's number goes round a ring of five stages, once for each of its `PRODUCTS`; every stage may hold another row. All
    products are of y, so that it alone is recoded: with half the normalised sum, then with what that leaves of 1.

    entry     the sum, below `HIGHEST`, shifted up to its leading one      | half of it, the shift
    stage 1   y in digits, partial products                                | product in two words
    stage 2   lower half added, rounded                                    | its carry; upper halves
    stage 3   upper half added                                             | upper half
    stage 4   the line's constant or y, the product once or four times     | what is added to what; x = 1 - product
    stage 5   y = the sum of both                                          | x, y
    """

    cycles = 5 * PRODUCTS + 2 + 4
    """From a sum to its reciprocal, at most: other rows in the ring may let it wait for four."""
    interval = PRODUCTS
    """Cycles between two sums, where many follow each other."""

    def __init__(self) -> None:
        super().__init__(
            {
                "finished": In(stream.Signature(finished_layout(TOTAL_BITS))),
                "reciprocals": Out(stream.Signature(reciprocal_layout())),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        out = self.reciprocals
        advance, room, done = Signal(), Signal(), Signal()
        m.d.comb += advance.eq(~(done & out.valid & ~out.ready))
        half, headroom, offered = self._enter(m, room & advance)

        # What a row has in each stage of the ring; it goes round as one word.
        row = data.StructLayout(
            {
                "half": unsigned(31),
                "headroom": 5,
                "y": Shape(32, True),
                "x": Shape(32, True),
                "left": range(PRODUCTS),
            }
        )
        slots = [Signal(row, reset_less=True, name=f"slot_{i}") for i in range(5)]
        valid = [Signal(name=f"slot_valid_{i}") for i in range(5)]
        first, *_, fourth, fifth = slots
        digits = recoded(m, first.y, "digits")
        addends = partial_products(m, first.x, digits, 64, "product", added=1 << 30)
        a, b = (register(m, word, advance & valid[0], f"addend_{i}") for i, word in enumerate(addends))
        carry = register(m, (a[:31] + b[:31])[31], advance & valid[1], "carry")
        a, b = (register(m, w[31:63], advance & valid[1], f"upper_{i}") for i, w in enumerate((a, b)))
        upper = register(m, (a + b + carry)[:32], advance & valid[2], "upper").as_signed()

        # After the line and after each step y is new, between them x.
        line = fourth.left == PRODUCTS - 1
        step = register(
            m,
            Mux(line, upper, Cat(Const(0, 2), upper[:-2]).as_signed()),
            advance & valid[3],
            "step",
        ).as_signed()
        y, new_y = Signal(Shape(32, True)), ~fifth.left[0]
        m.d.comb += [
            y.eq(fifth.y + step),
            done.eq(valid[4] & (fifth.left == 0)),
            room.eq(~valid[4] | done),
        ]
        with m.If(advance):
            m.d.sync += [valid[0].eq(Mux(room, offered, 1)), Cat(*valid[1:]).eq(Cat(*valid[:-1]))]
            for there, before, after in zip(valid, slots, slots[1:], strict=False):
                with m.If(there):
                    m.d.sync += after.eq(before)
            with m.If(valid[3]):
                m.d.sync += [fifth.y.eq(Mux(line, SEED, fourth.y)), fifth.x.eq(ONE - upper)]
            with m.If(room), m.If(offered):
                m.d.sync += [
                    first.half.eq(half),
                    first.headroom.eq(headroom),
                    first.y.eq(SLOPE),
                    first.x.eq(half),
                    first.left.eq(PRODUCTS - 1),
                ]
            with m.Else():
                m.d.sync += [
                    first.half.eq(fifth.half),
                    first.headroom.eq(fifth.headroom),
                    first.y.eq(Mux(new_y, y, fifth.y)),
                    first.x.eq(Mux(new_y, fifth.half, fifth.x)),
                    first.left.eq(fifth.left - 1),
                ]
        into_out = done & advance
        with m.If(into_out | out.ready):
            m.d.sync += out.valid.eq(into_out)
        found = register(m, y[:31], into_out, "found")
        m.d.comb += [
            # Twice y, which is 1 at most.
            out.p.inverse.eq(Mux(found[30], HIGHEST, Cat(Const(0, 1), found))),
            out.p.headroom.eq(register(m, fifth.headroom, into_out, "inverse_headroom")),
        ]
        return m

    def _enter(self, m: Module, taken: Value) -> tuple[Value, Value, Value]:
        """Half of a normalised sum, how far it was shifted, and whether there is one; ``taken`` when it goes into the ring."""
        into, offered, start = self.finished, Signal(), Signal()
        m.d.comb += [into.ready.eq(~offered | taken), start.eq(into.valid & into.ready)]
        with m.If(into.ready):
            m.d.sync += offered.eq(into.valid)
        total = Mux(into.p.total[31], HIGHEST, into.p.total)
        headroom: list[Value] = []
        for step in (16, 8, 4, 2, 1):
            empty, shifted = Signal(name=f"empty_{step}"), Signal(TOTAL_BITS, name=f"shifted_{step}")
            m.d.comb += [
                empty.eq(~total[TOTAL_BITS - step :].any()),
                shifted.eq(Mux(empty, total << step, total)),
            ]
            headroom.insert(0, empty)
            total = shifted
        return (
            register(m, total[1:], start, "half"),
            register(m, Cat(*headroom), start, "headroom"),
            offered,
        )
