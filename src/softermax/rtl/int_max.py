"""IntMax (A2): the running integer max of a row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.row_buffer import RowBuffer
from softermax.rtl.words import check_buildable, integer_max, lanes_of, row_id
from softermax.spec import SoftermaxSpec


class IntMax(wiring.Component):
    """The largest integer of a slice and of its row so far; combinational but for the row buffer.

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
                **{name: In(field) for name, field in row_id(rows).items()},
                "first": In(1),
                "enable": In(1),  # the slice is taken: remember its max
                "running_max": Out(integer_max(spec)),
                "renorm_shift": Out(unsigned(spec.max.integer)),  # running max less the one before
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, bits = self._spec, self._spec.max.integer
        m.submodules.row_max = row_max = RowBuffer(unsigned(bits), self._rows)
        if self._rows > 1:
            m.d.comb += row_max.row.eq(self.row)

        # The max so far takes part as one lane more, which a new row leaves out.
        keys = [self._key(lane) for lane in range(len(self.mask))]
        keys.append(Cat(Const(0, len(keys[0]) - bits), row_max.read))
        largest = _largest(m, keys, [*self.mask, ~self.first])
        running = Signal(unsigned(bits))
        if _rounds_up(spec):
            up = largest[0] if bits > spec.input.integer else largest[0] & ~largest[1:].all()
            m.d.comb += running.eq(largest[1:] + up)
        else:
            m.d.comb += running.eq(largest)

        before = Mux(self.first, 0, row_max.read)
        m.d.comb += [
            row_max.write.eq(running),
            row_max.enable.eq(self.enable),
            self.running_max.eq(_flip_sign(running)),
            self.renorm_shift.eq(running - before),
        ]
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
                behind = Cat(reached[step] & ~(digit > step) for step in range(steps))
                m.d.comb += survivor.eq(lane_alive & ~behind.any())
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
