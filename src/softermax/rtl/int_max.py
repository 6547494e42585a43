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
        keys = [self._key(lane) for lane in range(len(self.mask))]
        found = _largest(m, keys, list(self.mask))
        largest = Signal(len(found), reset_less=True)
        with m.If(self.enable_2):
            m.d.sync += largest.eq(found)

        # Stage 2.
        local_max = Signal(unsigned(bits))
        if _rounds_up(spec):
            up = largest[0] if bits > spec.input.integer else largest[0] & ~largest[1:].all()
            m.d.comb += local_max.eq(largest[1:] + up)
        else:
            m.d.comb += local_max.eq(largest)
        before = Signal(unsigned(bits))
        running = Signal(unsigned(bits))
        m.d.comb += [
            before.eq(Mux(self.first, 0, row_max.read)),
            # Compared before it is rounded, so that neither waits for the other.
            running.eq(Mux(largest > Cat(Const(0, len(largest) - bits), before), local_max, before)),
            row_max.write.eq(running),
            row_max.enable.eq(self.enable_3),
            self.running_max.eq(_flip_sign(running)),
            self.renorm_shift.eq(running - before),
        ]
        if self._rows == 1:
            # The row buffer itself is stage 3's register.
            m.d.comb += self.max_3.eq(_flip_sign(row_max.read))
            return m
        taken = Signal(unsigned(bits), reset_less=True)
        with m.If(self.enable_3):
            m.d.sync += taken.eq(running)
        m.d.comb += [row_max.row.eq(self.row), self.max_3.eq(_flip_sign(taken))]
        return m

    def _key(self, lane: int) -> Value:
        """What orders the scores: the integer part and, if it rounds up, whether there is a fraction."""
        spec, x = self._spec, self.x[lane]
        fraction = spec.input.fraction
        integer = _flip_sign(x >> fraction, spec.max.integer)
        return Cat(x[:fraction].any(), integer) if _rounds_up(spec) else integer


def _rounds_up(spec: SoftermaxSpec) -> bool:
    return spec.max_rounding == "ceil" and spec.input.fraction > 0


def _flip_sign(value: Value, bits: int | None = None) -> Value:
    """Between a signed integer and its distance from the smallest one of ``bits`` bits."""
    bits = bits or len(value)
    return (value ^ -(1 << (bits - 1)))[:bits]


def _largest(m: Module, keys: Sequence[Value], alive: Sequence[Value]) -> Value:
    """The largest key of those alive, 0 if none is.

    It is found digit by digit from the top, which is quicker than a tree of comparators and smaller:
    the digits of all lanes, as thermometers, are OR-ed together, and a lane whose digit lies below
    the largest drops out.
    """
    found: list[Value] = []
    top = len(keys[0])
    while top:
        bottom = max(top - (3 if top % 2 else 2), 0)
        digits = [key[bottom:top] for key in keys]
        steps = (1 << (top - bottom)) - 1
        levels = [
            Cat((digit > step) & lane_alive for step in range(steps))
            for digit, lane_alive in zip(digits, alive, strict=True)
        ]
        reached = Signal(steps, name=f"reached_{bottom}")
        m.d.comb += reached.eq(reduce(or_, levels))
        found = [*_digit(reached, top - bottom), *found]
        if bottom:
            survivors = []
            for lane, (digit, lane_alive) in enumerate(zip(digits, alive, strict=True)):
                survivor = Signal(name=f"alive_{bottom}_{lane}")
                surpassed = Cat(reached[step] & ~(digit > step) for step in range(steps))
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
