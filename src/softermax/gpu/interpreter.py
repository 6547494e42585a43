"""Triton's interpreter, which runs the kernels on a CPU: to test them, not to use them.

``SOFTERMAX_GPU=interpret`` in the environment, before this package or torch is imported, makes the operators take tensors
of the CPU to the Triton kernels, interpreted. Triton decides when it is imported, so a process has one or the other;
`call` runs a function in a process that has the interpreter.
"""

from __future__ import annotations

import atexit
import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

VARIABLE = "SOFTERMAX_GPU"


def asked() -> bool:
    """Whether the environment asks for the interpreter."""
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if wanted not in ("", "interpret", "none"):
        raise ValueError(f"{VARIABLE} = {wanted!r}: must be interpret or none, or not set")
    return wanted == "interpret"


def turned_off() -> bool:
    """Whether the environment asks for PyTorch in place of the kernels."""
    return not asked() and os.environ.get(VARIABLE, "").strip().lower() == "none"


def prepare() -> None:
    """Make Triton interpret, if that is asked for."""
    if not asked() or interpreted():
        return
    if importlib.util.find_spec("triton") is None:
        raise ImportError(
            f"{VARIABLE} = interpret needs triton; it comes with: pip install '.[gpu]' in the source tree"
        )
    if "triton" in sys.modules:
        raise ImportError(f"{VARIABLE} = interpret: softermax must be imported before triton")
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported


def interpreted() -> bool:
    """Whether kernels are interpreted in this process."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def call(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module answers in a process of its own, in which kernels are interpreted."""
    return _process().submit(function, *arguments).result()


@lru_cache(maxsize=1)
def _process() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    made = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
    atexit.register(made.shutdown)
    return made


def _begin() -> None:
    os.environ[VARIABLE] = "interpret"
    prepare()
