"""Power of Two (A3): 2^(x - max) of every lane as an unnormed word."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
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
    shifter with a rounder. Distance and table are mapped one by one, which makes fewer glitches than both together.
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
        self.distance = _Distance(spec, lanes)
        self.table = _Table(spec, lanes)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.distance, m.submodules.table = distance, table = self.distance, self.table
        for lane in range(len(self.mask)):
            score = register(m, self.x[lane], self.enable_2, f"score_{lane}")
            takes_part = register(m, self.mask[lane], self.enable_2, f"takes_part_{lane}")
            m.d.comb += [
                distance.x[lane].eq(score),
                distance.takes_part[lane].eq(takes_part),
                table.x[lane].eq(score),
            ]
        # In a register of its own, for all lanes hang on it; the complement, or synthesis would merge it with IntMax's.
        complement = register(m, ~self.running_max, self.enable_2, "max_complement")
        m.d.comb += [
            distance.running_max.eq(~complement),
            table.k.eq(distance.k),
            table.live.eq(distance.live),
            self.unnormed.eq(table.unnormed),
        ]
        return m


def _nonzero(spec: SoftermaxSpec) -> list[list[int]]:
    """The words of all f for k = 0, 1, ..., as long as one of them is not zero."""
    powers = pow2_table(spec)(np.arange(1 << spec.input.fraction))
    words: list[list[int]] = []
    while len(words) < 1 << spec.max.integer:
        row = shifted_word(powers, len(words), spec.unnormed_rounding)
        if not row.any():
            break
        words.append(row.tolist())
    return words


def _k_layout(spec: SoftermaxSpec, lanes: int) -> data.ArrayLayout:
    return data.ArrayLayout(unsigned((len(_nonzero(spec)) - 1).bit_length()), lanes)


class _Distance(wiring.Component):
    """The lower bits of every lane's k, and whether the lane takes part and the upper ones are zero: their words alone
    are not. For the latter no difference is needed, but whether the upper bits are the max's or, with a borrow, one less."""

    def __init__(self, spec: SoftermaxSpec, lanes: int) -> None:
        self._spec = spec
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "takes_part": In(lanes),
                "running_max": In(unsigned(spec.max.integer)),
                "k": Out(_k_layout(spec, lanes)),
                "live": Out(lanes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        fraction, bits = self._spec.input.fraction, self._spec.max.integer
        for lane in range(len(self.live)):
            low = len(self.k[lane])
            integer = Signal(bits, name=f"integer_{lane}")
            difference = Signal(low + 1, name=f"difference_{lane}")
            upper, borrow = self.running_max[low:], difference[low]
            near = Mux(borrow, integer[low:] == (upper - 1)[: bits - low], integer[low:] == upper)
            m.d.comb += [
                integer.eq(flip_sign(self.x[lane] >> fraction, bits)),
                difference.eq(self.running_max[:low] - integer[:low]),
                self.k[lane].eq(difference),
                self.live[lane].eq(self.takes_part[lane] & near if low < bits else self.takes_part[lane]),
            ]
        return m


class _Table(wiring.Component):
    """The unnormed words of f and k."""

    def __init__(self, spec: SoftermaxSpec, lanes: int) -> None:
        self._spec = spec
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "k": In(_k_layout(spec, lanes)),
                "live": In(lanes),
                "unnormed": Out(lanes_of(spec.unnormed, lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec = self._spec
        small = spec.input.fraction + len(self.k[0]) <= _TABLE_BITS
        for lane in range(len(self.live)):
            f, k, live = self.x[lane][: spec.input.fraction], self.k[lane], self.live[lane]
            if small:
                word: Value = self._entry(m, f, k, live, lane)
            else:
                power = lookup(m, pow2_table(spec), f, f"lpw_{lane}")
                word = Mux(live, shift_right(power, k, spec.unnormed_rounding), 0)
            m.d.comb += self.unnormed[lane].eq(word)
        return m

    def _entry(self, m: Module, f: Value, k: Value, live: Value, lane: int) -> Value:
        """Each k has a wire of its own; a bit of the word is one of those k, and of those f, that set it."""
        words = _nonzero(self._spec)
        low = min(2, len(k))
        lower = Signal(1 << low, name=f"lower_{lane}")
        upper = Signal(((len(words) - 1) >> low) + 1, name=f"upper_{lane}")
        is_k = Signal(len(words), name=f"is_k_{lane}")
        m.d.comb += [lower[i].eq(k[:low] == i) for i in range(len(lower))]
        m.d.comb += [upper[i].eq((k[low:] == i) & live) for i in range(len(upper))]
        m.d.comb += [is_k[i].eq(lower[i % (1 << low)] & upper[i >> low]) for i in range(len(words))]
        bits = []
        for bit in range(unnormed_bits(self._spec)):
            terms = []
            for i, of_k in enumerate(words):
                column = [word >> bit & 1 for word in of_k]
                if all(column):
                    terms.append(is_k[i])
                elif any(column):
                    terms.append(is_k[i] & Array(Const(entry, 1) for entry in column)[f])
            bits.append(Cat(terms).any())
        return Cat(bits)
