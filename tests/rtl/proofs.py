"""Bounded proofs with Yosys' SAT engine: they hold for every input and every pattern of stalls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil
from softermax.rtl.softermax_top import Softermax
from softermax.spec import DeferredSpec, SoftermaxSpec

TINY = SoftermaxSpec(
    input="Q(2,1)", max="Q(2,0)", unnormed="Q(1,2)", powsum="Q(2,1)", reciprocal="Q(1,2)", output="Q(1,2)",
    slice_width=1, pow2_segments=2, reciprocal_segments=2,
)  # fmt: skip
"""The flow of slices does not depend on the words: narrow ones are proved sooner."""

MINIMAL = TINY.replace(
    input="Q(2,0)",
    unnormed="Q(1,1)",
    reciprocal="Q(1,1)",
    output="Q(1,1)",
    pow2_segments=1,
    reciprocal_segments=1,
)
"""Narrower still, for the top. Half of 1 is still not 0."""

DEFERRED = DeferredSpec(
    scores=MINIMAL, weight="Q(1,1)", powsum="Q(2,1)", reciprocal="Q(1,1)", reciprocal_segments=1
)

ROWS, DEPTH = 2, 2
"""Of the top: rows open at a time, and slices that a row may have."""

FAILED = "proof did fail|model found|FAIL"

Break = tuple[str, str]
"""A signal of the design, by its path, and what drives it instead."""


def prove(
    harness: wiring.Component,
    folder: Path,
    steps: int,
    broken: Sequence[Break] = (),
) -> None:
    """``ok`` is 1 in each of the first ``steps`` cycles from reset.

    A design that is ``broken`` shows what the proof is worth.
    """
    (folder / "harness.il").write_text(to_rtlil(harness, "harness"))
    yosys.run(
        [
            "read_rtlil harness.il",
            "hierarchy -top harness",
            "proc",
            "flatten",
            *(f"connect -set {signal} {instead}" for signal, instead in broken),
            "memory_map",
            "opt -full",
            f"sat -verify -tempinduct-baseonly -maxsteps {steps} -prove ok 1 -set rst 0 -set-def-inputs harness",
        ],
        folder,
        timeout=3000,
    )


def chosen(m: Module, value: Value) -> Value:
    """What a free input was in the first cycle: a free constant."""
    started, first = Signal(), Signal.like(value)
    now = Mux(started, first, value)
    m.d.sync += [started.eq(1), first.eq(now)]
    return now


class InOrder(wiring.Component):
    """Watches the n-th transfer of two streams, for any n: what comes out n-th is what went in n-th, never
    before it went in, and everything has come out when both sides stood open for ``drain`` cycles."""

    def __init__(self, tag_bits: int, drain: int, count_bits: int = 4) -> None:
        self._drain = drain
        self._count_bits = count_bits
        super().__init__(
            {
                "watch": In(count_bits),
                "into": In(1),
                "tag_in": In(tag_bits),
                "out": In(1),
                "tag_out": In(tag_bits),
                "open": In(1),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        watch = chosen(m, self.watch)
        count_in, count_out = (Signal(self._count_bits, name=n) for n in ("count_in", "count_out"))
        tag, quiet = Signal.like(self.tag_in), Signal(range(self._drain + 2))
        m.d.sync += [count_in.eq(count_in + self.into), count_out.eq(count_out + self.out)]
        with m.If(self.into & (count_in == watch)):
            m.d.sync += tag.eq(self.tag_in)
        with m.If(self.into | ~self.open):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet <= self._drain):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += self.ok.eq(
            (~self.out | (count_out < count_in))
            & (~(self.out & (count_out == watch)) | (self.tag_out == tag))
            & ((quiet <= self._drain) | (count_in == count_out))
        )
        return m


class InRows(wiring.Component):
    """Watches the n-th slice of interleaved rows, for any n, on its way to a stream of whole rows.

    When a row ends, the place of its slices in the output is known: rows leave in the order in which they end.
    There the watched slice must leave with its token. Nothing leaves before its row has ended, and if
    something is due and the sink has been open for ``patience`` cycles, something has left: so
    nothing is lost, doubled or reordered.
    """

    def __init__(self, rows: int, depth: int, token_bits: int, patience: int, count_bits: int = 5) -> None:
        self._rows, self._depth, self._patience, self._count_bits = rows, depth, patience, count_bits
        super().__init__(
            {
                "watch": In(count_bits),
                "into": In(1),
                "row": In(range(rows)),
                "last": In(1),
                "token_in": In(token_bits),
                "place": Out(range(depth)),  # of the next slice of that row
                "left": In(1),
                "token_out": In(token_bits),
                "open": In(1),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        watch = chosen(m, self.watch)
        places = Array(Signal(range(self._depth), name=f"place_{row}") for row in range(self._rows))
        place, ends = Signal(range(self._depth)), Signal()
        count_in, count_out, due = (
            Signal(self._count_bits, name=n) for n in ("count_in", "count_out", "due")
        )
        m.d.comb += [place.eq(places[self.row]), self.place.eq(place), ends.eq(self.into & self.last)]
        m.d.sync += [count_in.eq(count_in + self.into), count_out.eq(count_out + self.left)]
        with m.If(self.into):
            m.d.sync += places[self.row].eq(Mux(self.last, 0, place + 1))
        with m.If(ends):
            m.d.sync += due.eq(due + place + 1)

        # The watched slice, and its place in the output.
        token, its_place, its_row = (Signal.like(v) for v in (self.token_in, place, self.row))
        seen, known, where = Signal(), Signal(), Signal.like(due)
        now = self.into & (count_in == watch)
        with m.If(now):
            m.d.sync += [seen.eq(1), token.eq(self.token_in), its_place.eq(place), its_row.eq(self.row)]
        with m.If(ends & (now | (seen & ~known & (self.row == its_row)))):
            m.d.sync += [known.eq(1), where.eq(due + Mux(now, place, its_place))]

        waiting = Signal(range(self._patience + 1))
        with m.If(self.left | ~self.open | (count_out == due)):
            m.d.sync += waiting.eq(0)
        with m.Elif(waiting < self._patience):
            m.d.sync += waiting.eq(waiting + 1)
        m.d.comb += self.ok.eq(
            (~self.left | (count_out < due))
            & (~(self.left & known & (count_out == where)) | (self.token_out == token))
            & (waiting < self._patience)
        )
        return m


class Twins(wiring.Component):
    """Two units of a kind that get the same slices, but for one field of lanes that take no part: no bit of any
    output may tell them apart.

    ``takes_part`` says of a slice and a lane whether the lane does.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        outputs: Sequence[str],
        field: str,
        takes_part: Callable[[Any, int], Value | bool],
    ) -> None:
        self._outputs, self._field, self._takes_part = outputs, field, takes_part
        self.one, self.other = make(), make()
        slices = self.one.slices.p
        super().__init__(
            {
                "slices": In(slices.shape()),
                "valid": In(1),
                "instead": In(slices[field].shape()),
                "ready": In(len(outputs)),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.one, m.submodules.other = self.one, self.other
        seen = []
        for unit in (self.one, self.other):
            outputs = [getattr(unit, name) for name in self._outputs]
            m.d.comb += [
                unit.slices.p.eq(self.slices),
                unit.slices.valid.eq(self.valid),
                *(output.ready.eq(ready) for output, ready in zip(outputs, self.ready, strict=True)),
            ]
            seen.append(Cat(unit.slices.ready, *((output.valid, output.p.as_value()) for output in outputs)))
        field, others = self.slices[self._field], self.other.slices.p[self._field]
        for lane in range(len(field)):
            values = [Value.cast(lanes[lane]) for lanes in (field, self.instead)]
            m.d.comb += others[lane].eq(Mux(self._takes_part(self.slices, lane), *values))
        m.d.comb += self.ok.eq(seen[0] == seen[1])
        return m


class NormalizationFlow(wiring.Component):
    """Slices through a Normalization unit; finished rows are offered at any time."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        super().__init__(
            {
                "finished": In(stream.Signature(self.dut.finished.payload.shape())),
                "slices": In(stream.Signature(self.dut.slices.payload.shape())),
                "ready": In(1),
                "watch": In(4),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        wiring.connect(m, wiring.flipped(self.finished), dut.finished)
        wiring.connect(m, wiring.flipped(self.slices), dut.slices)
        m.submodules.slices_order = slices = InOrder(1, dut.latency + 1)
        m.submodules.rows_order = rows = InOrder(2, 16)
        out, p = dut.probabilities.valid & self.ready, dut.probabilities.p
        m.d.comb += [
            dut.probabilities.ready.eq(self.ready),
            slices.into.eq(self.slices.valid & self.slices.ready),
            slices.tag_in.eq(self.slices.p.last),
            slices.out.eq(out),
            slices.tag_out.eq(p.last),
            slices.open.eq(self.ready),
            # A row is out when its last slice is; with no slices it may wait for ever.
            rows.into.eq(self.finished.valid & self.finished.ready),
            rows.tag_in.eq(self.finished.p.row),
            rows.out.eq(out & p.last),
            rows.tag_out.eq(p.row),
            rows.open.eq(0),
            slices.watch.eq(self.watch),
            rows.watch.eq(self.watch),
            self.ok.eq(slices.ok & rows.ok),
        ]
        return m


class TopFlow(wiring.Component):
    """The source may send any slices of any open rows at any time, rows of up to `DEPTH` slices; the sink
    takes them when it likes.

    A slice's row id and ``last`` must leave with it. So must, where all scores are equal, its mask: a
    probability is zero just if its lane is masked, which makes the mask a token that goes through all of
    the arithmetic. Without tokens, scores are anything.
    """

    def __init__(self, spec: SoftermaxSpec, tokens: bool = True) -> None:
        self._tokens = tokens
        self.dut = Softermax(spec, ROWS, DEPTH)
        super().__init__(
            {
                "valid": In(1),
                "row": In(range(ROWS)),
                "last": In(1),
                "mask": In(1),
                "x": In(spec.input.bits),
                "ready": In(1),
                "watch": In(5),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.order = order = InRows(ROWS, DEPTH, 3, self.dut.latency)
        slices, out = dut.slices, dut.probabilities
        token = Const(1) if self._tokens else Const(0)
        m.d.comb += [
            slices.valid.eq(self.valid),
            slices.p.x[0].eq(Const(0) if self._tokens else self.x),
            slices.p.mask.eq(self.mask),
            slices.p.row.eq(self.row),
            slices.p.first.eq(order.place == 0),
            slices.p.last.eq(self.last | (order.place == DEPTH - 1)),
            out.ready.eq(self.ready),
            order.watch.eq(self.watch),
            order.into.eq(slices.valid & slices.ready),
            order.row.eq(self.row),
            order.last.eq(slices.p.last),
            order.token_in.eq(Cat(slices.p.row, slices.p.last, slices.p.mask & token)),
            order.left.eq(out.valid & out.ready),
            order.token_out.eq(Cat(out.p.row, out.p.last, out.p.y[0].any() & token)),
            order.open.eq(self.ready),
            self.ok.eq(order.ok),
        ]
        return m
