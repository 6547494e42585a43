"""Power of Two (A3): 2^(x - max) of every lane as an unnormed word."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import shift_right as shifted_word
from softermax.rtl.arithmetic.piecewise import lookup
from softermax.rtl.arithmetic.rounding import shift_right
from softermax.rtl.int_max import flip_sign
from softermax.rtl.payloads import integer_max, lanes_of, unnormed_bits
from softermax.rtl.pipeline import register
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


_TABLE_BITS = 7
"""Of k and f together; with more a shifter is the smaller one."""


class PowerTable(wiring.Component):
    """Power of Two in one stage, after the one that takes the scores in: a table of f and k.

    Short words are nothing from a small k on. So few bits decide on the word that a table of it is smaller than a
    shifter with a rounder.
    """

    def __init__(self, spec: SoftermaxSpec, lanes: int) -> None:
        self._spec = spec
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "mask": In(lanes),
                "enable_2": In(1),  # a slice goes from stage 1 to stage 2
                "running_max": In(
                    unsigned(spec.max.integer)
                ),  # of stage 2's slice, less the smallest integer
                "unnormed": Out(lanes_of(spec.unnormed, lanes)),
            }
        )
        self._powers = pow2_table(spec)(range(1 << spec.input.fraction))
        rounding, most = spec.unnormed_rounding, spec.max.integer
        vanishes = (not shifted_word(self._powers, 1 << bits, rounding).any() for bits in range(most))
        self._k_bits = next((bits for bits, nothing in enumerate(vanishes) if nothing), most)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        fraction, bits, k_bits = self._spec.input.fraction, self._spec.max.integer, self._k_bits
        for lane in range(len(self.mask)):
            score = register(m, self.x[lane], self.enable_2, f"score_{lane}")
            takes_part = register(m, self.mask[lane], self.enable_2, f"takes_part_{lane}")
            k = Signal(bits, name=f"k_{lane}")
            u = Signal(unnormed_bits(self._spec), name=f"u_{lane}")
            power = self._power(m, score[:fraction], k[:k_bits], f"lpw_{lane}")
            m.d.comb += [
                k.eq(self.running_max - flip_sign(score >> fraction, bits)),
                u.eq(Mux(takes_part & ~k[k_bits:].any(), power, 0)),
                self.unnormed[lane].eq(u),
            ]
        return m

    def _power(self, m: Module, f: Value, k: Value, name: str) -> Value:
        rounding = self._spec.unnormed_rounding
        if len(f) + len(k) > _TABLE_BITS:
            return shift_right(lookup(m, pow2_table(self._spec), f, name), k, rounding)
        words = [
            int(shifted_word(power, by, rounding)) for by in range(1 << len(k)) for power in self._powers
        ]
        return Array(Const(word, unnormed_bits(self._spec)) for word in words)[Cat(f, k)]
