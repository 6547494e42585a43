"""The buffer between the units: it holds slices until their row is finished, of unnormed words or, for row products
(A10), of scores."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from softermax.rtl.payloads import (
    finished_row_layout,
    integer_max,
    numerator_layout,
    row_id,
    scores_layout,
    slice_layout,
    sum_layout,
    unnormed_layout,
)
from softermax.rtl.sizes import MAX_DEPTH, MAX_ROWS, check_buildable, check_count
from softermax.spec import SoftermaxSpec


class SliceBuffer(wiring.Component):
    """Slices of interleaved rows in; finished rows and their slices out, row after row.

    With row products the slices are those of the top's own input, and what is known of a row when it ends, max and
    PowSum, comes by ``ended``; otherwise ``unnormed`` brings words and max, ``sums`` the PowSum.

    Every row id has a ring of ``depth`` slices (rounded up to a power of two) of its own, so rows
    cannot take room from each other: all that is asked of the source is that no row has more than
    ``depth`` slices. A full ring holds the input up. It empties without any help of the input once
    its row is finished, whose PowSum comes by a stream of its own: nothing can lock up.
    """

    latency = 1
    """Cycles from a row's PowSum to the finished row at the output; its first slice comes two cycles later."""

    def __init__(self, spec: SoftermaxSpec, rows: int, depth: int) -> None:
        self.spec = spec
        self.rows = check_count("rows", rows, MAX_ROWS)
        self.depth = 1 << ceil_log2(check_count("depth", depth, MAX_DEPTH))
        self._position_bits = ceil_log2(self.depth) + 1
        self.lanes = check_buildable(spec)
        if spec.normalization == "row-products":
            into = {"scores": slice_layout(spec, rows), "ended": finished_row_layout(spec, rows)}
            out, self._kept = scores_layout(spec, self.lanes), ("x", "mask")
        else:
            into = {"unnormed": unnormed_layout(spec, rows), "sums": sum_layout(spec, rows)}
            out, self._kept = numerator_layout(spec, self.lanes), ("u", "max")
        super().__init__(
            {
                **{name: In(stream.Signature(layout)) for name, layout in into.items()},
                "finished": Out(stream.Signature(finished_row_layout(spec, rows))),
                "slices": Out(stream.Signature(out)),
            }
        )
        self._arriving, self._ends = (getattr(self, name) for name in into)
        """The streams of slices and of what belongs to a row."""

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        spec, bits = self.spec, self._position_bits
        into = self._arriving.p.shape()
        slot = data.StructLayout({name: into[name].shape for name in self._kept})
        m.submodules.slots = slots = Memory(shape=slot, depth=self.rows * self.depth, init=[])
        write, read = slots.write_port(), slots.read_port()
        # A row's last slice leaves a note of its end in the ring, and of its max if it knows that; the row's PowSum
        # follows some cycles later.
        row_max = {"max": integer_max(spec)} if "max" in self._kept else {}
        note = data.StructLayout({**row_max, "end": bits, **row_id(self.rows)})
        m.submodules.notes = notes = fifo.SyncFIFO(width=note.size, depth=4)
        m.submodules.due = due = fifo.SyncFIFO(width=note.size, depth=4)
        # Positions in a ring have one bit more than its addresses: equal but for that bit means full.
        taken = Array(Signal(bits, name=f"taken_{row}") for row in range(self.rows))
        self._write(m, write, taken, notes, note)
        self._read(m, read, taken, due, note)
        self._meet(m, notes, due, note)
        return m

    def _write(
        self, m: Module, write: Any, taken: Array, notes: fifo.SyncFIFO, note: data.StructLayout
    ) -> None:
        """Slices go into their row's ring, unless it is full."""
        arriving, bits = self._arriving, self._position_bits
        written = Array(Signal(bits, name=f"written_{row}") for row in range(self.rows))
        noted = Signal(note)
        row_in = arriving.p.row if self.rows > 1 else 0
        position = Signal(bits)
        full = Signal()
        accept = Signal()
        m.d.comb += [
            position.eq(written[row_in]),
            full.eq((position ^ taken[row_in]) == self.depth),
            arriving.ready.eq(~full & (notes.w_rdy | ~arriving.p.last)),
            accept.eq(arriving.valid & arriving.ready),
            write.addr.eq(self._address(position, row_in)),
            *(write.data[name].eq(arriving.p[name]) for name in self._kept),
            write.en.eq(accept),
            *([noted.max.eq(arriving.p.max)] if "max" in self._kept else []),
            noted.end.eq(position + 1),
            notes.w_data.eq(noted),
            notes.w_en.eq(accept & arriving.p.last),
        ]
        if self.rows > 1:
            m.d.comb += noted.row.eq(row_in)
        with m.If(accept):
            m.d.sync += written[row_in].eq(position + 1)

    def _read(self, m: Module, read: Any, taken: Array, due: fifo.SyncFIFO, note: data.StructLayout) -> None:
        """One row at a time of those that are due, from where its ring was read last up to its end."""
        slices, bits = self.slices, self._position_bits
        reading = Signal()
        issue = Signal()
        issue_last = Signal()
        begin = Signal()
        end = Signal(bits, reset_less=True)
        next_row = note(due.r_data)
        row_out: Any = Signal.like(next_row.row, reset_less=True) if self.rows > 1 else 0
        next_out = Signal(bits)
        m.d.comb += [
            next_out.eq(taken[row_out]),
            issue.eq(reading & (~slices.valid | slices.ready)),
            issue_last.eq((next_out + 1)[:bits] == end),
            read.addr.eq(self._address(next_out, row_out)),
            read.en.eq(issue),
            *(slices.p[name].eq(read.data[name]) for name in self._kept),
            begin.eq(due.r_rdy & (~reading | (issue & issue_last))),
            due.r_en.eq(begin),
        ]
        last = Signal(reset_less=True)
        m.d.comb += slices.p.last.eq(last)
        with m.If(issue):
            m.d.sync += [taken[row_out].eq(next_out + 1), last.eq(issue_last)]
        with m.If(~slices.valid | slices.ready):
            m.d.sync += slices.valid.eq(issue)
        with m.If(begin):
            m.d.sync += end.eq(next_row.end)
            if self.rows > 1:
                m.d.sync += row_out.eq(next_row.row)
        with m.If(begin | (issue & issue_last)):
            m.d.sync += reading.eq(begin)

    def _meet(self, m: Module, notes: fifo.SyncFIFO, due: fifo.SyncFIFO, note: data.StructLayout) -> None:
        """A note and its PowSum: Normalization learns of the row ahead of its slices, which are due from now on."""
        sums, finished = self._ends, self.finished
        m.submodules.rows_out = rows_out = fifo.SyncFIFO(width=finished.p.shape().size, depth=4)
        ended = note(notes.r_data)
        row = Signal(finished.p.shape())
        met = Signal()
        m.d.comb += [
            sums.ready.eq(notes.r_rdy & rows_out.w_rdy & due.w_rdy),
            met.eq(sums.valid & sums.ready),
            notes.r_en.eq(met),
            row.max.eq(ended.max if "max" in self._kept else sums.p.max),
            row.powsum.eq(sums.p.powsum),
            rows_out.w_data.eq(row),
            rows_out.w_en.eq(met),
            due.w_data.eq(notes.r_data),
            due.w_en.eq(met),
            finished.p.eq(rows_out.r_data),
            finished.valid.eq(rows_out.r_rdy),
            rows_out.r_en.eq(finished.ready),
        ]
        if self.rows > 1:
            m.d.comb += row.row.eq(ended.row)

    def _address(self, position: Signal, row: Any) -> Any:
        within = position[:-1]
        return Cat(within, row) if self.rows > 1 else within
