"""The Normalization unit of row products (A10): a lane picks one of its row's products and shifts it."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from softermax import golden
from softermax.fixedpoint import shift_right as shifted_word
from softermax.rtl.arithmetic.columns import sum_of
from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.payloads import finished_row_layout, output_layout, scores_layout
from softermax.rtl.pipeline import register
from softermax.rtl.reciprocal import Reciprocal
from softermax.rtl.sizes import MAX_LANES, MAX_ROWS, check_buildable, check_count
from softermax.rtl.unit import Event, Unit
from softermax.spec import SoftermaxSpec
from softermax.tables import pow2_table


class ProductNormalization(Unit):
    """Finished rows and the slices of their scores in, probabilities out, one slice per cycle.

    ``finished`` brings max and PowSum of a row, ``slices`` then all slices of that row, the last one
    with ``last`` set; the next row may be brought while the last slice is taken. Rows come out in
    the order in which they came in.

    A row with an element in it has a PowSum of at least 0.5, of at least 1 if the element's k is 0 (A10): no product is
    shifted by less than its fraction has more bits than the output's. After a few bits more nothing is left of it: such a
    lane keeps its shift and its f, so that nothing moves in it, and gives 0. In long rows that is most of them.

    row, 1    leading one of PowSum                                    | position, mantissa
    row, 2    the reciprocal                                           | position, reciprocal
    stage 1   shift of every lane: k and the leading one's position;   | shift and f of every lane,
              the row's products                                       | products
    stage 2   the product of f, shifted and rounded; saturated         | none
    """

    name = "normalization"
    module_name = "normalization"
    options = ("lanes", "rows")
    row_latency = 2
    """Cycles from a finished row until its first slice can be taken."""
    latency = 1
    """Cycles from a slice to its probabilities."""

    spec: SoftermaxSpec

    def __init__(self, spec: SoftermaxSpec, lanes: int | None = None, rows: int = 1) -> None:
        """With as many lanes as a slice has, unless given."""
        self.spec = spec
        self.lanes = lanes = (
            check_buildable(spec) if lanes is None else check_count("lanes", lanes, MAX_LANES)
        )
        self.rows = check_count("rows", rows, MAX_ROWS)
        super().__init__(
            {
                "finished": In(stream.Signature(finished_row_layout(spec, rows))),
                "slices": In(stream.Signature(scores_layout(spec, lanes))),
                "probabilities": Out(stream.Signature(output_layout(spec, lanes, rows))),
            }
        )
        self.reciprocal = Reciprocal(spec)
        below = spec.product.fraction - spec.output.fraction
        largest = golden.row_products(1 << spec.reciprocal.fraction, spec).max()
        self._words = _until_zero(largest, below, spec)
        """What the largest product becomes under each shift that leaves something of it."""

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "rows": self.rows, **self.spec.to_dict()}

    def timing(self) -> list[Event]:
        start, out = self.row_latency, self.row_latency + self.latency
        return [
            Event("finished", (0,), "a finished row enters in cycle 0"),
            Event("slices", (start, start + 1), f"its slices can be taken {start} cycles later"),
            Event("probabilities", (out, out + 1), f"probabilities {self.latency} cycle after their slice"),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, slices, out = self.spec, self.slices, self.probabilities
        m.submodules.reciprocal = reciprocal = self.reciprocal
        into_sum, into_row, into_2, of_row = self._flow(m)

        # The row: its reciprocal is found while the row before it goes through.
        m.d.comb += [
            reciprocal.powsum.eq(self.finished.p.powsum),
            reciprocal.enable_1.eq(into_sum),
            reciprocal.enable_2.eq(into_row),
        ]
        sum_max = register(m, self.finished.p.max, into_sum, "sum_max")
        row_max = register(m, sum_max, into_row, "row_max")

        # What a score's integer is subtracted from is the row's; modulo, for shifts of masked lanes are any.
        most = spec.max_high - (spec.input.low >> spec.input.fraction) + spec.powsum.integer
        base = Signal(most.bit_length())
        exponent = 0 if spec.output_mode == "row-scaled" else reciprocal.leading_one - spec.powsum.fraction
        m.d.comb += base.eq(row_max + exponent)
        products = Array(
            register(m, product, of_row, f"product_{f}") for f, product in enumerate(self._products(m))
        )
        for lane in range(self.lanes):
            self._lane(m, lane, base, products, into_2)

        m.d.comb += out.p.last.eq(register(m, slices.p.last, into_2, "last_2"))
        if spec.output_mode == "row-scaled":
            leading_one = register(m, reciprocal.leading_one, of_row, "leading_one_2")
            m.d.comb += out.p.exponent.eq(leading_one - spec.powsum.fraction)
        if self.rows > 1:
            row = register(m, self.finished.p.row, into_sum, "row_0")
            row = register(m, row, into_row, "row_1")
            m.d.comb += out.p.row.eq(register(m, row, of_row, "row_2"))
        return m

    def _flow(self, m: Module) -> tuple[Signal, Signal, Signal, Signal]:
        """The enables of the registers of the row, 1 and 2, of stage 2, and of what stage 2 keeps of a row. A row stays
        until its last slice has left stage 1."""
        finished, slices, out = self.finished, self.slices, self.probabilities
        sum_valid = Signal()
        row_valid = Signal()
        fresh = Signal()
        into_sum = Signal()
        into_row = Signal()
        into_2 = Signal()
        of_row = Signal()
        stage_2_free = Signal()
        m.d.comb += [
            stage_2_free.eq(~out.valid | out.ready),
            slices.ready.eq(row_valid & stage_2_free),
            into_2.eq(slices.valid & slices.ready),
            of_row.eq(into_2 & fresh),
            into_row.eq(sum_valid & (~row_valid | (into_2 & slices.p.last))),
            finished.ready.eq(~sum_valid | into_row),
            into_sum.eq(finished.valid & finished.ready),
        ]
        with m.If(finished.ready):
            m.d.sync += sum_valid.eq(finished.valid)
        with m.If(into_row | (into_2 & slices.p.last)):
            m.d.sync += row_valid.eq(into_row)
        with m.If(into_row | into_2):
            m.d.sync += fresh.eq(into_row)
        with m.If(stage_2_free):
            m.d.sync += out.valid.eq(into_2)
        return into_sum, into_row, into_2, of_row

    def _products(self, m: Module) -> list[Value]:
        """The reciprocal times each power of two, rounded half up: shifted copies of it are added up."""
        spec, reciprocal = self.spec, self.reciprocal.reciprocal
        dropped = spec.unnormed.fraction + spec.reciprocal.fraction - spec.product.fraction
        half = (1 << dropped) // 2
        products = []
        for f, power in enumerate(pow2_table(spec)(np.arange(1 << spec.input.fraction)).tolist()):
            bits = ((power << spec.reciprocal.fraction) + half).bit_length()
            copies = [(reciprocal, place) for place in range(power.bit_length()) if power >> place & 1]
            product = Signal(bits, name=f"times_{f}")
            m.d.comb += product.eq(sum_of(m, copies, half, bits, f"times_{f}_rows"))
            products.append(saturate(product[dropped:], spec.product.bits))
        return products

    def _lane(self, m: Module, lane: int, base: Signal, products: Array, into_2: Signal) -> None:
        spec, x = self.spec, self.slices.p.x[lane]
        # Stage 1.
        shift = Signal(len(base), name=f"shift_{lane}")
        live = Signal(name=f"live_{lane}")
        m.d.comb += [
            shift.eq(base - (x >> spec.input.fraction)),
            live.eq(self.slices.p.mask[lane] & (shift < len(self._words))),
        ]
        moves = into_2 & live
        live_2 = register(m, live, into_2, f"live_2_{lane}")
        shift_2 = register(m, shift[: (len(self._words) - 1).bit_length()], moves, f"shift_2_{lane}")
        f_2 = register(m, x[: spec.input.fraction], moves, f"f_2_{lane}")
        # Stage 2.
        m.d.comb += self.probabilities.p.y[lane].eq(Mux(live_2, self._word(products[f_2], shift_2), 0))

    def _word(self, product: Value, shift: Signal) -> Value:
        """A product shifted, rounded and saturated."""
        spec, rounding = self.spec, self.spec.output_rounding
        below = spec.product.fraction - spec.output.fraction
        if rounding == "half-up":
            # The bit after the point comes with the word.
            shifted = (product[below - 1 :] if below else Cat(Const(0, 1), product)) >> shift
            rounded = shifted[1:] + shifted[0]
        else:
            rounded = shift_right(product, shift + below, rounding)
        return saturate(rounded[: self._words[0].bit_length()], spec.output.bits)


def _until_zero(product: int, below: int, spec: SoftermaxSpec) -> list[int]:
    """A product shifted by ``below`` bits and 0, 1, ... more, rounded, as long as that is not zero."""
    words: list[int] = []
    while word := int(shifted_word(product, below + len(words), spec.output_rounding)):
        words.append(word)
    return words
