"""What the tests here share: specs, rows, and the building of `native_check`, the core against itself."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.kernels.plan import deferred_arguments, native_arguments
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "src" / "softermax" / "kernels" / "native"
SOURCES = [NATIVE / f"{name}.cpp" for name in ("core", "pool", "scalar", "avx2", "avx512", "neon")]

SPECS: dict[str, SoftermaxSpec] = PRESETS | {
    "floor max": PRESETS["paper"].replace(max_rounding="truncate", slice_width=7, base="fold"),
    "short words": PRESETS["paper-32"].replace(
        unnormed="Q(1,9)",
        powsum="Q(3,5)",
        output="Q(1,4)",
        powsum_rounding="truncate",
        input_rounding="truncate",
    ),
    "long table": PRESETS["whole-row"].replace(
        reciprocal="Q(1,15)", reciprocal_segments=16, output_rounding="truncate", input_rounding="half-up"
    ),
    "long products": PRESETS["lean"].replace(
        unnormed="Q(1,14)",
        unnormed_rounding="half-even",
        reciprocal="Q(1,15)",
        product="Q(2,29)",
        output_rounding="truncate",
        max_rounding="truncate",
        slice_width=20,
    ),
}
"""Specs that together take every branch of the core."""


def write_specs(path: Path) -> None:
    def text(value: Any) -> str:
        if isinstance(value, list):
            return " ".join(str(one) for one in [len(value), *value])
        return repr(float(value)) if isinstance(value, float) else str(int(value))

    lines = [str(len(SPECS))]
    for spec in SPECS.values():
        values = {
            **native_arguments(spec),
            **{f"A8 {k}": v for k, v in deferred_arguments(DeferredSpec(spec)).items()},
        }
        lines.append(" ".join(text(value) for value in values.values()))
    path.write_text("\n".join(lines) + "\n")


def build(compiler: Sequence[str], target: Path, flags: Sequence[str] = ()) -> Path:
    command = [
        *compiler, "-std=c++17", "-ffp-contract=off", "-Wall", "-Wno-maybe-uninitialized", "-Wno-uninitialized", f"-I{NATIVE}", f"-I{HERE}",
        *flags, *map(str, SOURCES), str(HERE / "native_check.cpp"), "-o", str(target), "-pthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run(command: Sequence[str | Path], timeout: float = 500) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def words(rng: np.random.Generator, *shape: int, spread: float = 16.0) -> NDArray[np.int8]:
    return np.clip(np.rint(rng.normal(0, spread, shape)), -128, 127).astype(np.int8)
