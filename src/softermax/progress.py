"""How long work tells how far it is: one signature, from the kernels' bench to the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the steps done, the steps in all, and what is being done."""


def silent(done: int, total: int, note: str = "") -> None:
    """For a caller who does not want to know."""


def within(progress: Progress, number: int, of: int) -> Progress:
    """For one of several works of about the same length: its steps as steps of them all.

    >>> within(lambda done, total, note: print(done, total, note), 1, of=3)(2, 4, "half of the second")
    6 12 half of the second
    """

    def report(done: int, total: int, note: str = "") -> None:
        progress(number * total + done, of * total, note)

    return report
