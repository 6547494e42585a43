"""The largest half-precision score of a row: the baseline's first pass."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.payloads import row_id
from softermax.rtl.row_buffer import RowBuffer

LEVELS_PER_STAGE = 2
"""Comparisons in a row within a cycle."""


class Max(wiring.Component):
    """A tree of comparisons over the lanes of a slice and one more with the row so far.

    A half is sign and magnitude; with the sign flipped and the magnitude of negative ones inverted,
    numbers are ordered as unsigned integers, which is what the tree compares. A lane that is masked
    is the smallest of these. Infinities and NaNs are compared by their bits.

    ``maximum`` belongs to the slice that stands after the last register of the tree and to its row;
    ``before`` is what it was before that slice.
    """

    def __init__(self, lanes: int, rows: int = 1) -> None:
        self._lanes = lanes
        self._rows = rows
        self.stages = max(1, -(-ceil_log2(lanes) // LEVELS_PER_STAGE))
        """Registers between a slice and the comparison with its row."""
        super().__init__(
            {
                "x": In(data.ArrayLayout(unsigned(16), lanes)),
                "mask": In(lanes),
                "enable": In(self.stages),  # the registers of each stage take what is before them
                "first": In(1),  # of the slice after the tree
                **{name: In(field) for name, field in row_id(rows).items()},
                "enable_row": In(1),
                "maximum": Out(16),
                "before": Out(16),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        keys: list[Value] = []
        for lane in range(self._lanes):
            x = self.x[lane]
            key = Signal(16, name=f"key_{lane}")
            m.d.comb += key.eq(Mux(self.mask[lane], Cat(x[:15] ^ x[15].replicate(15), ~x[15]), 0))
            keys.append(key)
        for stage in range(self.stages):
            for level in range(LEVELS_PER_STAGE):
                keys = _larger_of_pairs(m, keys, f"larger_{stage}_{level}")
            registers = [Signal(16, reset_less=True, name=f"stage_{stage}_{i}") for i in range(len(keys))]
            with m.If(self.enable[stage]):
                m.d.sync += [register.eq(key) for register, key in zip(registers, keys, strict=True)]
            keys = list(registers)

        m.submodules.row_max = row_max = RowBuffer(unsigned(16), self._rows)
        if self._rows > 1:
            m.d.comb += row_max.row.eq(self.row)
        running = Signal(16)
        m.d.comb += [
            running.eq(Mux(self.first | (keys[0] > row_max.read), keys[0], row_max.read)),
            row_max.write.eq(running),
            row_max.enable.eq(self.enable_row),
            self.maximum.eq(_half_of(running)),
            self.before.eq(_half_of(row_max.read)),
        ]
        return m


def _half_of(key: Value) -> Value:
    return Cat(key[:15] ^ (~key[15]).replicate(15), ~key[15])


def _larger_of_pairs(m: Module, keys: list[Value], name: str) -> list[Value]:
    above: list[Value] = []
    for pair, (a, b) in enumerate(zip(keys[::2], keys[1::2], strict=False)):
        larger = Signal(16, name=f"{name}_{pair}")
        m.d.comb += larger.eq(Mux(a > b, a, b))
        above.append(larger)
    return above + keys[len(keys) // 2 * 2 :]
