"""The units of a spec as Verilog, for the page's download."""

from __future__ import annotations

import threading
from typing import Any

from softermax.explorer.compute import Impossible, RequestError
from softermax.extras import need
from softermax.spec import SoftermaxSpec

UNITS = ("top", "unnormed-softmax", "normalization")

MAX_LANES = 64
"""Wider units take long to convert: `softermax rtl` makes them."""

_one_at_a_time = threading.Lock()


def verilog(spec: SoftermaxSpec, unit: Any) -> tuple[str, str]:
    """File name and Verilog-2005 of one unit, the spec on top as a comment. Needs the extra ``hardware``."""
    if unit not in UNITS:
        raise RequestError(f"unit = {unit!r}: must be one of {', '.join(UNITS)}", "unit")
    if spec.slice_width is not None and spec.slice_width > MAX_LANES:
        raise Impossible(
            f"slice_width = {spec.slice_width}: the explorer writes units of 1 to {MAX_LANES} lanes, "
            "softermax rtl wider ones",
            "slice_width",
        )
    try:
        need("amaranth", "hardware")
        need("pyosys", "hardware")
    except ImportError as error:
        raise Impossible(str(error)) from None
    from softermax.rtl.convert import spec_header, to_verilog
    from softermax.rtl.units import create

    try:
        component = create(spec, unit)
    except ValueError as error:
        raise Impossible(str(error), str(error).partition(" = ")[0]) from None
    name = "softermax_top" if unit == "top" else unit.replace("-", "_")
    with _one_at_a_time:
        return f"{name}.v", to_verilog(component, name, spec_header(name, spec))
