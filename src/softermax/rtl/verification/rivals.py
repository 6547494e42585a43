"""Rivals in RTL for `softermax verify`: the units of each one after the other, under stalls, against `softermax.rivals`.

The words of the spec's input are taken for the rival's scores.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.rivals.registry import built, get_hardware
from softermax.rtl.simulation import Simulation
from softermax.rtl.sizes import check_buildable
from softermax.rtl.vectors import Streams
from softermax.spec import AnySpec, SoftermaxSpec
from softermax.verify import Body

_STALL = 0.1
_REACH = 8.0
"""The largest score, for the scale of designs that calibrate one. Another row has half of it: a constant for both saturates."""

Result = tuple[IntArray, None]


def bodies(supports: Any) -> list[Body]:
    """One per rival."""
    return [
        Body(f"RTL {name}", partial(run, name), supports, share=0.5, expected=partial(expected, name))
        for name in built()
    ]


def design_of(name: str, lanes: int) -> Any:
    hardware = get_hardware(name)
    return hardware.fitted(hardware.model.calibrated(np.array([[_REACH], [_REACH / 2]])), lanes)


@lru_cache(maxsize=32)
def _simulations(name: str, lanes: int) -> dict[str, Simulation]:
    hardware, design = get_hardware(name), design_of(name, lanes)
    return {unit: Simulation(hardware.make(unit, design, lanes)) for unit in hardware.units}


def expected(name: str, spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Result:
    hardware = get_hardware(name)
    words = design_of(name, check_buildable(spec)).words(hardware.scores_of(raw), mask)
    return np.asarray(words, dtype=np.int64), None


def run(name: str, spec: AnySpec, raw: IntArray, mask: BoolArray) -> Result:
    """What one unit gives goes into the next; only scores that wait come from outside."""
    assert isinstance(spec, SoftermaxSpec)
    lanes, hardware = check_buildable(spec), get_hardware(name)
    streams = hardware.streams(design_of(name, lanes), lanes, hardware.scores_of(raw), mask)
    given: Streams = {}
    for unit, simulation in _simulations(name, lanes).items():
        fields = {port.name: given.get(port.name, streams[unit][port.name]) for port in simulation.ports}
        counts = {port: len(next(iter(values.values()))) for port, values in fields.items()}
        out = simulation.run(fields, counts, _STALL)
        given = {port: transfers.fields for port, transfers in out.items() if transfers.fields}
    return given["probabilities"]["y"].reshape(len(raw), -1)[:, : raw.shape[1]], None
