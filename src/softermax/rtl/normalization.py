"""The Normalization unit (A5, A7): numerators times the reciprocal of their row's PowSum."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.multiplier import digits_layout, multiply, recode
from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.reciprocal import Reciprocal
from softermax.rtl.words import (
    MAX_LANES,
    MAX_ROWS,
    check_count,
    finished_row_layout,
    numerator_layout,
    output_layout,
    unnormed_bits,
)
from softermax.spec import SoftermaxSpec
from softermax.tables import pow2_table

_GROUP = 4
"""Lanes with registers of their own for what belongs to the row: it would have to reach too many gates at
once otherwise, and a group whose words all come out as zero, whatever the reciprocal, stands still."""


class Normalization(wiring.Component):
    """Finished rows and their slices in, probabilities out, one slice a cycle.

    ``finished`` brings max and PowSum of a row, ``slices`` then all slices of that row, the last one
    with ``last`` set; the next row may be brought while the last slice is taken. Rows come out in
    the order in which they came in. All lanes share the row's one reciprocal.

    A row with an element in it has a PowSum of at least 0.5 (A5). The unit relies on that: where
    PowSum is less, all of the row's words must be zero. No word may exceed what the table of 2^x holds.

    With ``skip_zeros`` every lane whose word comes out as zero under the row's PowSum stands still, which is
    most of them in long rows; the paper's unit works them all out.

    row, 1    leading one of PowSum                                       | position, mantissa
    row, 2    the reciprocal                                              | position, reciprocal
    stage 1   numerators, u >> (row's max - slice's max)                  | numerators, digits of the reciprocal
    stage 2   product (row-scaled: rounded)                               | its bits that count
    stage 3   shift by the leading one's position, rounded; saturated     | none
    """

    row_latency = 2
    """Cycles from a finished row until its first slice can be taken."""
    latency = 2
    """Cycles from a slice to its probabilities."""
    cycles_per_slice = 1

    def __init__(self, spec: SoftermaxSpec, lanes: int, rows: int = 1, skip_zeros: bool = False) -> None:
        if skip_zeros and spec.output_mode == "row-scaled":
            raise ValueError(
                "skip_zeros = True: a row's sum decides which words are zero only if output_mode = 'fixed'"
            )
        self.spec = spec
        self.skip_zeros = skip_zeros
        self.lanes = check_count("lanes", lanes, MAX_LANES)
        self.rows = check_count("rows", rows, MAX_ROWS)
        super().__init__(
            {
                "finished": In(stream.Signature(finished_row_layout(spec, rows))),
                "slices": In(stream.Signature(numerator_layout(spec, lanes))),
                "probabilities": Out(stream.Signature(output_layout(spec, lanes, rows))),
            }
        )
        self.reciprocal = Reciprocal(spec)
        self._largest = int(pow2_table(spec)((1 << spec.input.fraction) - 1))
        # PowSum is at least 0.5: its leading one stands at Fd - 1 or above.
        dropped = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
        self._least_shift = dropped - (spec.output_mode != "row-scaled")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec = self.spec
        m.submodules.reciprocal = reciprocal = self.reciprocal
        finished, slices, out = self.finished, self.slices, self.probabilities

        sum_valid = Signal()
        row_valid = Signal()
        valid_2 = Signal()
        into_sum = Signal()
        into_row = Signal()
        into_2 = Signal()
        into_3 = Signal()
        stage_3_free = Signal()
        m.d.comb += [
            stage_3_free.eq(~out.valid | out.ready),
            into_3.eq(valid_2 & stage_3_free),
            slices.ready.eq(row_valid & (~valid_2 | stage_3_free)),
            into_2.eq(slices.valid & slices.ready),
            into_row.eq(sum_valid & (~row_valid | (into_2 & slices.p.last))),
            finished.ready.eq(~sum_valid | into_row),
            into_sum.eq(finished.valid & finished.ready),
        ]
        with m.If(finished.ready):
            m.d.sync += sum_valid.eq(finished.valid)
        with m.If(into_row | (into_2 & slices.p.last)):
            m.d.sync += row_valid.eq(into_row)
        with m.If(~valid_2 | stage_3_free):
            m.d.sync += valid_2.eq(into_2)
        with m.If(stage_3_free):
            m.d.sync += out.valid.eq(valid_2)

        # The row: its reciprocal is found while the row before it goes through.
        sum_max = Signal.like(finished.p.max, reset_less=True)
        row_max = Signal.like(finished.p.max, reset_less=True)
        m.d.comb += [
            reciprocal.powsum.eq(finished.p.powsum),
            reciprocal.enable_1.eq(into_sum),
            reciprocal.enable_2.eq(into_row),
        ]
        with m.If(into_sum):
            m.d.sync += sum_max.eq(finished.p.max)
        with m.If(into_row):
            m.d.sync += row_max.eq(sum_max)

        # Stage 1. What belongs to the row moves along with its slices, for the next row may follow.
        shift = Signal(unsigned(spec.max.integer))
        nothing_left = Signal()
        m.d.comb += [shift.eq(row_max - slices.p.max), nothing_left.eq(shift >= unnormed_bits(spec))]
        shift_bits = min(spec.max.integer, (unnormed_bits(spec) - 1).bit_length())
        recoded = recode(m, reciprocal.reciprocal, spec.reciprocal.fraction)
        beyond = Signal(unsigned(spec.powsum.integer.bit_length()))
        # The leading one's position is at least Fd - 1; what lies beyond is left to shift.
        m.d.comb += beyond.eq(reciprocal.leading_one - (spec.powsum.fraction - 1))
        last_2 = Signal(reset_less=True)
        last_3 = Signal.like(out.p.last, reset_less=True)
        with m.If(into_2):
            m.d.sync += last_2.eq(slices.p.last)
        with m.If(into_3):
            m.d.sync += last_3.eq(last_2)
        m.d.comb += out.p.last.eq(last_3)
        if spec.output_mode == "row-scaled":
            leading_one_2 = Signal.like(reciprocal.leading_one, reset_less=True)
            leading_one_3 = Signal.like(reciprocal.leading_one, reset_less=True)
            with m.If(into_2):
                m.d.sync += leading_one_2.eq(reciprocal.leading_one)
            with m.If(into_3):
                m.d.sync += leading_one_3.eq(leading_one_2)
            m.d.comb += out.p.exponent.eq(leading_one_3 - spec.powsum.fraction)
        if self.rows > 1:
            row: Value = finished.p.row
            for name, enable in (("sum", into_sum), ("row", into_row), ("2", into_2), ("3", into_3)):
                register = Signal.like(finished.p.row, reset_less=True, name=f"row_id_{name}")
                with m.If(enable):
                    m.d.sync += register.eq(row)
                row = register
            m.d.comb += out.p.row.eq(row)

        for group, start in enumerate(range(0, self.lanes, _GROUP)):
            lanes = range(start, min(start + _GROUP, self.lanes))
            u = [slices.p.u[lane][: unnormed_bits(spec)] for lane in lanes]
            n = [Signal(unnormed_bits(spec), name=f"n_{lane}") for lane in lanes]
            m.d.comb += [now.eq(value >> shift[:shift_bits]) for now, value in zip(n, u, strict=True)]
            # Which lanes move on: each for itself, or all if one does.
            moving = [self._not_zero(now, beyond) for now in n]
            moving = moving if self.skip_zeros else [Cat(moving).any()]
            live_1 = Signal(len(moving), name=f"live_1_{group}")
            live_2 = Signal(len(moving), reset_less=True, name=f"live_2_{group}")
            live_3 = Signal(len(moving), reset_less=True, name=f"live_3_{group}")
            m.d.comb += live_1.eq(Mux(nothing_left, 0, Cat(moving)))
            factor = Signal(digits_layout(spec.reciprocal.fraction), reset_less=True, name=f"factor_{group}")
            beyond_2 = Signal.like(beyond, reset_less=True, name=f"beyond_2_{group}")
            beyond_3 = Signal.like(beyond, reset_less=True, name=f"beyond_3_{group}")
            with m.If(into_2):
                m.d.sync += live_2.eq(live_1)
            with m.If(into_2 & live_1.any()):
                m.d.sync += [factor.eq(recoded), beyond_2.eq(beyond)]
            with m.If(into_3):
                m.d.sync += live_3.eq(live_2)
            with m.If(into_3 & live_2.any()):
                m.d.sync += beyond_3.eq(beyond_2)
            for position, lane in enumerate(lanes):
                live = position if self.skip_zeros else 0
                numerator = Signal(unnormed_bits(spec), reset_less=True, name=f"numerator_{lane}")
                with m.If(into_2 & live_1[live]):
                    m.d.sync += numerator.eq(n[position])
                y = self._output(m, lane, numerator, factor, beyond_3, into_3 & live_2[live])
                m.d.comb += out.p.y[lane].eq(Mux(live_3[live], y, 0))
        return m

    def _not_zero(self, numerator: Signal, beyond: Signal) -> Value:
        """Whether the word may come out as other than zero: times 1, the largest reciprocal, it has to reach
        half a unit, or a unit where that is truncated."""
        rounds = self.spec.output_rounding != "truncate"
        lowest = self._least_shift - self.spec.reciprocal.fraction - rounds
        if not self.skip_zeros:
            return numerator[max(lowest, 0) :].any()
        reaches = Cat(beyond <= bit - lowest for bit in range(len(numerator)))
        return (numerator & reaches).any()

    def _output(
        self, m: Module, lane: int, numerator: Signal, factor: data.View, beyond: Signal, enable: Value
    ) -> Value:
        """Stages 2 and 3 of a lane."""
        spec, bits = self.spec, self.spec.output.bits
        row_scaled, rounding, drop = spec.output_mode == "row-scaled", spec.output_rounding, self._least_shift
        half = None
        if row_scaled and rounding == "half-up" and drop:
            # The product is always rounded at the same bit: the half unit joins the rows that are added.
            rounding, half = "truncate", drop - 1
        fraction, largest = spec.reciprocal.fraction, self._largest
        product = multiply(m, numerator, factor, fraction, f"product_{lane}", half, largest)
        # What lies below the least shift only matters for rounding: one bit to round half up, all of them to even.
        below = {"truncate": 0, "half-up": min(1, drop), "half-even": drop}[rounding]
        counts: Value = product[drop - below :]
        if row_scaled and not below:
            # Too large is too large by any number of bits.
            counts = Cat(counts[:bits], counts[bits:].any())
        kept = Signal(len(counts), reset_less=True, name=f"product_kept_{lane}")
        with m.If(enable):
            m.d.sync += kept.eq(counts)
        if row_scaled:
            rounded = shift_right(kept, below, rounding)
        elif rounding == "half-up" and below:
            # The bit behind the point comes with the word: nothing else has to be kept for it.
            shifted = kept >> beyond
            rounded = shifted[1:] + shifted[0]
        else:
            rounded = shift_right(kept, beyond + below, rounding)
        return saturate(rounded, bits)
