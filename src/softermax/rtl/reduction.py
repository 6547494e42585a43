"""Reduction (A4): the running PowSum of a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import Rounding
from softermax.rtl.arithmetic.carry_save import carry_save
from softermax.rtl.arithmetic.columns import addends, sum_of
from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.payloads import lanes_of, row_id, unnormed_bits, word
from softermax.rtl.pipeline import follow, register
from softermax.rtl.row_buffer import RowBuffer
from softermax.rtl.sizes import check_buildable
from softermax.spec import SoftermaxSpec

_STAGE_3_LEVELS = 3
"""Rows of full adders after Power of Two. More would fit into the cycle, but what the shifters' glitches set
off in them costs more energy than the registers of fewer do."""


class Reduction(wiring.Component):
    """Stage 3 begins to add the lanes up, in carry-save form; stage 4 lets the carries run and rounds;
    stage 5 renormalises the row's sum so far and adds.

    A new row needs no zeroed sum: its first slice shifts everything out. The loop through the row
    buffer closes within stage 5, so slices of one row may follow each other without a gap.
    """

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self._spec = spec
        self._rows = rows
        lanes = check_buildable(spec)
        super().__init__(
            {
                "unnormed": In(lanes_of(spec.unnormed, lanes)),
                "renorm_shift": In(unsigned(spec.max.integer)),
                "first": In(1),
                **{name: In(field) for name, field in row_id(rows).items()},
                "enable_4": In(1),  # a slice goes from stage 3 to stage 4
                "enable_5": In(1),
                "enable_sum": In(1),  # stage 5's slice is added to its row
                "powsum": Out(word(spec.powsum)),  # the running sum of the slice added last, and its row
                **{f"{name}_summed": Out(field) for name, field in row_id(rows).items()},
            }
        )
        self._dropped = spec.unnormed.fraction - spec.powsum.fraction
        largest = lanes * ((1 << unnormed_bits(spec)) - 1) >> self._dropped
        self.slice_powsum = Signal(unsigned((largest + 1).bit_length()), reset_less=True)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, powsum_bits = self._spec, self._spec.powsum.bits
        m.submodules.row_sum = row_sum = RowBuffer(unsigned(powsum_bits), self._rows)
        partial, rounding = self._stage_3(m)
        # Beside the lanes. A PowSum shifted by all its bits is gone, and so is the sum of the row before.
        to_5 = [self.enable_4, self.enable_5]
        shift_bits = min(spec.max.integer, (powsum_bits - 1).bit_length())
        shift = follow(m, self.renorm_shift[:shift_bits], to_5, "shift", 4)[-1]
        gone = self.first | (self.renorm_shift >= powsum_bits)
        nothing_left = follow(m, gone, to_5, "nothing_left", 4)[-1]
        self._stage_4(m, partial, rounding)

        # Stage 5.
        renormed = Signal(unsigned(powsum_bits))
        m.d.comb += [
            renormed.eq(Mux(nothing_left, 0, row_sum.read >> shift)),
            row_sum.write.eq(saturate(renormed + self.slice_powsum, powsum_bits)),
            row_sum.enable.eq(self.enable_sum),
        ]
        if self._rows == 1:
            # The row buffer itself is the output register.
            m.d.comb += self.powsum.eq(row_sum.read)
            return m
        row = follow(m, self.row, to_5, "row", 4)[-1]
        m.d.comb += [
            row_sum.row.eq(row),
            self.powsum.eq(register(m, row_sum.write, self.enable_sum, "sum")),
            self.row_summed.eq(register(m, row, self.enable_sum, "row_of_sum")),
        ]
        return m

    def _stage_3(self, m: Module) -> tuple[list[Signal], Rounding]:
        """The lanes in partial sums, and how their total is still to be rounded."""
        spec = self._spec
        words: list[Value] = [self.unnormed[i][: unnormed_bits(spec)] for i in range(check_buildable(spec))]
        rounding, half = spec.powsum_rounding, 0
        if rounding == "half-up" and self._dropped:
            # The half unit joins the sum; what is left to do is truncate.
            rounding, half = "truncate", 1 << (self._dropped - 1)
        bits = (len(words) * ((1 << unnormed_bits(spec)) - 1) + half).bit_length()
        added = carry_save(m, [*words, Const(half, bits)], bits, "lanes", _STAGE_3_LEVELS)
        partial = [Signal(unsigned(bits), reset_less=True, name=f"partial_{i}") for i in range(len(added))]
        with m.If(self.enable_4):
            m.d.sync += [held.eq(value) for held, value in zip(partial, added, strict=True)]
        return partial, rounding

    def _stage_4(self, m: Module, partial: list[Signal], rounding: Rounding) -> None:
        """The slice's sum, rounded."""
        slice_sum = Signal(len(partial[0]))
        m.d.comb += slice_sum.eq(sum(carry_save(m, partial, len(slice_sum), "slice")))
        with m.If(self.enable_5):
            m.d.sync += self.slice_powsum.eq(shift_right(slice_sum, self._dropped, rounding))


_STAGE_2_ROWS = 5
"""Rows of adders after Power of Two: for more of them stage 3 has the time, stage 2 has not."""


class RowReduction(wiring.Component):
    """Reduction in two stages: stage 2 adds the lanes up to a few words, in carry-save form; stage 3 adds these to the
    row's renormalised sum.

    To truncate a slice's sum and then add it is to add it and then truncate, for the row's sum has no bits that
    truncating would drop: one carry chain does both.
    """

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self._spec = spec
        self._rows = rows
        lanes = check_buildable(spec)
        super().__init__(
            {
                "unnormed": In(lanes_of(spec.unnormed, lanes)),
                "running_max": In(unsigned(spec.max.integer)),
                "before": In(unsigned(spec.max.integer)),
                "first": In(1),
                **{name: In(field) for name, field in row_id(rows).items()},
                "enable_3": In(1),  # a slice goes from stage 2 to stage 3
                "enable_sum": In(1),  # stage 3's slice is added to its row
                "powsum": Out(word(spec.powsum)),  # the running sum of the slice added last, and its row
                **{f"{name}_summed": Out(field) for name, field in row_id(rows).items()},
            }
        )
        self._dropped = spec.unnormed.fraction - spec.powsum.fraction

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, bits = self._spec, self._spec.powsum.bits
        m.submodules.row_sum = row_sum = RowBuffer(unsigned(bits), self._rows)

        # Stage 2.
        partial = [
            register(m, value, self.enable_3, f"partial_{i}") for i, value in enumerate(self._added(m))
        ]
        shift = Signal(unsigned(spec.max.integer))
        m.d.comb += shift.eq(self.running_max - self.before)
        shift_bits = min(len(shift), (bits - 1).bit_length())
        shift_3 = register(m, shift[:shift_bits], self.enable_3, "shift_3")
        # A PowSum shifted by all its bits is gone, and so is the sum of the row before.
        nothing_left = register(m, self.first | (shift >= bits), self.enable_3, "nothing_left")

        # Stage 3.
        renormed = Signal(unsigned(bits))
        m.d.comb += [
            renormed.eq(Mux(nothing_left, 0, row_sum.read >> shift_3)),
            row_sum.write.eq(saturate(self._sum(m, partial, renormed), bits)),
            row_sum.enable.eq(self.enable_sum),
        ]
        if self._rows == 1:
            m.d.comb += self.powsum.eq(row_sum.read)
            return m
        row = register(m, self.row, self.enable_3, "row_3")
        m.d.comb += [
            row_sum.row.eq(row),
            self.powsum.eq(register(m, row_sum.write, self.enable_sum, "sum")),
            self.row_summed.eq(register(m, row, self.enable_sum, "row_of_sum")),
        ]
        return m

    def _added(self, m: Module) -> list[Value]:
        """The lanes of a slice and the half unit of rounding, in a few words."""
        bits = unnormed_bits(self._spec)
        words = [(self.unnormed[i][:bits], 0) for i in range(check_buildable(self._spec))]
        half = (1 << self._dropped) // 2 if self._spec.powsum_rounding == "half-up" else 0
        most = len(words) * ((1 << bits) - 1) + half
        return addends(m, words, half, most.bit_length(), "slice", _STAGE_2_ROWS)

    def _sum(self, m: Module, partial: list[Signal], renormed: Signal) -> Value:
        """The row's sum with the slice's, before it saturates."""
        dropped = self._dropped
        if self._spec.powsum_rounding == "half-even" and dropped:
            return renormed + shift_right(sum(partial), dropped, "half-even")
        bits = max(len(partial[0]), len(renormed) + dropped) + 1
        return sum_of(m, [*((value, 0) for value in partial), (renormed, dropped)], 0, bits, "row")[dropped:]
