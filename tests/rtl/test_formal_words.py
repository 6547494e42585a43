"""Bounded proofs about words: PowSum saturates instead of wrapping, masked lanes have no say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from proofs import DEFERRED, FAILED, MINIMAL, TINY, Twins, prove

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


def units(ignore_mask: bool = False) -> Twins:
    """Unnormed Softmax units that get other scores in masked lanes."""
    return Twins(
        lambda: UnnormedSoftmax(TINY.replace(slice_width=2)),
        ["unnormed", "sums"],
        "x",
        lambda slices, lane: slices.mask[lane] & (not ignore_mask),
    )


def test_masked_lane_never_influences_any_output_bit(tmp_path: Path) -> None:
    prove(units(), tmp_path, steps=8)


def test_the_proof_notices_a_lane_that_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(units(ignore_mask=True), tmp_path, steps=8)


def tails(ignore_weight: bool = False) -> Twins:
    """Attention tails that get other values in lanes without weight, as masked ones are."""
    spec = dataclasses.replace(DEFERRED, scores=MINIMAL.replace(slice_width=2))
    return Twins(
        lambda: DeferredTail(spec, columns=1, accumulator_bits=11),
        ["outputs"],
        "v",
        lambda slices, lane: slices.u[lane].any() & (not ignore_weight),
    )


@pytest.mark.parametrize("steps", [7, pytest.param(8, marks=pytest.mark.slow)])
def test_masked_lane_never_influences_any_output_bit_of_the_tail(tmp_path: Path, steps: int) -> None:
    prove(tails(), tmp_path, steps)


def test_the_proof_of_the_tail_notices_a_lane_that_is_not_masked(tmp_path: Path) -> None:
    with pytest.raises(yosys.YosysError, match=FAILED):
        prove(tails(ignore_weight=True), tmp_path, steps=8)
