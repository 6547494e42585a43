"""The rivals that are built, by name. A file in `softermax.rtl.rivals.designs` with ``HARDWARE``, one or a tuple, is one more."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from softermax.rtl.rivals import designs
from softermax.rtl.rivals.parts.interface import Hardware


@cache
def built() -> dict[str, Hardware]:
    """Every rival in RTL."""
    found: list[Hardware] = []
    for module in pkgutil.iter_modules(designs.__path__):
        made = importlib.import_module(f"{designs.__name__}.{module.name}").HARDWARE
        found += made if isinstance(made, tuple) else (made,)
    return {hardware.name: hardware for hardware in found}


def get_hardware(name: str) -> Hardware:
    """A rival in RTL by its name."""
    if name not in built():
        raise ValueError(f"rival {name!r}: in RTL it must be one of {', '.join(built())}")
    return built()[name]
