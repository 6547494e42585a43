"""The attention tail with deferred normalisation (A8): P·V of unnormed weights, one division a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.reciprocal import Reciprocal
from softermax.rtl.words import check_buildable, check_count, integer_max, lanes_of, unnormed_bits
from softermax.spec import DeferredSpec

MAX_COLUMNS = 256
VALUE_BITS = 8


class DeferredTail(wiring.Component):
    """Unnormed slices with their values in; for every row its outputs as integers, and an exponent.

    ``slices`` has the unnormed words and the running max as the Unnormed Softmax unit gives them, row
    after row, and the int8 values of the slice's lanes, ``columns`` of them each. When the max grows, the
    accumulators are shifted, rounding half up. ``outputs`` has accumulator times reciprocal, exact: an
    output element is that over ``2**exponent``. A row may have `longest_row` elements, 65793 by default.

    One slice a cycle, also of rows of a single slice.

    stage 1   weights: unnormed words, rounded and saturated          | weights, values, shift
    stage 2   sums of weights and of weights times values             | sums
    stage 3   added to the renormalised PowSum and accumulators       | row's state
    stage 4   of a finished row: leading one                          | mantissa, accumulators
    stage 5   reciprocal                                              | reciprocal, accumulators
    stage 6   products                                                | outputs
    """

    latency = 6
    """Cycles from a row's last slice to its outputs."""
    cycles_per_slice = 1

    def __init__(self, spec: DeferredSpec, columns: int, accumulator_bits: int = 32) -> None:
        self.spec = spec
        self.columns = check_count("columns", columns, MAX_COLUMNS)
        self.accumulator_bits = check_count("accumulator_bits", accumulator_bits, 48)
        self.lanes = check_buildable(spec.scores)
        largest = spec.weight.high << (VALUE_BITS - 1)
        self.longest_row = (1 << (accumulator_bits - 1)) // largest
        """Elements of a row that the accumulators hold, whatever weights and values are."""
        if self.lanes > self.longest_row:
            raise ValueError(
                f"accumulator_bits = {accumulator_bits}: a slice of {self.lanes} weights {spec.weight} times int8 values "
                f"needs at least {(self.lanes * largest - 1).bit_length() + 1}"
            )
        row_of_values = data.ArrayLayout(signed(VALUE_BITS), columns)
        self._product_bits = accumulator_bits + spec.reciprocal.fraction + 2
        exponent = spec.reciprocal.fraction + spec.powsum.bits - 1
        super().__init__(
            {
                "slices": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "u": lanes_of(spec.scores.unnormed, self.lanes),
                                "max": integer_max(spec.scores),
                                "last": 1,
                                "v": data.ArrayLayout(row_of_values, self.lanes),
                            }
                        )
                    )
                ),
                "outputs": Out(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "o": data.ArrayLayout(signed(self._product_bits), columns),
                                "exponent": unsigned(exponent.bit_length()),
                            }
                        )
                    )
                ),
            }
        )
        self.reciprocal = Reciprocal(spec)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, scores = self.spec, self.spec.scores
        m.submodules.reciprocal = reciprocal = self.reciprocal
        slices, outputs = self.slices, self.outputs
        # Each stage takes what is in front of it when it is empty or passes its own on; from the row's state on, only
        # finished rows move.
        valid = {stage: Signal(name=f"valid_{stage}") for stage in range(2, 7)} | {7: outputs.valid}
        into = {stage: Signal(name=f"into_{stage}") for stage in range(2, 8)}
        last_2, last_3 = Signal(reset_less=True), Signal(reset_less=True)
        passed_on = {stage: into[stage + 1] for stage in range(2, 7)} | {7: outputs.valid & outputs.ready}
        offered = {stage: valid[stage - 1] for stage in range(3, 8)} | {2: slices.valid}
        for stage, enable in into.items():
            free = Signal(name=f"free_{stage}")
            m.d.comb += [free.eq(~valid[stage] | passed_on[stage]), enable.eq(offered[stage] & free)]
            with m.If(free):
                m.d.sync += valid[stage].eq(enable & last_3 if stage == 4 else enable)
            if stage == 2:
                m.d.comb += slices.ready.eq(free)

        # Stage 1.
        first = Signal(init=1)
        before = Signal.like(slices.p.max, reset_less=True)
        shift_2 = Signal(unsigned(scores.max.integer), reset_less=True)
        first_2 = Signal(reset_less=True)
        weights = [
            Signal(unsigned(spec.weight.bits), reset_less=True, name=f"w_{i}") for i in range(self.lanes)
        ]
        values = Signal.like(slices.p.v, reset_less=True)
        dropped = scores.unnormed.fraction - spec.weight.fraction
        with m.If(into[2]):
            m.d.sync += [
                first.eq(slices.p.last),
                before.eq(slices.p.max),
                shift_2.eq(slices.p.max - before),
                first_2.eq(first),
                last_2.eq(slices.p.last),
                values.eq(slices.p.v),
            ]
            for lane, w in enumerate(weights):
                u = slices.p.u[lane][: unnormed_bits(scores)]
                m.d.sync += w.eq(saturate(shift_right(u, dropped, "half-up"), spec.weight.bits))

        # Stage 2.
        shift_3 = Signal.like(shift_2, reset_less=True)
        first_3 = Signal(reset_less=True)
        weight_sum = Signal(unsigned((self.lanes * spec.weight.high).bit_length()), reset_less=True)
        dots = [
            Signal(signed(self.accumulator_bits), reset_less=True, name=f"dot_{c}")
            for c in range(self.columns)
        ]
        with m.If(into[3]):
            m.d.sync += [
                shift_3.eq(shift_2),
                first_3.eq(first_2),
                last_3.eq(last_2),
                weight_sum.eq(sum(weights)),
            ]
            for column, dot in enumerate(dots):
                m.d.sync += dot.eq(sum(w * values[lane][column] for lane, w in enumerate(weights)))

        # Stage 3.
        powsum = Signal(unsigned(spec.powsum.bits), reset_less=True)
        accumulators = [Signal.like(dot, reset_less=True, name=f"a_{c}") for c, dot in enumerate(dots)]
        renormed = Mux(first_3, 0, powsum >> shift_3)
        with m.If(into[4]):
            m.d.sync += powsum.eq(saturate(renormed + weight_sum, spec.powsum.bits))
            for accumulator, dot in zip(accumulators, dots, strict=True):
                m.d.sync += accumulator.eq(Mux(first_3, 0, _halved_up(accumulator, shift_3)) + dot)

        # Stages 4 to 6: the accumulators go along, for the next row needs its own.
        m.d.comb += [
            reciprocal.powsum.eq(powsum),
            reciprocal.enable_1.eq(into[5]),
            reciprocal.enable_2.eq(into[6]),
        ]
        finished = accumulators
        for stage in (5, 6):
            copies = [
                Signal.like(a, reset_less=True, name=f"finished_{stage}_{c}")
                for c, a in enumerate(accumulators)
            ]
            with m.If(into[stage]):
                m.d.sync += [copy.eq(a) for copy, a in zip(copies, finished, strict=True)]
            finished = copies
        exponent = Signal.like(outputs.p.exponent, reset_less=True)
        products = Signal.like(outputs.p.o, reset_less=True)
        with m.If(into[7]):
            m.d.sync += exponent.eq(reciprocal.leading_one + spec.reciprocal.fraction)
            m.d.sync += [products[c].eq(a * reciprocal.reciprocal) for c, a in enumerate(finished)]
        m.d.comb += [outputs.p.exponent.eq(exponent), outputs.p.o.eq(products)]
        return m


def _halved_up(value: Value, by: Value) -> Value:
    """A signed value over ``2**by``, rounded half up: one bit behind the point survives the shift."""
    kept = Cat(Const(0, 1), value).as_signed() >> by
    return (kept + 1) >> 1
