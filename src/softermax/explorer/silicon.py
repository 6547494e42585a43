"""Area and energy of a spec's units, where `softermax silicon` has measured them before."""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir, look_up
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

_SCORES = ("input", "max", "unnormed", "slice_width", "pow2_segments", "max_rounding", "unnormed_rounding")
_WORDS = ("max", "unnormed", "slice_width", "powsum", "reciprocal", "reciprocal_segments")

UNITS: dict[str, tuple[str, ...]] = {
    "unnormed": (*_SCORES, "powsum", "powsum_rounding", "normalization"),
    "normalization": (*_WORDS, "output", "output_mode", "output_rounding", "normalization", "product"),
}
"""The fields that a unit is made of: specs that agree in these have the same unit."""

DEFERRED_UNITS: dict[str, tuple[str, ...]] = {
    "weights": (*_SCORES, "weight", "powsum"),
    "deferred tail": (*_WORDS, "weight"),
}

_VARIANT = "+skip-zeros"
"""After the name of a spec: a Normalization unit of other hardware than the spec's."""

Figure = dict[str, Any]


def figures(spec: AnySpec) -> list[Figure]:
    """The newest result for each unit, library, clock and wire load; none where nothing fits the spec.

    The cache may hold figures of units as they were some versions ago.
    """
    try:
        folder = cache_dir("silicon", "results")
        results = _results(folder, folder.stat().st_mtime_ns)
    except OSError as error:
        warnings.warn(f"area and energy are not shown: {error}", stacklevel=2)
        return []
    wanted = {unit: made_of(spec, unit) for unit in units_of(spec)}
    found: dict[tuple[Any, ...], Figure] = {}
    for fields, figure in results:
        if wanted.get(figure["unit"]) == fields:
            order = list(wanted).index(figure["unit"])
            found[figure["library"], figure["clock_ns"], figure["wire"], order] = figure
    return [found[key] for key in sorted(found)]


def units_of(spec: AnySpec) -> dict[str, tuple[str, ...]]:
    return DEFERRED_UNITS if isinstance(spec, DeferredSpec) else UNITS


def made_of(spec: AnySpec, unit: str) -> dict[str, Any]:
    """What a unit is made of, by field. Deferred normalisation's own words go before those of its scores' spec."""
    values = spec.to_dict()
    values = values.pop("scores", {}) | values
    return {field: values[field] for field in units_of(spec)[unit]}


@lru_cache(maxsize=2)
def _results(folder: Path, changed: int) -> list[tuple[dict[str, Any], Figure]]:
    """What the cache has measured of Softermax, oldest first. ``changed`` makes a changed folder be read anew."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    found = (look_up(path, _read) for path in paths)
    return [result for result in found if result]


def _read(path: Path) -> tuple[dict[str, Any], Figure] | tuple[()]:
    """What a unit is made of, and its figures; nothing where the result is none of a spec's unit."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict):
        raise ValueError(f"expected a JSON object, got {type(result).__name__}")
    if (
        result["design"] != "softermax"
        or result.get("spec") is None
        or str(result["preset"]).endswith(_VARIANT)
    ):
        return ()
    spec = spec_from_dict(result["spec"])
    # With glitches, as gates have them, and with recorded attention if that was measured.
    energy = {e["stimulus"]: e["pj_per_element"] for e in result["energy"] if e["mode"] == "glitches"}
    if result["unit"] not in units_of(spec) or not energy:
        return ()
    stimulus = "attention" if "attention" in energy else next(iter(energy))
    figure = {
        name: result[name] for name in ("unit", "library", "clock_ns", "wire", "area_um2", "slack_ns")
    } | {"pj_per_element": energy[stimulus], "stimulus": stimulus}
    return made_of(spec, result["unit"]), figure
