"""Cost against error: of the designs that were built, those that no other beats in both."""

from __future__ import annotations

from collections.abc import Sequence

from softermax.rivals.page import WHOLE, Row

ERROR = "l1_recorded"
"""What costs are held against: L1 on recorded attention."""


def wholes(rows: Sequence[Row], width: int, library: str) -> list[Row]:
    """Whole softmaxes of one width in one library, the smallest first."""
    found = [
        row
        for row in rows
        if (row.get("unit"), row.get("width"), row.get("library")) == (WHOLE, width, library) and ERROR in row
    ]
    return sorted(found, key=lambda row: float(row["area_um2"]))


def front(rows: Sequence[Row], cost: str, error: str = ERROR) -> list[str]:
    """The designs with the least error for their cost, from the cheapest on.

    >>> rows = [{"name": n, "pj": c, "l1": e} for n, c, e in (("a", 1, 3), ("b", 2, 4), ("c", 3, 1), ("d", 3, 2))]
    >>> front(rows, "pj", "l1")
    ['a', 'c']
    """
    found: list[str] = []
    least = float("inf")
    for row in sorted(rows, key=lambda row: (float(row[cost]), float(row[error]))):
        if row[error] < least:
            least = float(row[error])
            found.append(str(row["name"]))
    return found


def beaten_by(row: Row, rows: Sequence[Row], costs: Sequence[str], error: str = ERROR) -> list[str]:
    """Who has no more of every cost and of the error, and less of one."""
    keys = (*costs, error)
    return [
        str(other["name"])
        for other in rows
        if all(other[key] <= row[key] for key in keys) and any(other[key] < row[key] for key in keys)
    ]
