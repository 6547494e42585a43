"""Bounded proofs of the units: no stream loses, doubles or reorders a transfer under any back-pressure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from proofs import DEFERRED, FAILED, TINY, InOrder, NormalizationFlow, prove

from softermax.rtl import yosys
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.unnormed_softmax import UnnormedSoftmax

pytestmark = pytest.mark.timeout(3000)


class UnnormedFlow(wiring.Component):
    """Slices and finished rows of the Unnormed Softmax unit, told apart by their row ids."""

    def __init__(self) -> None:
        self.dut = UnnormedSoftmax(TINY, rows=4)
        super().__init__(
            {
                "slices": In(stream.Signature(self.dut.slices.payload.shape())),
                "ready_u": In(1),
                "ready_d": In(1),
                "watch": In(4),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        wiring.connect(m, wiring.flipped(self.slices), dut.slices)
        drain = UnnormedSoftmax.sum_latency + 1
        m.submodules.unnormed = unnormed = InOrder(3, drain)
        m.submodules.sums = sums = InOrder(2, drain)
        into = self.slices.valid & self.slices.ready
        m.d.comb += [
            dut.unnormed.ready.eq(self.ready_u),
            dut.sums.ready.eq(self.ready_d),
            unnormed.into.eq(into),
            unnormed.tag_in.eq(Cat(self.slices.p.row, self.slices.p.last)),
            unnormed.out.eq(dut.unnormed.valid & dut.unnormed.ready),
            unnormed.tag_out.eq(Cat(dut.unnormed.p.row, dut.unnormed.p.last)),
            sums.into.eq(into & self.slices.p.last),
            sums.tag_in.eq(self.slices.p.row),
            sums.out.eq(dut.sums.valid & dut.sums.ready),
            sums.tag_out.eq(dut.sums.p.row),
            self.ok.eq(unnormed.ok & sums.ok),
        ]
        for order in (unnormed, sums):
            m.d.comb += [order.watch.eq(self.watch), order.open.eq(self.ready_u & self.ready_d)]
        return m


@pytest.mark.parametrize("steps", [10, pytest.param(16, marks=pytest.mark.slow)])
def test_unnormed_softmax_loses_doubles_and_reorders_nothing(tmp_path: Path, steps: int) -> None:
    prove(UnnormedFlow(), tmp_path, steps)


def normalization() -> NormalizationFlow:
    return NormalizationFlow(Normalization(TINY, lanes=1, rows=4))


def test_normalization_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    prove(normalization(), tmp_path, steps=12)


class DeferredFlow(wiring.Component):
    """The attention tail: a row's last slice brings a value of 0 or 1, which makes its output zero or not."""

    def __init__(self) -> None:
        self.dut = DeferredTail(DEFERRED, columns=1, accumulator_bits=10)
        super().__init__(
            {"valid": In(1), "last": In(1), "token": In(1), "ready": In(1), "watch": In(4), "ok": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        m.submodules.order = order = InOrder(1, DeferredTail.latency)
        slices, outputs = dut.slices, dut.outputs
        m.d.comb += [
            slices.valid.eq(self.valid),
            slices.p.u[0].eq(1 << DEFERRED.scores.unnormed.fraction),
            slices.p.last.eq(self.last),
            slices.p.v[0][0].eq(self.last & self.token),
            outputs.ready.eq(self.ready),
            order.watch.eq(self.watch),
            order.into.eq(slices.valid & slices.ready & self.last),
            order.tag_in.eq(self.token),
            order.out.eq(outputs.valid & outputs.ready),
            order.tag_out.eq(outputs.p.o[0].any()),
            order.open.eq(self.ready),
            self.ok.eq(order.ok),
        ]
        return m


@pytest.mark.parametrize("steps", [11, pytest.param(15, marks=pytest.mark.slow)])
def test_deferred_tail_loses_doubles_and_reorders_nothing(tmp_path: Path, steps: int) -> None:
    prove(DeferredFlow(), tmp_path, steps)


@pytest.mark.parametrize(
    ("flow", "signal", "instead"),
    [
        pytest.param(
            UnnormedFlow, "dut.free_4", "1'1", id="unnormed softmax: a stage takes a slice too early"
        ),
        pytest.param(
            UnnormedFlow, "dut.into_4", "dut.valid_3", id="unnormed softmax: a slice goes on and stays"
        ),
        pytest.param(normalization, "dut.stage_3_free", "1'1", id="normalization: the sink is ignored"),
        pytest.param(normalization, "dut.into_row", "dut.sum_valid", id="normalization: a row is replaced"),
        pytest.param(DeferredFlow, "dut.free_4", "1'1", id="deferred: a row is overwritten"),
        pytest.param(DeferredFlow, "dut.into_6", "dut.valid_5", id="deferred: a row goes on and stays"),
    ],
)
def test_the_proof_notices(
    tmp_path: Path, flow: Callable[[], wiring.Component], signal: str, instead: str
) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(flow(), tmp_path, steps=12, broken=[(signal, instead)])
