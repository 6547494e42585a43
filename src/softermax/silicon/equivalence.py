"""The mapped netlist against the golden model: no energy is reported for one that disagrees."""

from __future__ import annotations

import numpy as np

from softermax.rtl.packing import Bits
from softermax.silicon.jobs import GateJob
from softermax.silicon.simulation import Activity


class Disagreement(ValueError):
    """The netlist's answers are not the golden model's."""


def require_equal(job: GateJob, activity: Activity, what: str) -> int:
    """Compare every transfer of every output stream and every word of every output wire; how many they were."""
    for stream, cycles in job.must_be_ready.items():
        ready = np.asarray(activity.outputs[f"{stream}__ready"][:, :, 0].all(axis=1))
        if not ready[cycles].all():
            at = int(np.flatnonzero(cycles & ~ready)[0])
            raise Disagreement(f"{what}: {stream} was not taken in cycle {at}")
    words = 0
    for stream, payload in job.transfers.items():
        got = transfers(job, activity, stream, what)
        if got.shape != payload.shape:
            raise Disagreement(f"{what}: {stream} made {len(got)} transfers, expected {len(payload)}")
        words += _compare(got, payload, f"{what}: {{}} transfers of {stream}")
    for wire, expected in job.words.items():
        counted = slice(job.counted_from, None)
        words += _compare(activity.outputs[wire][counted], expected[counted], f"{what}: {{}} words of {wire}")
    return words


def transfers(job: GateJob, activity: Activity, stream: str, what: str) -> Bits:
    """The payloads (transfers, copies, bits) that a stream gave after reset, at the same times in all copies."""
    valid = activity.outputs[f"{stream}__valid"][:, :, 0] * (job.inputs["rst"][:, :, 0] == 0)
    if (valid != valid[:, :1]).any():
        raise Disagreement(f"{what}: {stream} is valid at times that depend on the data")
    payload: Bits = activity.outputs[f"{stream}__payload"][valid[:, 0] == 1]
    return payload


def _compare(got: Bits, expected: Bits, what: str) -> int:
    wrong = (got != expected).any(axis=2)
    if wrong.any():
        number, copy = (int(i) for i in np.argwhere(wrong)[0])
        bits = [int(b) for b in np.flatnonzero(got[number, copy] != expected[number, copy])]
        raise Disagreement(
            what.format(f"{int(wrong.sum())} of {wrong.size}") + " differ from the golden model, "
            f"the first is number {number} of copy {copy}, in bits {bits[:8]}"
        )
    return int(wrong.size)
