"""The Normalization unit (A5, A7): numerators times the reciprocal of their row's PowSum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.multiplier import multiply, recode
from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.payloads import finished_row_layout, numerator_layout, output_layout, unnormed_bits
from softermax.rtl.pipeline import follow, register
from softermax.rtl.reciprocal import Reciprocal
from softermax.rtl.sizes import MAX_LANES, MAX_ROWS, check_buildable, check_count
from softermax.rtl.unit import Event, Unit
from softermax.spec import SoftermaxSpec
from softermax.tables import pow2_table

_GROUP = 4
"""Lanes with registers of their own for what belongs to the row: it would have to reach too many gates at
once otherwise, and a group whose words all come out as zero, whatever the reciprocal, stands still."""


@dataclass(frozen=True)
class _Flow:
    """The enables of the registers of the row, 1 and 2, and of the stages 2 and 3."""

    into_sum: Signal
    into_row: Signal
    into_2: Signal
    into_3: Signal


class Normalization(Unit):
    """Finished rows and their slices in, probabilities out, one slice per cycle.

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

    name = "normalization"
    module_name = "normalization"
    options = ("lanes", "rows")
    row_latency = 2
    """Cycles from a finished row until its first slice can be taken."""
    latency = 2
    """Cycles from a slice to its probabilities."""

    spec: SoftermaxSpec

    def __init__(
        self, spec: SoftermaxSpec, lanes: int | None = None, rows: int = 1, skip_zeros: bool = False
    ) -> None:
        """With as many lanes as a slice has, unless given."""
        if skip_zeros and spec.output_mode == "row-scaled":
            raise ValueError(
                "skip_zeros = True: a row's sum decides which words are zero only if output_mode = 'fixed'"
            )
        self.spec = spec
        self.skip_zeros = skip_zeros
        self.lanes = lanes = (
            check_buildable(spec) if lanes is None else check_count("lanes", lanes, MAX_LANES)
        )
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

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "rows": self.rows, **self.spec.to_dict()}

    def timing(self) -> list[Event]:
        start, out = self.row_latency, self.row_latency + self.latency
        return [
            Event("finished", (0,), "a finished row enters in cycle 0"),
            Event("slices", (start, start + 1), f"its slices can be taken {start} cycles later"),
            Event("probabilities", (out, out + 1), f"probabilities {self.latency} cycles after their slice"),
        ]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec = self.spec
        m.submodules.reciprocal = reciprocal = self.reciprocal
        flow = self._flow(m)

        # The row: its reciprocal is found while the row before it goes through.
        m.d.comb += [
            reciprocal.powsum.eq(self.finished.p.powsum),
            reciprocal.enable_1.eq(flow.into_sum),
            reciprocal.enable_2.eq(flow.into_row),
        ]
        sum_max = register(m, self.finished.p.max, flow.into_sum, "sum_max")
        row_max = register(m, sum_max, flow.into_row, "row_max")

        # Stage 1. What belongs to the row moves along with its slices, for the next row may follow.
        shift = Signal(unsigned(spec.max.integer))
        nothing_left = Signal()
        m.d.comb += [shift.eq(row_max - self.slices.p.max), nothing_left.eq(shift >= unnormed_bits(spec))]
        shift_bits = min(spec.max.integer, (unnormed_bits(spec) - 1).bit_length())
        recoded = recode(m, reciprocal.reciprocal, spec.reciprocal.fraction)
        beyond = Signal(unsigned(spec.powsum.integer.bit_length()))
        # The leading one's position is at least Fd - 1; what lies beyond is left to shift.
        m.d.comb += beyond.eq(reciprocal.leading_one - (spec.powsum.fraction - 1))
        self._marks(m, flow)
        for group, start in enumerate(range(0, self.lanes, _GROUP)):
            lanes = range(start, min(start + _GROUP, self.lanes))
            n = self._numerators(m, lanes, shift[:shift_bits])
            self._group(m, group, lanes, n, nothing_left, recoded, beyond, flow)
        return m

    def _flow(self, m: Module) -> _Flow:
        """When each stage takes something. A row stays until its last slice has left stage 1."""
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
        return _Flow(into_sum, into_row, into_2, into_3)

    def _marks(self, m: Module, flow: _Flow) -> None:
        """What goes along with the lanes to the output: the slice's ``last``, the row's exponent and id."""
        out, enables = self.probabilities, [flow.into_2, flow.into_3]
        m.d.comb += out.p.last.eq(follow(m, self.slices.p.last, enables, "last", 2)[-1])
        if self.spec.output_mode == "row-scaled":
            leading_one = follow(m, self.reciprocal.leading_one, enables, "leading_one", 2)[-1]
            m.d.comb += out.p.exponent.eq(leading_one - self.spec.powsum.fraction)
        if self.rows > 1:
            from_row = [flow.into_sum, flow.into_row, *enables]
            m.d.comb += out.p.row.eq(follow(m, self.finished.p.row, from_row, "row_id")[-1])

    def _numerators(self, m: Module, lanes: range, shift: Value) -> list[Signal]:
        """Unnormed words of a group of lanes, shifted on from the slice's max to the row's."""
        bits = unnormed_bits(self.spec)
        n = [Signal(bits, name=f"n_{lane}") for lane in lanes]
        m.d.comb += [
            now.eq(self.slices.p.u[lane][:bits] >> shift) for now, lane in zip(n, lanes, strict=True)
        ]
        return n

    def _group(
        self,
        m: Module,
        group: int,
        lanes: range,
        n: list[Signal],
        nothing_left: Signal,
        recoded: data.View,
        beyond: Signal,
        flow: _Flow,
    ) -> None:
        """Stages 1 to 3 of a group of lanes, with registers of its own for what belongs to the row."""
        into_2, into_3 = flow.into_2, flow.into_3
        # Which lanes move on: each for itself, or all if one does.
        moving = [self._not_zero(now, beyond) for now in n]
        moving = moving if self.skip_zeros else [Cat(moving).any()]
        live_1 = Signal(len(moving), name=f"live_1_{group}")
        m.d.comb += live_1.eq(Mux(nothing_left, 0, Cat(moving)))
        live_2 = register(m, live_1, into_2, f"live_2_{group}")
        factor = Signal.like(recoded, reset_less=True, name=f"factor_{group}")
        beyond_2 = Signal.like(beyond, reset_less=True, name=f"beyond_2_{group}")
        with m.If(into_2 & live_1.any()):
            m.d.sync += [factor.eq(recoded), beyond_2.eq(beyond)]
        live_3 = register(m, live_2, into_3, f"live_3_{group}")
        beyond_3 = register(m, beyond_2, into_3 & live_2.any(), f"beyond_3_{group}")
        for position, lane in enumerate(lanes):
            live = position if self.skip_zeros else 0
            numerator = register(m, n[position], into_2 & live_1[live], f"numerator_{lane}")
            y = self._output(m, lane, numerator, factor, beyond_3, into_3 & live_2[live])
            m.d.comb += self.probabilities.p.y[lane].eq(Mux(live_3[live], y, 0))

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
            # The bit after the point comes with the word: nothing else has to be kept for it.
            shifted = kept >> beyond
            rounded = shifted[1:] + shifted[0]
        else:
            rounded = shift_right(kept, beyond + below, rounding)
        return saturate(rounded, bits)
