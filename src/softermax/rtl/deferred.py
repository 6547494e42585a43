"""The attention tail with deferred normalisation (A8): P·V of unnormed weights, one division per row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.rounding import saturate, shift_right, shift_right_signed
from softermax.rtl.payloads import VALUE_BITS, attended_layout, unnormed_bits, weighted_layout
from softermax.rtl.pipeline import Elastic, follow, register
from softermax.rtl.reciprocal import Reciprocal
from softermax.rtl.sizes import check_buildable, check_count
from softermax.rtl.unit import Event, Unit
from softermax.spec import DeferredSpec

MAX_COLUMNS = 256


def weight_of(unnormed: Value, spec: DeferredSpec) -> Value:
    """A weight (A8) of an unnormed word: half up to its fraction, saturated."""
    dropped = spec.scores.unnormed.fraction - spec.weight.fraction
    return saturate(shift_right(unnormed, dropped, "half-up"), spec.weight.bits)


class DeferredTail(Unit):
    """Unnormed slices with their values in; for every row its outputs as integers, and an exponent.

    ``slices`` has the unnormed words and the running max as the Unnormed Softmax unit gives them, row
    after row, and the int8 values of the slice's lanes, ``columns`` of them each. When the max grows, the
    accumulators are shifted, rounding half up. ``outputs`` has accumulator times reciprocal, exact: an
    output element is that over ``2**exponent``. A row may have `longest_row` elements, 65793 by default.

    One slice per cycle, also of rows of a single slice.

    stage 1   weights: unnormed words, rounded and saturated          | weights, values, shift
    stage 2   sums of weights and of weights times values             | sums
    stage 3   added to the renormalised PowSum and accumulators       | row's state
    stage 4   of a finished row: leading one                          | mantissa, accumulators
    stage 5   reciprocal                                              | reciprocal, accumulators
    stage 6   products                                                | outputs
    """

    name = "deferred"
    module_name = "deferred_tail"
    options = ("accumulator_bits", "columns")
    latency = 6
    """Cycles from a row's last slice to its outputs."""

    spec: DeferredSpec

    def __init__(self, spec: DeferredSpec, columns: int = 64, accumulator_bits: int = 32) -> None:
        self.spec = spec
        self.columns = check_count("columns", columns, MAX_COLUMNS)
        self.accumulator_bits = check_count("accumulator_bits", accumulator_bits, 48)
        self.lanes = check_buildable(spec.scores)
        if self.lanes > self.longest_row:
            largest = spec.weight.high << (VALUE_BITS - 1)
            raise ValueError(
                f"accumulator_bits = {accumulator_bits}: a slice of {self.lanes} weights {spec.weight} times int8 values "
                f"needs at least {(self.lanes * largest - 1).bit_length() + 1}"
            )
        super().__init__(
            {
                "slices": In(stream.Signature(weighted_layout(spec.scores, columns))),
                "outputs": Out(stream.Signature(attended_layout(spec, columns, accumulator_bits))),
            }
        )
        self.reciprocal = Reciprocal(spec)

    @property
    def longest_row(self) -> int:
        """Elements of a row that the accumulators hold, whatever weights and values are."""
        return (1 << (self.accumulator_bits - 1)) // (self.spec.weight.high << (VALUE_BITS - 1))

    def parameters(self) -> dict[str, Any]:
        made = {
            "lanes": self.lanes,
            "columns of V": self.columns,
            "accumulator bits": self.accumulator_bits,
            "longest row (elements)": self.longest_row,
        }
        fields = self.spec.to_dict()
        return {
            **made,
            **fields.pop("scores"),
            **{f"deferred {name}": value for name, value in fields.items()},
        }

    def timing(self) -> list[Event]:
        return [
            Event("slices", (0, 1), "a row of two slices enters in cycles 0 and 1"),
            Event(
                "outputs",
                (1 + self.latency,),
                f"the row's outputs {self.latency} cycles after its last slice",
            ),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.reciprocal = self.reciprocal
        pipeline = Elastic(range(2, 7))
        into, into_outputs = pipeline.into, Signal()
        last = follow(m, self.slices.p.last, [into[2], into[3]], "last", 2)
        self._flow(m, pipeline, into_outputs, last[1])
        weights, values, shift, first = self._weights(m, into)
        weight_sum, dots = self._sums(m, into[3], weights, values)
        powsum, accumulators = self._row(m, into[4], shift, first, weight_sum, dots)
        self._outputs(m, into, into_outputs, powsum, accumulators)
        return m

    def _flow(self, m: Module, pipeline: Elastic, into_outputs: Signal, last_3: Signal) -> None:
        """From the row's state on, only finished rows move."""
        slices, outputs = self.slices, self.outputs
        out_free = Signal()
        m.d.comb += [
            out_free.eq(~outputs.valid | outputs.ready),
            into_outputs.eq(pipeline.valid[6] & out_free),
            slices.ready.eq(pipeline.free[2]),
        ]
        pipeline.connect(m, slices.valid, into_outputs, keeps={4: pipeline.into[4] & last_3})
        with m.If(out_free):
            m.d.sync += outputs.valid.eq(into_outputs)

    def _weights(self, m: Module, into: dict[int, Signal]) -> tuple[list[Signal], data.View, Signal, Signal]:
        """Stage 1: weights and values of stage 2; how far the max grew and whether the row begins, of stage 3."""
        spec, slices = self.spec, self.slices
        bits = unnormed_bits(spec.scores)
        weights = [
            Signal(unsigned(spec.weight.bits), reset_less=True, name=f"w_{i}") for i in range(self.lanes)
        ]
        with m.If(into[2]):
            for lane, w in enumerate(weights):
                m.d.sync += w.eq(weight_of(slices.p.u[lane][:bits], spec))
        values = register(m, slices.p.v, into[2], "values")
        before = register(m, slices.p.max, into[2], "before")
        grown = (slices.p.max - before)[: spec.scores.max.integer]
        shift = follow(m, grown, [into[2], into[3]], "shift", 2)[-1]
        starts = Signal(init=1)
        with m.If(into[2]):
            m.d.sync += starts.eq(slices.p.last)
        first = follow(m, starts, [into[2], into[3]], "first", 2)[-1]
        return weights, values, shift, first

    def _sums(
        self, m: Module, enable: Signal, weights: list[Signal], values: data.View
    ) -> tuple[Signal, list[Signal]]:
        """Stage 2: of the slice's weights, and of weights times values for each column."""
        weight_sum = Signal(unsigned((self.lanes * self.spec.weight.high).bit_length()), reset_less=True)
        dots = [
            Signal(signed(self.accumulator_bits), reset_less=True, name=f"dot_{c}")
            for c in range(self.columns)
        ]
        with m.If(enable):
            m.d.sync += weight_sum.eq(sum(weights))
            for column, dot in enumerate(dots):
                m.d.sync += dot.eq(sum(w * values[lane][column] for lane, w in enumerate(weights)))
        return weight_sum, dots

    def _row(
        self, m: Module, enable: Signal, shift: Signal, first: Signal, weight_sum: Signal, dots: list[Signal]
    ) -> tuple[Signal, list[Signal]]:
        """Stage 3: the row's PowSum and accumulators, renormalised and added to."""
        bits = self.spec.powsum.bits
        powsum = Signal(unsigned(bits), reset_less=True)
        accumulators = [Signal.like(dot, reset_less=True, name=f"a_{c}") for c, dot in enumerate(dots)]
        with m.If(enable):
            m.d.sync += powsum.eq(saturate(Mux(first, 0, powsum >> shift) + weight_sum, bits))
            for accumulator, dot in zip(accumulators, dots, strict=True):
                m.d.sync += accumulator.eq(Mux(first, 0, shift_right_signed(accumulator, shift)) + dot)
        return powsum, accumulators

    def _outputs(
        self,
        m: Module,
        into: dict[int, Signal],
        into_outputs: Signal,
        powsum: Signal,
        accumulators: list[Signal],
    ) -> None:
        """Stages 4 to 6 of a finished row. Its accumulators go along, for the next row needs its own."""
        reciprocal, outputs = self.reciprocal, self.outputs
        m.d.comb += [
            reciprocal.powsum.eq(powsum),
            reciprocal.enable_1.eq(into[5]),
            reciprocal.enable_2.eq(into[6]),
        ]
        finished = accumulators
        for stage in (5, 6):
            finished = [register(m, a, into[stage], f"finished_{stage}_{c}") for c, a in enumerate(finished)]
        exponent = Signal.like(outputs.p.exponent, reset_less=True)
        products = Signal.like(outputs.p.o, reset_less=True)
        with m.If(into_outputs):
            m.d.sync += exponent.eq(reciprocal.leading_one + self.spec.reciprocal.fraction)
            m.d.sync += [products[c].eq(a * reciprocal.reciprocal) for c, a in enumerate(finished)]
        m.d.comb += [outputs.p.exponent.eq(exponent), outputs.p.o.eq(products)]
