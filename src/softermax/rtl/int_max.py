"""IntMax (A2): the running integer max of a row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.payloads import integer_max, lanes_of, row_id
from softermax.rtl.pipeline import register
from softermax.rtl.row_buffer import RowBuffer
from softermax.rtl.sizes import check_buildable
from softermax.spec import SoftermaxSpec


class IntMax(wiring.Component):
    """Stage 1 finds the largest score of a slice; stage 2 rounds it up and compares it with the row's.

    Rounding to an integer keeps order, so the tree compares scores and only its result is rounded.
    All it needs of a score's fraction is whether there is one. Inside, an integer is kept as its
    distance from the smallest max, unsigned: masked lanes and new rows are zeros.
    """

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self._spec = spec
        self._rows = rows
        lanes = check_buildable(spec)
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "mask": In(lanes),
                "enable_2": In(1),  # a slice goes from stage 1 to stage 2
                **{name: In(field) for name, field in row_id(rows).items()},
                "first": In(1),  # of stage 2's slice, like the row and the two words below
                "running_max": Out(integer_max(spec)),
                "renorm_shift": Out(unsigned(spec.max.integer)),  # running max less the one before
                "enable_3": In(1),
                "max_3": Out(integer_max(spec)),  # the running max of stage 3's slice
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, bits = self._spec, self._spec.max.integer
        m.submodules.row_max = row_max = RowBuffer(unsigned(bits), self._rows)

        # Stage 1.
        keys = [score_key(spec, self.x[lane]) for lane in range(len(self.mask))]
        found = largest_key(m, keys, list(self.mask))
        largest = Signal(len(found), reset_less=True)
        with m.If(self.enable_2):
            m.d.sync += largest.eq(found)

        # Stage 2.
        local_max = Signal(unsigned(bits))
        m.d.comb += local_max.eq(rounded_up(spec, largest))
        before = Signal(unsigned(bits))
        running = Signal(unsigned(bits))
        m.d.comb += [
            before.eq(Mux(self.first, 0, row_max.read)),
            # Compared before it is rounded, so that neither waits for the other.
            running.eq(Mux(largest > Cat(Const(0, len(largest) - bits), before), local_max, before)),
            row_max.write.eq(running),
            row_max.enable.eq(self.enable_3),
            self.running_max.eq(flip_sign(running)),
            self.renorm_shift.eq(running - before),
        ]
        if self._rows == 1:
            # The row buffer itself is stage 3's register.
            m.d.comb += self.max_3.eq(flip_sign(row_max.read))
            return m
        taken = Signal(unsigned(bits), reset_less=True)
        with m.If(self.enable_3):
            m.d.sync += taken.eq(running)
        m.d.comb += [row_max.row.eq(self.row), self.max_3.eq(flip_sign(taken))]
        return m


class RunningMax(wiring.Component):
    """IntMax in one stage: the row's max so far is searched with the scores, as one lane more.

    Its integer has no fraction, so what is found is rounded up as a score is. Integers are unsigned, as inside `IntMax`.
    """

    def __init__(self, spec: SoftermaxSpec, rows: int = 1) -> None:
        self._spec = spec
        self._rows = rows
        lanes = check_buildable(spec)
        bits = unsigned(spec.max.integer)
        super().__init__(
            {
                "x": In(lanes_of(spec.input, lanes)),
                "mask": In(lanes),
                "first": In(1),
                **{name: In(field) for name, field in row_id(rows).items()},
                "enable_2": In(1),  # a slice goes from stage 1 to stage 2
                "found": Out(bits),  # the running max of stage 1's slice, less the smallest integer
                "running_max": Out(bits),  # of stage 2's slice
                "before": Out(bits),  # the row's without this slice; anything in a row's first slice
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, bits = self._spec, self._spec.max.integer
        m.submodules.row_max = row_max = RowBuffer(unsigned(bits), self._rows)
        keys = [score_key(spec, self.x[lane]) for lane in range(len(self.mask))]
        so_far = Cat(Const(0, len(keys[0]) - bits), row_max.read)
        found = Signal(len(so_far))
        running = Signal(bits)
        m.d.comb += [
            found.eq(largest_key(m, [*keys, so_far], [*self.mask, ~self.first], _small_digits(len(so_far)))),
            running.eq(rounded_up(spec, found)),
            self.found.eq(running),
            row_max.write.eq(running),
            row_max.enable.eq(self.enable_2),
            self.before.eq(register(m, row_max.read, self.enable_2, "max_before")),
        ]
        if self._rows == 1:
            # The row buffer itself is stage 2's register.
            m.d.comb += self.running_max.eq(row_max.read)
            return m
        m.d.comb += [
            row_max.row.eq(self.row),
            self.running_max.eq(register(m, running, self.enable_2, "taken")),
        ]
        return m


def _small_digits(bits: int) -> list[int]:
    """Digits of two bits; where one is left over, it comes second: the first one has nothing to wait for."""
    return [2, *[1] * (bits % 2), *[2] * (bits // 2 - 1)] if bits > 1 else [bits]


def score_key(spec: SoftermaxSpec, x: Value) -> Value:
    """What orders the scores: the integer part and, if it rounds up, whether there is a fraction."""
    fraction = spec.input.fraction
    integer = flip_sign(x >> fraction, spec.max.integer)
    return Cat(x[:fraction].any(), integer) if rounds_up(spec) else integer


def rounded_up(spec: SoftermaxSpec, key: Value) -> Value:
    """The integer max of a key."""
    if not rounds_up(spec):
        return key
    up = key[0] if spec.max.integer > spec.input.integer else key[0] & ~key[1:].all()
    return key[1:] + up


def rounds_up(spec: SoftermaxSpec) -> bool:
    return spec.max_rounding == "ceil" and spec.input.fraction > 0


def flip_sign(value: Value, bits: int | None = None) -> Value:
    """Between a signed integer and its distance from the smallest one of ``bits`` bits."""
    bits = bits or len(value)
    return (value ^ -(1 << (bits - 1)))[:bits]


def largest_key(
    m: Module, keys: Sequence[Value], alive: Sequence[Value], digits: Sequence[int] | None = None
) -> Value:
    """The largest key of those alive, 0 if none is.

    It is found digit by digit from the top, which is quicker than a tree of comparators and smaller:
    the digits of all lanes, as thermometers, are OR-ed together, and a lane whose digit lies below
    the largest drops out. ``digits`` are their bits, from the top: few bits are small, many are quick.
    """
    found: list[Value] = []
    top = len(keys[0])
    for bits in digits or [3] * (top % 2) + [2] * ((top - 3 * (top % 2)) // 2):
        bottom = top - bits
        parts = [key[bottom:top] for key in keys]
        steps = (1 << bits) - 1
        levels = [
            Cat((part > step) & lane_alive for step in range(steps))
            for part, lane_alive in zip(parts, alive, strict=True)
        ]
        reached = Signal(steps, name=f"reached_{bottom}")
        m.d.comb += reached.eq(reduce(or_, levels))
        found = [*_digit(reached, bits), *found]
        if bottom:
            survivors = []
            for lane, (part, lane_alive) in enumerate(zip(parts, alive, strict=True)):
                survivor = Signal(name=f"alive_{bottom}_{lane}")
                surpassed = Cat(reached[step] & ~(part > step) for step in range(steps))
                m.d.comb += survivor.eq(lane_alive & ~surpassed.any())
                survivors.append(survivor)
            alive = survivors
        top = bottom
    return Cat(found)


def _digit(reached: Signal, bits: int) -> list[Value]:
    """A thermometer as a binary number, lowest bit first."""
    positions = range(1, 1 << bits)
    return [
        Cat(
            reached[step - 1] & ~(reached[step] if step < len(reached) else Const(0, 1))
            for step in positions
            if step >> bit & 1
        ).any()
        for bit in range(bits)
    ]
