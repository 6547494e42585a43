"""Bounded proofs with Yosys' SAT engine: they hold for every input and every pattern of stalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil
from softermax.rtl.normalization import Normalization
from softermax.rtl.reduction import Reduction
from softermax.rtl.slice_buffer import SliceBuffer
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import PRESETS, SoftermaxSpec

TINY = SoftermaxSpec(
    input="Q(2,1)", max="Q(2,0)", unnormed="Q(1,2)", powsum="Q(2,1)", reciprocal="Q(1,2)", output="Q(1,2)",
    slice_width=1, pow2_segments=2, reciprocal_segments=2,
)  # fmt: skip
"""The flow of slices does not depend on the words: narrow ones are proved sooner."""

FAILED = "proof did fail|model found|FAIL"


def prove(harness: wiring.Component, folder: Path, steps: int, from_reset: bool = True) -> None:
    """``ok`` is 1 in each of the first ``steps`` cycles, from reset or from any state."""
    (folder / "harness.il").write_text(to_rtlil(harness, "harness"))
    init = [] if from_reset else ["attrmap -remove init"]
    yosys.run(
        [
            "read_rtlil harness.il",
            "hierarchy -top harness",
            "proc",
            "flatten",
            "memory_map",
            "opt -full",
            *init,
            f"sat -verify -tempinduct-baseonly -maxsteps {steps} -prove ok 1 -set rst 0 -set-def-inputs harness",
        ],
        folder,
        timeout=500,
    )


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
        started = Signal()
        watched = Signal(self._count_bits)
        watch = Mux(started, watched, self.watch)
        m.d.sync += [started.eq(1), watched.eq(watch)]
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


class UnnormedFlow(wiring.Component):
    """Slices and finished rows of the Unnormed Softmax unit, told apart by their row ids."""

    def __init__(self, lose: bool = False) -> None:
        self._lose = lose
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
        # A broken sink: it takes a transfer that it does not count, as if the unit had lost it.
        lost = (self.watch == 3) if self._lose else 0
        m.d.comb += [
            dut.unnormed.ready.eq(self.ready_u),
            dut.sums.ready.eq(self.ready_d),
            unnormed.into.eq(into),
            unnormed.tag_in.eq(Cat(self.slices.p.row, self.slices.p.last)),
            unnormed.out.eq(dut.unnormed.valid & dut.unnormed.ready & ~lost),
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


def test_the_proof_notices_a_lost_transfer(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(UnnormedFlow(lose=True), tmp_path, steps=10)


class NormalizationFlow(wiring.Component):
    """Slices through Normalization; finished rows are offered at any time."""

    def __init__(self) -> None:
        self.dut = Normalization(TINY, lanes=1, rows=4)
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
        m.submodules.slices_order = slices = InOrder(1, Normalization.latency + 1)
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


def test_normalization_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    prove(NormalizationFlow(), tmp_path, steps=12)


class BufferFlow(wiring.Component):
    """The slice buffer with one row: slices of successive rows, their sums as late as they like."""

    def __init__(self) -> None:
        self.dut = SliceBuffer(TINY, rows=1, depth=2)
        super().__init__(
            {
                "unnormed": In(stream.Signature(self.dut.unnormed.payload.shape())),
                "sum_valid": In(1),
                "ready": In(1),
                "watch": In(4),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        wiring.connect(m, wiring.flipped(self.unnormed), dut.unnormed)
        m.submodules.order = order = InOrder(4, 16)
        p_in, p_out = self.unnormed.p, dut.slices.p
        m.d.comb += [
            dut.sums.valid.eq(self.sum_valid),
            dut.finished.ready.eq(1),
            dut.slices.ready.eq(self.ready),
            order.into.eq(self.unnormed.valid & self.unnormed.ready),
            order.tag_in.eq(Cat(p_in.u[0], p_in.last)),
            order.out.eq(dut.slices.valid & self.ready),
            order.tag_out.eq(Cat(p_out.u[0], p_out.last)),
            order.open.eq(0),
            order.watch.eq(self.watch),
            self.ok.eq(order.ok),
        ]
        return m


@pytest.mark.parametrize("steps", [9, pytest.param(14, marks=pytest.mark.slow)])
def test_slice_buffer_doubles_and_reorders_nothing(tmp_path: Path, steps: int) -> None:
    prove(BufferFlow(), tmp_path, steps)


class Saturates(wiring.Component):
    """A sum that is not renormalised never falls: one that wraps would."""

    def __init__(self, spec: SoftermaxSpec, bits: int) -> None:
        self._bits = bits
        self.dut = Reduction(spec)
        super().__init__(
            {
                "renorm_shift": In(self.dut.renorm_shift.shape()),
                "first": In(1),
                "unnormed": In(self.dut.unnormed.shape()),
                "enable": In(3),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        before = Signal(self._bits)
        summed = Signal()
        m.d.comb += [
            dut.renorm_shift.eq(self.renorm_shift),
            dut.first.eq(self.first),
            dut.unnormed.eq(self.unnormed),
            Cat(dut.enable_4, dut.enable_5, dut.enable_sum).eq(self.enable),
        ]
        still = Signal()
        shift_4, shift_5 = Signal.like(self.renorm_shift), Signal.like(self.renorm_shift)
        first_4, first_5 = Signal(), Signal()
        with m.If(dut.enable_4):
            m.d.sync += [shift_4.eq(self.renorm_shift), first_4.eq(self.first)]
        with m.If(dut.enable_5):
            m.d.sync += [shift_5.eq(shift_4), first_5.eq(first_4)]
        m.d.comb += still.eq(dut.enable_sum & (shift_5 == 0) & ~first_5)
        m.d.sync += [before.eq(dut.powsum), summed.eq(still)]
        m.d.comb += self.ok.eq(~summed | (dut.powsum >= before))
        return m


@pytest.mark.parametrize(
    "spec", [TINY.replace(slice_width=2), PRESETS["paper"].replace(slice_width=2, powsum="Q(2,6)")]
)
def test_powsum_saturates_instead_of_wrapping(tmp_path: Path, spec: SoftermaxSpec) -> None:
    """Sums of two bits of integer are full after two slices of ones."""
    prove(Saturates(spec, spec.powsum.bits), tmp_path, steps=8)


def test_the_proof_notices_a_sum_that_wraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softermax.rtl.reduction.saturate", lambda value, bits: value[:bits])
    spec = TINY.replace(slice_width=2)
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(Saturates(spec, spec.powsum.bits), tmp_path, steps=8)


class Masked(wiring.Component):
    """Two units that get the same slices but for the scores of masked lanes."""

    def __init__(self, spec: SoftermaxSpec, ignore_mask: bool = False) -> None:
        self._ignore_mask = ignore_mask
        self.one, self.other = UnnormedSoftmax(spec), UnnormedSoftmax(spec)
        super().__init__(
            {
                "slices": In(stream.Signature(self.one.slices.payload.shape())),
                "x": In(self.one.slices.p.x.shape()),
                "ready": In(2),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.one, m.submodules.other = one, other = self.one, self.other
        wiring.connect(m, wiring.flipped(self.slices), one.slices)
        m.d.comb += [other.slices.p.eq(self.slices.p), other.slices.valid.eq(self.slices.valid)]
        for lane in range(len(self.slices.p.mask)):
            takes_part = self.slices.p.mask[lane] & (not self._ignore_mask)
            m.d.comb += other.slices.p.x[lane].eq(Mux(takes_part, self.slices.p.x[lane], self.x[lane]))
        outputs = []
        for unit in (one, other):
            m.d.comb += Cat(unit.unnormed.ready, unit.sums.ready).eq(self.ready)
            outputs.append(
                Cat(
                    unit.slices.ready,
                    unit.unnormed.valid,
                    unit.unnormed.p.as_value(),
                    unit.sums.valid,
                    unit.sums.p.as_value(),
                )
            )
        m.d.comb += self.ok.eq(outputs[0] == outputs[1])
        return m


def test_masked_lane_never_influences_any_output_bit(tmp_path: Path) -> None:
    prove(Masked(TINY.replace(slice_width=2)), tmp_path, steps=8)


def test_the_proof_notices_a_lane_that_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(Masked(TINY.replace(slice_width=2), ignore_mask=True), tmp_path, steps=8)
