"""Power of Two (A3): 2^(x - max) of every lane as an unnormed word."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.piecewise import lookup
from softermax.rtl.arithmetic.rounding import shift_right
from softermax.rtl.payloads import integer_max, lanes_of, unnormed_bits
from softermax.spec import SoftermaxSpec
from softermax.tables import pow2_table


class PowerOfTwo(wiring.Component):
    """Stage 1 takes the scores in, stage 2 subtracts, stage 3 looks 2^f up and shifts it right by k.

    The max is an integer, so f is the score's own fraction and k a difference of integers. Of k only
    what the shifter needs goes on to stage 3, and whether anything is left to shift: less than half
    the bits of the unnormed word.
    """

    def __init__(self, spec: SoftermaxSpec, lanes: int) -> None:
        self._spec = spec
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "mask": In(lanes),
                "enable_2": In(1),  # a slice goes from stage 1 to stage 2
                "running_max": In(integer_max(spec)),  # of stage 2's slice
                "enable_3": In(1),
                "unnormed": Out(lanes_of(spec.unnormed, lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(len(self.mask)):
            m.d.comb += self.unnormed[lane].eq(self._lane(m, lane))
        return m

    def _lane(self, m: Module, lane: int) -> Signal:
        spec, x = self._spec, self.x[lane]
        fraction = spec.input.fraction
        # From this shift on nothing is left: rounding can still make a unit of a half.
        vanishes = unnormed_bits(spec) + (spec.unnormed_rounding != "truncate")

        # Stage 1.
        score = Signal.like(x, reset_less=True, name=f"score_{lane}")
        takes_part = Signal(reset_less=True, name=f"takes_part_{lane}")
        with m.If(self.enable_2):
            m.d.sync += [score.eq(x), takes_part.eq(self.mask[lane])]

        # Stage 2. The score never lies an integer above the max: k fits the max's bits, modulo.
        k = Signal(unsigned(spec.max.integer), name=f"k_{lane}")
        m.d.comb += k.eq(self.running_max - (score >> fraction))
        f = Signal(unsigned(fraction), reset_less=True, name=f"fraction_{lane}")
        shift = Signal(
            unsigned(min(len(k), (vanishes - 1).bit_length())), reset_less=True, name=f"shift_{lane}"
        )
        zero = Signal(reset_less=True, name=f"zero_{lane}")
        with m.If(self.enable_3):
            m.d.sync += [f.eq(score[:fraction]), shift.eq(k), zero.eq(~takes_part | (k >= vanishes))]

        # Stage 3.
        lpw = lookup(m, pow2_table(spec), f, f"lpw_{lane}")
        u = Signal(unsigned(unnormed_bits(spec)), name=f"u_{lane}")
        m.d.comb += u.eq(Mux(zero, 0, shift_right(lpw, shift, spec.unnormed_rounding)))
        return u
