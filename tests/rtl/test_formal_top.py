"""Bounded proofs of the top as a whole, and of the buffer between its units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from proofs import DEPTH, FAILED, MINIMAL, ROWS, TINY, InOrder, InRows, TopFlow, Twins, prove

from softermax.rtl import yosys
from softermax.rtl.slice_buffer import SliceBuffer
from softermax.rtl.softermax_top import Softermax

pytestmark = pytest.mark.timeout(3000)


@pytest.mark.parametrize(
    ("tokens", "steps"),
    [
        (True, 13),
        pytest.param(True, 16, marks=pytest.mark.slow),
        pytest.param(False, 16, marks=pytest.mark.slow),
    ],
)
def test_top_loses_doubles_and_reorders_nothing(tmp_path: Path, tokens: bool, steps: int) -> None:
    prove(TopFlow(MINIMAL, tokens), tmp_path, steps)


@pytest.mark.parametrize(
    ("signal", "instead", "steps"),
    [
        pytest.param("dut.slice_buffer.full", "1'0", 13, id="a full ring takes slices"),
        pytest.param("dut.normalization.stage_3_free", "1'1", 13, id="the last stage ignores the sink"),
        pytest.param(
            "dut.unnormed_softmax.free_3",
            "1'1",
            17,
            id="a stage takes a slice too early",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_proof_of_the_top_notices(tmp_path: Path, signal: str, instead: str, steps: int) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(TopFlow(MINIMAL), tmp_path, steps, broken=[(signal, instead)])


class BufferFlow(wiring.Component):
    """The slice buffer with rows interleaved in any way, their sums as late as they like and both sinks
    held up on their own; tokens are the words themselves."""

    def __init__(self) -> None:
        self.dut = SliceBuffer(TINY, ROWS, DEPTH)
        super().__init__(
            {
                "valid": In(1),
                "row": In(range(ROWS)),
                "last": In(1),
                "u": In(TINY.unnormed.bits),
                "sum_valid": In(1),
                "powsum": In(TINY.powsum.bits),
                "ready": In(2),
                "watch": In(5),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        bits = TINY.unnormed.bits + 1
        m.submodules.slices_order = slices = InRows(ROWS, DEPTH, bits, patience=5)
        m.submodules.rows_order = rows = InOrder(1, drain=10)
        m.submodules.sums_order = sums = InOrder(TINY.powsum.bits, drain=10)
        unnormed = dut.unnormed
        into = unnormed.valid & unnormed.ready
        # A row's sum comes after its last slice; nothing need leave while it or a sink is held up.
        unsummed, flowing = Signal(4), Signal()
        met, finished = dut.sums.valid & dut.sums.ready, dut.finished.valid & self.ready[1]
        m.d.sync += unsummed.eq(unsummed + (into & unnormed.p.last) - met)
        m.d.comb += [
            unnormed.valid.eq(self.valid),
            unnormed.p.u[0].eq(self.u),
            unnormed.p.row.eq(self.row),
            unnormed.p.last.eq(self.last | (slices.place == DEPTH - 1)),
            dut.sums.valid.eq(self.sum_valid & (unsummed != 0)),
            dut.sums.p.powsum.eq(self.powsum),
            Cat(dut.slices.ready, dut.finished.ready).eq(self.ready),
            slices.into.eq(into),
            slices.row.eq(self.row),
            slices.last.eq(unnormed.p.last),
            slices.token_in.eq(Cat(self.u, unnormed.p.last)),
            slices.left.eq(dut.slices.valid & self.ready[0]),
            slices.token_out.eq(Cat(dut.slices.p.u[0], dut.slices.p.last)),
            flowing.eq(self.ready.all() & (self.sum_valid | (unsummed == 0))),
            slices.open.eq(flowing),
            rows.into.eq(into & unnormed.p.last),
            rows.tag_in.eq(self.row),
            rows.out.eq(finished),
            rows.tag_out.eq(dut.finished.p.row),
            sums.into.eq(met),
            sums.tag_in.eq(self.powsum),
            sums.out.eq(finished),
            sums.tag_out.eq(dut.finished.p.powsum),
            self.ok.eq(slices.ok & rows.ok & sums.ok),
        ]
        for order in (rows, sums):
            m.d.comb += [order.watch.eq(self.watch), order.open.eq(flowing)]
        m.d.comb += slices.watch.eq(self.watch)
        return m


@pytest.mark.parametrize("steps", [9, pytest.param(11, marks=pytest.mark.slow)])
def test_slice_buffer_loses_doubles_and_reorders_nothing(tmp_path: Path, steps: int) -> None:
    prove(BufferFlow(), tmp_path, steps)


@pytest.mark.parametrize(
    ("signal", "instead"),
    [
        pytest.param("dut.full", "1'0", id="a full ring takes slices"),
        pytest.param("dut.notes.w_en", "1'0", id="the end of a row is lost"),
    ],
)
def test_the_proof_of_the_buffer_notices(tmp_path: Path, signal: str, instead: str) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(BufferFlow(), tmp_path, steps=11, broken=[(signal, instead)])


def twins(rows: int, ignore_mask: bool = False) -> Twins:
    """Tops that get other scores in masked lanes."""
    return Twins(
        lambda: Softermax(MINIMAL.replace(slice_width=2), rows, DEPTH),
        ["probabilities"],
        "x",
        lambda slices, lane: slices.mask[lane] & (not ignore_mask),
    )


@pytest.mark.parametrize("rows", [1, pytest.param(ROWS, marks=pytest.mark.slow)])
def test_masked_lane_never_influences_any_output_bit_of_the_top(tmp_path: Path, rows: int) -> None:
    prove(twins(rows), tmp_path, steps=12)


@pytest.mark.slow
def test_the_proof_of_the_top_notices_a_lane_that_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(twins(rows=1, ignore_mask=True), tmp_path, steps=12)
