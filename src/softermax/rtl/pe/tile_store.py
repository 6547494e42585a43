"""Where slices wait until their rows are finished: the part of the global buffer that a PE writes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.sizes import MAX_DEPTH, MAX_ROWS, check_count


def stored_layout(content: Any, rows: int) -> data.StructLayout:
    """A slice on its way in. ``ends_tile`` marks the last one of the tile's last row."""
    return data.StructLayout({"word": content, "row": unsigned(ceil_log2(rows)), "last": 1, "ends_tile": 1})


def replayed_layout(content: Any, rows: int) -> data.StructLayout:
    """A slice on its way out."""
    return data.StructLayout({"word": content, "row": unsigned(ceil_log2(rows)), "first": 1, "last": 1})


@dataclass(frozen=True)
class _Tiles:
    """What is known of the tile in each half of the store."""

    last_row: Array
    last_slice: Array
    full: list[Array]
    """For each reader."""


class TileStore(wiring.Component):
    """Slices come in group by group, a slice of each row; they go out row by row, to each reader.

    There is room for two tiles of ``rows`` rows of ``depth`` slices: while one comes in, the
    other is read. A tile's rows all have the same number of slices. ``accesses`` has a bit for
    each slice written or read in a cycle: writing first, then every reader.
    """

    def __init__(self, content: Any, rows: int, depth: int, readers: int = 1) -> None:
        self.rows = check_count("rows", rows, MAX_ROWS)
        self.depth = check_count("depth", depth, MAX_DEPTH)
        self.readers = readers
        self._content = content
        outputs = {
            f"read_{reader}": Out(stream.Signature(replayed_layout(content, rows)))
            for reader in range(readers)
        }
        super().__init__(
            {
                "write": In(stream.Signature(stored_layout(content, rows))),
                **outputs,
                "accesses": Out(1 + readers),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        depth = 2 * self.rows * self.depth
        m.submodules.slices = slices = Memory(shape=self._content, depth=depth, init=[])
        # Of each half: the last row and slice of its tile, and for which readers it is still full.
        tile = _Tiles(
            Array(
                Signal.like(self.write.p.row, reset_less=True, name=f"last_row_{half}") for half in range(2)
            ),
            Array(Signal(range(self.depth), reset_less=True, name=f"last_slice_{half}") for half in range(2)),
            [
                Array(Signal(name=f"full_{reader}_{half}") for half in range(2))
                for reader in range(self.readers)
            ],
        )
        writing = slices.write_port()
        readings = [slices.read_port() for _ in range(self.readers)]
        self._write(m, writing, tile)
        for reader, reading in enumerate(readings):
            self._read(m, reader, reading, tile)
        m.d.comb += self.accesses.eq(Cat(writing.en, *(reading.en for reading in readings)))
        return m

    def _write(self, m: Module, writing: Any, tile: _Tiles) -> None:
        """Slices into a half that every reader is done with."""
        write = self.write
        half = Signal()
        # A slice of row 0 begins the next group, unless it is the tile's first.
        fresh = Signal(init=1)
        before, at = Signal(range(self.depth)), Signal(range(self.depth))
        m.d.comb += [
            at.eq(Mux((write.p.row == 0) & ~fresh, before + 1, before)),
            write.ready.eq(~Cat(*(full[half] for full in tile.full)).any()),
            writing.en.eq(write.valid & write.ready),
            writing.addr.eq(self._address(half, at, write.p.row)),
            writing.data.eq(write.p.word),
        ]
        with m.If(writing.en):
            m.d.sync += [before.eq(at), fresh.eq(0)]
            with m.If(write.p.ends_tile):
                m.d.sync += [before.eq(0), fresh.eq(1), half.eq(~half)]
                m.d.sync += [tile.last_row[half].eq(write.p.row), tile.last_slice[half].eq(at)]
                m.d.sync += [full[half].eq(1) for full in tile.full]

    def _read(self, m: Module, reader: int, reading: Any, tile: _Tiles) -> None:
        """Slices of a full half, row by row."""
        out, full = getattr(self, f"read_{reader}"), tile.full[reader]
        from_half = Signal(name=f"from_half_{reader}")
        row = Signal.like(self.write.p.row, name=f"row_{reader}")
        place = Signal(range(self.depth), name=f"place_{reader}")
        issue, ends_row, ends = (Signal(name=f"{name}_{reader}") for name in ("issue", "ends_row", "ends"))
        m.d.comb += [
            issue.eq(full[from_half] & (~out.valid | out.ready)),
            ends_row.eq(place == tile.last_slice[from_half]),
            ends.eq(ends_row & (row == tile.last_row[from_half])),
            reading.en.eq(issue),
            reading.addr.eq(self._address(from_half, place, row)),
            out.p.word.eq(reading.data),
        ]
        with m.If(~out.valid | out.ready):
            m.d.sync += out.valid.eq(issue)
        with m.If(issue):
            m.d.sync += [out.p.row.eq(row), out.p.first.eq(place == 0), out.p.last.eq(ends_row)]
            m.d.sync += place.eq(place + 1)
            with m.If(ends_row):
                m.d.sync += [place.eq(0), row.eq(row + 1)]
            with m.If(ends):
                m.d.sync += [row.eq(0), from_half.eq(~from_half), full[from_half].eq(0)]

    def _address(self, half: Signal, place: Signal, row: Any) -> Any:
        return half * (self.rows * self.depth) + place * self.rows + row
