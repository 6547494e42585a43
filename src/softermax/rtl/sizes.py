"""The sizes that hardware can have, and why a spec or a size is refused."""

from __future__ import annotations

from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

MAX_LANES = 1024
"""More lanes in one cycle than this is a mistake, not a design."""
MAX_ROWS = 4096
MAX_DEPTH = 65536
"""Slices per row that a buffer may hold."""


def check_buildable(spec: SoftermaxSpec) -> int:
    """The lanes of a slice, or the reason why no hardware can be made of the spec."""
    if spec.slice_width is None:
        raise ValueError(
            "slice_width = None: hardware takes a row slice by slice, one slice per cycle; must be the number of "
            f"lanes, 1 to {MAX_LANES}, and a row that fits them is one slice"
        )
    if spec.slice_width > MAX_LANES:
        raise ValueError(
            f"slice_width = {spec.slice_width}: every lane of a slice is built, so it must be 1 to {MAX_LANES}"
        )
    return spec.slice_width


def check_count(name: str, value: object, most: int) -> int:
    """A parameter that counts something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name} = {value!r}: must be an integer from 1 to {most}")
    return value


def at_width(spec: AnySpec, lanes: int) -> AnySpec:
    """A spec's words in slices of so many lanes."""
    if isinstance(spec, DeferredSpec):
        return spec.replace(scores=spec.scores.replace(slice_width=lanes))
    return spec.replace(slice_width=lanes)
