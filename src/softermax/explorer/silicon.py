"""Area and energy of a spec's units, where `softermax silicon` has measured them before."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir
from softermax.spec import PRESETS, SoftermaxSpec

_SOFTWARE = {"input_rounding": "half-even", "base": "paper"}
"""Fields that make no difference to the hardware: scores come in as words."""

_SHOWN = {"preset", "width", "unit", "library", "clock_ns", "area_um2", "slack_ns", "energy"}


def figures(spec: SoftermaxSpec) -> list[dict[str, Any]]:
    """The newest result for each library, clock and unit; none where nothing fits the spec.

    The cache may hold figures of units as they were some versions ago.
    """
    folder = cache_dir("silicon", "results")
    wanted = spec.replace(**_SOFTWARE)
    found: dict[tuple[str, float, bool], dict[str, Any]] = {}
    for result in _results(folder, folder.stat().st_mtime_ns):
        preset = PRESETS.get(result["preset"])
        if preset is not None and preset.replace(slice_width=result["width"]) == wanted:
            energy = _energy(result["energy"])
            found[result["library"], result["clock_ns"], result["unit"] != "unnormed"] = {
                "unit": result["unit"],
                "library": result["library"],
                "clock_ns": result["clock_ns"],
                "area_um2": result["area_um2"],
                "slack_ns": result["slack_ns"],
                "pj_per_element": energy["pj_per_element"],
                "stimulus": energy["stimulus"],
            }
    return [found[key] for key in sorted(found)]


def _energy(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """With glitches, as gates have them, and with recorded attention if that was measured."""
    glitching = [energy for energy in measured if energy["mode"] == "glitches"]
    return next((energy for energy in glitching if energy["stimulus"] == "attention"), glitching[0])


@lru_cache(maxsize=2)
def _results(folder: Path, changed: int) -> list[dict[str, Any]]:
    """Softermax's results in the cache, oldest first. ``changed`` makes a changed folder be read anew."""
    results = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result.get("design") == "softermax" and result.keys() >= _SHOWN:
            results.append(result)
    return results
