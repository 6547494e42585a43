"""The units of a spec as Verilog, for the page's download."""

from __future__ import annotations

import threading

from softermax.extras import need
from softermax.report.explorer.compute import Impossible, RequestError
from softermax.spec import SoftermaxSpec

UNITS = ("unnormed_softmax", "normalization")

MAX_LANES = 64
"""Wider units take minutes to convert."""

_one_at_a_time = threading.Lock()


def verilog(spec: SoftermaxSpec, unit: str) -> str:
    """Verilog-2005 of one unit with the spec on top as a comment. Needs the extra ``hardware``."""
    if unit not in UNITS:
        raise RequestError(f"unit = {unit!r}: allowed is {' or '.join(UNITS)}", "unit")
    if spec.slice_width is not None and spec.slice_width > MAX_LANES:
        raise Impossible(
            f"slice_width = {spec.slice_width}: the explorer writes units of 1 to {MAX_LANES} lanes",
            "slice_width",
        )
    try:
        need("amaranth", "hardware")
        need("pyosys", "hardware")
    except ImportError as error:
        raise Impossible(str(error)) from None
    from softermax.rtl.convert import spec_header, to_verilog
    from softermax.rtl.normalization import Normalization
    from softermax.rtl.unnormed_softmax import UnnormedSoftmax
    from softermax.rtl.words import check_buildable

    try:
        lanes = check_buildable(spec)
        component = UnnormedSoftmax(spec) if unit == "unnormed_softmax" else Normalization(spec, lanes)
    except ValueError as error:
        raise Impossible(str(error), str(error).partition(" = ")[0]) from None
    with _one_at_a_time:
        return to_verilog(component, unit, spec_header(f"{unit}, {lanes} lanes", spec))
