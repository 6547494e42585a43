"""The units' names, for whoever only names them: nothing here needs Amaranth."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

UnitName: TypeAlias = Literal["top", "unnormed-softmax", "normalization", "deferred"]
UNIT_NAMES: tuple[UnitName, ...] = get_args(UnitName)
