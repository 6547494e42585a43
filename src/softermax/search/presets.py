"""The presets as points of a search: by name, with and without the fold, at a width."""

from __future__ import annotations

from softermax.rtl.sizes import at_width
from softermax.search.space import Space
from softermax.spec import DEFERRED, PRESETS, AnySpec, get_spec


def presets_at(kind: str, width: int) -> dict[str, AnySpec]:
    """Presets that differ in more than their slices, in slices of ``width``. ``paper-32`` and ``whole-row`` are ``paper`` and its
    wider PowSum in other slices."""
    ending = DEFERRED if kind == "deferred" else ""
    names = [name for name in PRESETS if name not in ("paper-32", "whole-row")]
    space = Space.of(kind, [width])
    found: dict[str, AnySpec] = {}
    for name in (preset + fold + ending for preset in names for fold in ("", "+fold")):
        spec = at_width(get_spec(name), width)
        # With deferred normalisation presets that differ in their output alone are the same.
        if space.point(spec) not in [space.point(other) for other in found.values()]:
            found[name] = spec
    return found
