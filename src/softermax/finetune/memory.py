"""Freed memory is kept for the next step instead of going back to the kernel and coming again page by page."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Numbers of glibc's ``mallopt``."""


def keep_freed_memory() -> bool:
    """Tell glibc's allocator so; whether it listened. A training step allocates the same sizes again and again."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    wanted = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: (1 << 31) - 1, _TOP_PAD: 256 << 20}
    return all([mallopt(name, value) for name, value in wanted.items()])
