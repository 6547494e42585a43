"""Reduction (A4): the running PowSum of a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.carry_save import carry_save
from softermax.rtl.arithmetic.rounding import saturate, shift_right
from softermax.rtl.row_buffer import RowBuffer
from softermax.rtl.words import check_buildable, lanes_of, row_id, unnormed_bits, word
from softermax.spec import SoftermaxSpec

_STAGE_3_LEVELS = 3
"""Rows of full adders behind Power of Two. More would fit into the cycle, but what the shifters' glitches set
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
        largest = lanes * ((1 << unnormed_bits(spec)) - 1) >> (spec.unnormed.fraction - spec.powsum.fraction)
        self.slice_powsum = Signal(unsigned((largest + 1).bit_length()), reset_less=True)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, powsum_bits = self._spec, self._spec.powsum.bits
        m.submodules.row_sum = row_sum = RowBuffer(unsigned(powsum_bits), self._rows)

        # Stage 3.
        words: list[Value] = [self.unnormed[i][: unnormed_bits(spec)] for i in range(check_buildable(spec))]
        dropped = spec.unnormed.fraction - spec.powsum.fraction
        rounding, half = spec.powsum_rounding, 0
        if rounding == "half-up" and dropped:
            # The half unit joins the sum; what is left to do is truncate.
            rounding, half = "truncate", 1 << (dropped - 1)
        bits = (len(words) * ((1 << unnormed_bits(spec)) - 1) + half).bit_length()
        added = carry_save(m, [*words, Const(half, bits)], bits, "lanes", _STAGE_3_LEVELS)
        partial = [Signal(unsigned(bits), reset_less=True, name=f"partial_{i}") for i in range(len(added))]
        # A PowSum shifted by all its bits is gone, and so is the sum of the row before.
        shift_shape = unsigned(min(spec.max.integer, (powsum_bits - 1).bit_length()))
        shift_4 = Signal(shift_shape, reset_less=True)
        nothing_left_4 = Signal(reset_less=True)
        with m.If(self.enable_4):
            m.d.sync += [
                *(register.eq(value) for register, value in zip(partial, added, strict=True)),
                shift_4.eq(self.renorm_shift),
                nothing_left_4.eq(self.first | (self.renorm_shift >= powsum_bits)),
            ]

        # Stage 4.
        slice_sum = Signal(unsigned(bits))
        shift_5 = Signal(shift_shape, reset_less=True)
        nothing_left_5 = Signal(reset_less=True)
        m.d.comb += slice_sum.eq(sum(carry_save(m, partial, bits, "slice")))
        with m.If(self.enable_5):
            m.d.sync += [
                self.slice_powsum.eq(shift_right(slice_sum, dropped, rounding)),
                shift_5.eq(shift_4),
                nothing_left_5.eq(nothing_left_4),
            ]

        # Stage 5.
        renormed = Signal(unsigned(powsum_bits))
        m.d.comb += [
            renormed.eq(Mux(nothing_left_5, 0, row_sum.read >> shift_5)),
            row_sum.write.eq(saturate(renormed + self.slice_powsum, powsum_bits)),
            row_sum.enable.eq(self.enable_sum),
        ]
        if self._rows == 1:
            # The row buffer itself is the output register.
            m.d.comb += self.powsum.eq(row_sum.read)
            return m
        row_4 = Signal.like(self.row, reset_less=True)
        row_5 = Signal.like(self.row, reset_less=True)
        row_summed = Signal.like(self.row, reset_less=True, name="row_of_sum")
        powsum = Signal.like(self.powsum, reset_less=True, name="sum")
        with m.If(self.enable_4):
            m.d.sync += row_4.eq(self.row)
        with m.If(self.enable_5):
            m.d.sync += row_5.eq(row_4)
        with m.If(self.enable_sum):
            m.d.sync += [powsum.eq(row_sum.write), row_summed.eq(row_5)]
        m.d.comb += [row_sum.row.eq(row_5), self.powsum.eq(powsum), self.row_summed.eq(row_summed)]
        return m
