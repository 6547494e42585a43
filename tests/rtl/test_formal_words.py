"""Bounded proofs about words: PowSum saturates instead of wrapping, masked lanes have no say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from proofs import DEFERRED, FAILED, MINIMAL, TINY, prove

from softermax.rtl import yosys
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.reduction import Reduction
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import PRESETS, SoftermaxSpec

pytestmark = pytest.mark.timeout(3000)


class Saturates(wiring.Component):
    """The row's sum is the exact one, or the largest word where that is larger."""

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
        expected = Signal(self._bits)
        summed = Signal()
        m.d.comb += [
            dut.renorm_shift.eq(self.renorm_shift),
            dut.first.eq(self.first),
            dut.unnormed.eq(self.unnormed),
            Cat(dut.enable_4, dut.enable_5, dut.enable_sum).eq(self.enable),
        ]
        shift_4, shift_5 = Signal.like(self.renorm_shift), Signal.like(self.renorm_shift)
        first_4, first_5 = Signal(), Signal()
        with m.If(dut.enable_4):
            m.d.sync += [shift_4.eq(self.renorm_shift), first_4.eq(self.first)]
        with m.If(dut.enable_5):
            m.d.sync += [shift_5.eq(shift_4), first_5.eq(first_4)]
        high = (1 << self._bits) - 1
        exact = Mux(first_5, 0, dut.powsum >> shift_5) + dut.slice_powsum
        m.d.sync += summed.eq(dut.enable_sum)
        with m.If(dut.enable_sum):
            m.d.sync += expected.eq(Mux(exact > high, high, exact))
        m.d.comb += self.ok.eq(~summed | (dut.powsum == expected))
        return m


@pytest.mark.parametrize(
    "spec",
    [
        TINY.replace(slice_width=2),
        PRESETS["paper"].replace(slice_width=2, powsum="Q(2,6)"),
        PRESETS["paper"],
    ],
    ids=["tiny", "two lanes", "paper"],
)
def test_powsum_saturates_instead_of_wrapping(tmp_path: Path, spec: SoftermaxSpec) -> None:
    """The first two are full after two slices of ones, the paper's from any sum that eight cycles can reach."""
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


class MaskedTail(wiring.Component):
    """Two attention tails that get the same slices but for the values of lanes without weight, as masked
    ones are."""

    def __init__(self, ignore: bool = False) -> None:
        self._ignore = ignore
        spec = dataclasses.replace(DEFERRED, scores=MINIMAL.replace(slice_width=2))
        self.one, self.other = (DeferredTail(spec, columns=1, accumulator_bits=11) for _ in range(2))
        slices = self.one.slices.p
        super().__init__(
            {
                "slices": In(slices.shape()),
                "valid": In(1),
                "v": In(slices.v.shape()),
                "ready": In(1),
                "ok": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.one, m.submodules.other = one, other = self.one, self.other
        outputs = []
        for unit in (one, other):
            m.d.comb += [
                unit.slices.p.eq(self.slices),
                unit.slices.valid.eq(self.valid),
                unit.outputs.ready.eq(self.ready),
            ]
            outputs.append(Cat(unit.slices.ready, unit.outputs.valid, unit.outputs.p.as_value()))
        for lane in range(2):
            weighs = self.slices.u[lane].any() & (not self._ignore)
            m.d.comb += other.slices.p.v[lane].eq(
                Mux(weighs, self.slices.v[lane].as_value(), self.v[lane].as_value())
            )
        m.d.comb += self.ok.eq(outputs[0] == outputs[1])
        return m


@pytest.mark.parametrize("steps", [7, pytest.param(8, marks=pytest.mark.slow)])
def test_masked_lane_never_influences_any_output_bit_of_the_tail(tmp_path: Path, steps: int) -> None:
    prove(MaskedTail(), tmp_path, steps)


def test_the_proof_of_the_tail_notices_a_lane_that_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(MaskedTail(ignore=True), tmp_path, steps=8)
