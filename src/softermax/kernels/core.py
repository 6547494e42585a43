"""Which native path runs here, and why."""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import Any

native: Any = None
"""The compiled module, or None where the package was installed without a compiler."""
_missing = ""
try:
    native = importlib.import_module("softermax.kernels._native")
except ModuleNotFoundError:
    _missing = "no working C++ compiler when the package was installed"
except ImportError as error:
    _missing = str(error)

ISAS = {"scalar": 0, "avx2": 1, "avx512": 2, "neon": 3}
"""Paths by name, with their number in the C ABI."""

VARIABLE = "SOFTERMAX_ISA"


@lru_cache(maxsize=1)
def usable() -> tuple[str, ...]:
    """The paths that this CPU and this build can run; empty without the native core."""
    return tuple(name for name, number in ISAS.items() if native is not None and native.usable(number))


def isa() -> str | None:
    """The path in use: what ``SOFTERMAX_ISA`` asks for, else the fastest. None: PyTorch computes."""
    # The core asks the C library, which is quicker than os.environ: an operator comes here at every call.
    return _path((os.environ.get(VARIABLE) if native is None else native.environment(VARIABLE)) or "")


@lru_cache(maxsize=16)
def _path(asked: str) -> str | None:
    wanted = asked.strip().lower()
    if wanted == "none":
        return None
    if wanted and wanted not in ISAS:
        raise ValueError(f"{VARIABLE} = {wanted!r}: must be one of {', '.join(ISAS)} or none")
    if native is None:
        if wanted:
            raise ValueError(f"{VARIABLE} = {wanted!r}, but the native core is missing: {_missing}")
        return None
    if wanted and wanted not in usable():
        raise ValueError(f"{VARIABLE} = {wanted!r}: this CPU and this build can run {', '.join(usable())}")
    return wanted or _fastest()


@lru_cache(maxsize=1)
def _fastest() -> str:
    best = native.best()
    return next(name for name, number in ISAS.items() if number == best)


def available() -> bool:
    return isa() is not None


def status() -> str:
    """One sentence: which path is in use and why."""
    if native is None:
        return f"PyTorch: the native core is not installed ({_missing}); reinstall with a C++17 compiler to get it"
    forced = os.environ.get(VARIABLE, "").strip()
    path = isa()
    if path is None:
        return f"PyTorch: {VARIABLE} = {forced} turns the native core off"
    if forced:
        return f"native {path}: {VARIABLE} asks for it"
    return f"native {path}: the fastest of {', '.join(usable())}"
