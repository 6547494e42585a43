"""Bounded proofs of the units of row products (A10), of their buffer and of their top."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from proofs import DEPTH, FAILED, MINIMAL, TINY, InOrder, NormalizationFlow, TopFlow, Twins, prove

from softermax.rtl import yosys
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.reduction import RowReduction
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_sum import UnnormedSum
from softermax.spec import SoftermaxSpec

pytestmark = pytest.mark.timeout(3000)

NARROW = TINY.replace(normalization="row-products", product="Q(1,2)")
NARROWEST = MINIMAL.replace(normalization="row-products", product="Q(1,1)")


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


def normalization() -> NormalizationFlow:
    return NormalizationFlow(ProductNormalization(NARROW, lanes=1, rows=4))


def top() -> TopFlow:
    return TopFlow(NARROWEST)


@pytest.mark.parametrize(
    ("flow", "steps"),
    [
        pytest.param(SumFlow, 10, id="unnormed sum"),
        pytest.param(normalization, 9, id="normalization"),
        pytest.param(top, 10, id="top"),
        pytest.param(top, 15, id="top, longer", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_doubled_or_reordered(
    tmp_path: Path, flow: Callable[[], wiring.Component], steps: int
) -> None:
    prove(flow(), tmp_path, steps)


@pytest.mark.parametrize(
    ("flow", "signal", "instead"),
    [
        pytest.param(SumFlow, "dut.free_3", "1'1", id="unnormed sum: a stage takes a slice too early"),
        pytest.param(SumFlow, "dut.into_3", "dut.valid_2", id="unnormed sum: a slice goes on and stays"),
        pytest.param(normalization, "dut.stage_2_free", "1'1", id="normalization: the sink is ignored"),
        pytest.param(normalization, "dut.into_row", "dut.sum_valid", id="normalization: a row is replaced"),
        pytest.param(
            normalization, "dut.of_row", "1'0", id="normalization: a row's words stay the last one's"
        ),
        pytest.param(top, "dut.slice_buffer.full", "1'0", id="top: a full ring takes slices"),
        pytest.param(
            top,
            "dut.slice_buffer.scores__valid",
            "dut.slices__valid",
            id="top: the buffer takes a slice alone",
        ),
    ],
)
def test_the_proof_notices(
    tmp_path: Path, flow: Callable[[], wiring.Component], signal: str, instead: str
) -> None:
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
