"""Bounded proofs of the units of row products (A10), of their buffer and of their top."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from proofs import FAILED, MINIMAL, TINY, InOrder, InRows, Twins, prove

from softermax.rtl import yosys
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.reduction import RowReduction
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_sum import UnnormedSum
from softermax.spec import SoftermaxSpec

pytestmark = pytest.mark.timeout(3000)

NARROW = TINY.replace(normalization="row-products", product="Q(1,2)")
NARROWEST = MINIMAL.replace(normalization="row-products", product="Q(1,1)")
ROWS, DEPTH = 2, 2


class SumFlow(wiring.Component):
    """Finished rows of the sum-only unit, told apart by their row ids."""

    def __init__(self) -> None:
        self.dut = UnnormedSum(NARROW, rows=4)
        super().__init__(
            {
                "slices": In(stream.Signature(self.dut.slices.payload.shape())),
                "ready": In(1),
                "watch": In(4),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        wiring.connect(m, wiring.flipped(self.slices), dut.slices)
        m.submodules.order = order = InOrder(2, UnnormedSum.sum_latency + 1)
        m.d.comb += [
            dut.finished.ready.eq(self.ready),
            order.watch.eq(self.watch),
            order.into.eq(self.slices.valid & self.slices.ready & self.slices.p.last),
            order.tag_in.eq(self.slices.p.row),
            order.out.eq(dut.finished.valid & self.ready),
            order.tag_out.eq(dut.finished.p.row),
            order.open.eq(self.ready),
            self.ok.eq(order.ok),
        ]
        return m


class NormalizationFlow(wiring.Component):
    """Slices through Normalization; finished rows are offered at any time."""

    def __init__(self) -> None:
        self.dut = ProductNormalization(NARROW, lanes=1, rows=4)
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
        m.submodules.slices_order = slices = InOrder(1, ProductNormalization.latency + 1)
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
    """Slices of interleaved rows through the top, units and buffer together: their row ids, ``last`` and, all scores
    being equal, their masks must leave with them."""

    def __init__(self) -> None:
        self.dut = Softermax(NARROWEST, ROWS, DEPTH)
        super().__init__(
            {
                "valid": In(1),
                "row": In(range(ROWS)),
                "last": In(1),
                "mask": In(1),
                "ready": In(1),
                "watch": In(5),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.order = order = InRows(ROWS, DEPTH, 3, dut.latency)
        slices, out = dut.slices, dut.probabilities
        m.d.comb += [
            slices.valid.eq(self.valid),
            slices.p.mask.eq(self.mask),
            slices.p.row.eq(self.row),
            slices.p.first.eq(order.place == 0),
            slices.p.last.eq(self.last | (order.place == DEPTH - 1)),
            out.ready.eq(self.ready),
            order.watch.eq(self.watch),
            order.into.eq(slices.valid & slices.ready),
            order.row.eq(self.row),
            order.last.eq(slices.p.last),
            order.token_in.eq(Cat(slices.p.row, slices.p.last, slices.p.mask)),
            order.left.eq(out.valid & out.ready),
            order.token_out.eq(Cat(out.p.row, out.p.last, out.p.y[0].any())),
            order.open.eq(self.ready),
            self.ok.eq(order.ok),
        ]
        return m


@pytest.mark.parametrize(
    ("flow", "steps"),
    [
        pytest.param(SumFlow, 10, id="unnormed sum"),
        pytest.param(NormalizationFlow, 9, id="normalization"),
        pytest.param(TopFlow, 10, id="top"),
        pytest.param(TopFlow, 15, id="top, longer", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_doubled_or_reordered(
    tmp_path: Path, flow: type[wiring.Component], steps: int
) -> None:
    prove(flow(), tmp_path, steps)


@pytest.mark.parametrize(
    ("flow", "signal", "instead"),
    [
        pytest.param(SumFlow, "dut.free_3", "1'1", id="unnormed sum: a stage takes a slice too early"),
        pytest.param(SumFlow, "dut.into_3", "dut.valid_2", id="unnormed sum: a slice goes on and stays"),
        pytest.param(NormalizationFlow, "dut.stage_2_free", "1'1", id="normalization: the sink is ignored"),
        pytest.param(
            NormalizationFlow, "dut.into_row", "dut.sum_valid", id="normalization: a row is replaced"
        ),
        pytest.param(
            NormalizationFlow, "dut.of_row", "1'0", id="normalization: a row's words stay the last one's"
        ),
        pytest.param(TopFlow, "dut.slice_buffer.full", "1'0", id="top: a full ring takes slices"),
        pytest.param(
            TopFlow,
            "dut.slice_buffer.scores__valid",
            "dut.slices__valid",
            id="top: the buffer takes a slice alone",
        ),
    ],
)
def test_the_proof_notices(tmp_path: Path, flow: type[wiring.Component], signal: str, instead: str) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(flow(), tmp_path, steps=13, broken=[(signal, instead)])


def sums(ignore_mask: bool = False) -> Twins:
    return Twins(
        lambda: UnnormedSum(NARROW.replace(slice_width=2)),
        ["finished"],
        "x",
        lambda slices, lane: slices.mask[lane] & (not ignore_mask),
    )


def tops(ignore_mask: bool = False) -> Twins:
    return Twins(
        lambda: Softermax(NARROWEST.replace(slice_width=2), 1, DEPTH),
        ["probabilities"],
        "x",
        lambda slices, lane: slices.mask[lane] & (not ignore_mask),
    )


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        pytest.param(sums, 8, id="unnormed sum"),
        pytest.param(tops, 11, id="top", marks=pytest.mark.slow),
    ],
)
def test_masked_lane_never_influences_any_output_bit(tmp_path: Path, make: Any, steps: int) -> None:
    prove(make(), tmp_path, steps)
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(make(ignore_mask=True), tmp_path, steps)


class Saturates(wiring.Component):
    """The row's sum is the exact one, each slice's truncated with its half unit before it is added; or the largest word
    where that is larger."""

    def __init__(self, spec: SoftermaxSpec) -> None:
        self._spec = spec
        self.dut = RowReduction(spec)
        ports = ("unnormed", "running_max", "before", "first")
        super().__init__(
            {**{name: In(getattr(self.dut, name).shape()) for name in ports}, "enable": In(2), "ok": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        for name in ("unnormed", "running_max", "before", "first"):
            m.d.comb += getattr(dut, name).eq(getattr(self, name))
        m.d.comb += Cat(dut.enable_3, dut.enable_sum).eq(self.enable)
        spec, high = self._spec, self._spec.powsum.high
        dropped = spec.unnormed.fraction - spec.powsum.fraction
        added = sum(self.unnormed[lane] for lane in range(spec.slice_width or 0)) + (1 << dropped) // 2
        shift, first, slice_sum = Signal.like(self.before), Signal(), Signal(32)
        with m.If(dut.enable_3):
            m.d.sync += [
                shift.eq(self.running_max - self.before), first.eq(self.first), slice_sum.eq(added >> dropped),
            ]  # fmt: skip
        expected, summed, exact = Signal(spec.powsum.bits), Signal(), Signal(33)
        m.d.comb += exact.eq(Mux(first, 0, dut.powsum >> shift) + slice_sum)
        m.d.sync += summed.eq(dut.enable_sum)
        with m.If(dut.enable_sum):
            m.d.sync += expected.eq(Mux(exact > high, high, exact))
        m.d.comb += self.ok.eq(~summed | (dut.powsum == expected))
        return m


@pytest.mark.parametrize("powsum", ["Q(2,1)", "Q(2,2)"])
def test_powsum_is_exact_and_saturates_instead_of_wrapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, powsum: str
) -> None:
    spec = NARROW.replace(slice_width=2, powsum=powsum)
    prove(Saturates(spec), tmp_path, steps=7)
    monkeypatch.setattr("softermax.rtl.reduction.saturate", lambda value, bits: value[:bits])
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(Saturates(spec), tmp_path, steps=7)
