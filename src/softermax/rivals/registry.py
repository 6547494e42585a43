"""All designs by name. A file in `softermax.rivals.designs` with ``DESIGNS`` is one more."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from softermax.rivals import designs
from softermax.rivals.designs.interface import Normalised, Rival
from softermax.rivals.options import OPTIONS
from softermax.rivals.ours import our_designs
from softermax.spec import AnySpec, get_spec

PREFIX = "rival:"
"""Before a design's name where a spec's could stand too."""


@cache
def rivals() -> dict[str, Rival]:
    """The references, then every design of others. What has an output of fixed scale also has our options."""
    found: list[Rival] = []
    for module in pkgutil.iter_modules(designs.__path__):
        found += getattr(importlib.import_module(f"{designs.__name__}.{module.name}"), "DESIGNS", ())
    found.sort(key=lambda design: design.about.kind != "reference")
    return {design.name: design for design in found}


def options_of(design: Rival) -> list[Rival]:
    """The design with each of our normalisations that it can take."""
    if not isinstance(design, Normalised) or not design.fixed_output:
        return []
    return [option.of(design, f"{design.name}:{name}") for name, option in OPTIONS.items()]


def all_designs() -> list[Rival]:
    """References, every preset of ours, every rival, and rivals with our options after the rival itself."""
    named = list(rivals().values())
    others = [
        entry for design in named if design.about.kind == "rival" for entry in (design, *options_of(design))
    ]
    return [*(d for d in named if d.about.kind == "reference"), *our_designs(), *others]


def is_rival(name: str) -> bool:
    return name.startswith(PREFIX)


def get_rival(name: str) -> Rival:
    """A design by its name, with or without ``rival:``, then ``:row-scaled`` or ``:deferred`` if wanted.

    >>> get_rival("rival:ita").gives
    'u8, p = y / 256'
    >>> get_rival("i-bert:deferred").compute([2.0, 1.0, 3.0]).round(3)
    array([0.249, 0.091, 0.661])
    """
    plain, colon, option = name.removeprefix(PREFIX).partition(":")
    design = rivals().get(plain)
    if design is None:
        raise ValueError(f"unknown rival {name!r}: must be one of {', '.join(rivals())}")
    if not colon:
        return design
    chosen = {entry.name: entry for entry in options_of(design)}.get(f"{plain}:{option}")
    if chosen is None:
        known = ", ".join(entry.name.partition(":")[2] for entry in options_of(design)) or "none"
        raise ValueError(f"unknown rival {name!r}: options of {plain} are: {known}")
    return chosen


def get_attention(name: str) -> AnySpec | Rival:
    """A spec by its name, or a rival by its own after ``rival:``."""
    return get_rival(name) if is_rival(name) else get_spec(name)
