"""IntMax (A2): the running integer max of a row."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
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

        keys = [self._key(m, lane) for lane in range(len(self.mask))]
        largest = _largest(m, keys)
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
            running.eq(Mux(local_max > before, local_max, before)),
            row_max.write.eq(running),
            row_max.enable.eq(self.enable),
            self.running_max.eq(_flip_sign(running)),
            self.renorm_shift.eq(running - before),
        ]
        return m

    def _key(self, m: Module, lane: int) -> Signal:
        """What orders the scores: the integer part and, if it rounds up, whether there is a fraction."""
        spec, x = self._spec, self.x[lane]
        fraction = spec.input.fraction
        integer = Signal(unsigned(spec.max.integer), name=f"integer_{lane}")
        m.d.comb += integer.eq(_flip_sign(x >> fraction, spec.max.integer))
        parts = [x[:fraction].any(), integer] if _rounds_up(spec) else [integer]
        key = Signal(len(Cat(*parts)), name=f"key_{lane}")
        m.d.comb += key.eq(Mux(self.mask[lane], Cat(*parts), 0))
        return key


def _rounds_up(spec: SoftermaxSpec) -> bool:
    return spec.max_rounding == "ceil" and spec.input.fraction > 0


def _flip_sign(value: Value, bits: int | None = None) -> Value:
    """Between a signed integer and its distance from the smallest one of ``bits`` bits."""
    bits = bits or len(value)
    return (value ^ -(1 << (bits - 1)))[:bits]


def _largest(m: Module, keys: list[Signal]) -> Signal:
    level = 0
    while len(keys) > 1:
        above = []
        for pair, (a, b) in enumerate(zip(keys[::2], keys[1::2], strict=False)):
            larger = Signal.like(a, name=f"larger_{level}_{pair}")
            m.d.comb += larger.eq(Mux(a > b, a, b))
            above.append(larger)
        keys = above + keys[len(keys) // 2 * 2 :]
        level += 1
    return keys[0]
