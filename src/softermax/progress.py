"""How long work tells how far it is: one signature, from the kernels' bench to the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps done, the steps in all, and what is being done."""


def silent(done: int, total: int, note: str = "") -> None:
    """For a caller who does not want to know."""
