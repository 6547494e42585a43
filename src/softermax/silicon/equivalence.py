"""The mapped netlist against the golden model: no energy is reported for one that disagrees."""

from __future__ import annotations

import numpy as np

from softermax.silicon.simulation import Activity
from softermax.silicon.units import Job


class Disagreement(ValueError):
    """The netlist's answers are not the golden model's."""


def require_equal(job: Job, activity: Activity, what: str) -> int:
    """Compare every transfer of every output stream; the number of words compared."""
    words = 0
    for stream, cycles in job.must_be_ready.items():
        ready = np.asarray(activity.outputs[f"{stream}__ready"][:, :, 0].all(axis=1))
        if not ready[cycles].all():
            at = int(np.flatnonzero(cycles & ~ready)[0])
            raise Disagreement(f"{what}: {stream} was not taken in cycle {at}")
    for stream, payload in job.expected.items():
        valid = activity.outputs[f"{stream}__valid"][:, :, 0]
        valid = valid * (job.inputs["rst"][:, :, 0] == 0)
        if (valid != valid[:, :1]).any():
            raise Disagreement(f"{what}: {stream} is valid at times that depend on the data")
        got = activity.outputs[f"{stream}__payload"][valid[:, 0] == 1]
        if got.shape != payload.shape:
            raise Disagreement(f"{what}: {stream} made {len(got)} transfers, expected {len(payload)}")
        wrong = (got != payload).any(axis=2)
        if wrong.any():
            transfer, copy = (int(i) for i in np.argwhere(wrong)[0])
            bits = [int(b) for b in np.flatnonzero(got[transfer, copy] != payload[transfer, copy])]
            raise Disagreement(
                f"{what}: {int(wrong.sum())} of {wrong.size} transfers of {stream} differ from the golden model, "
                f"the first is number {transfer} of copy {copy}, in bits {bits[:8]}"
            )
        words += wrong.size
    return words
