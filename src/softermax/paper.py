"""Every figure that the paper prints, once, with where it stands in it."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def figures() -> dict[str, Any]:
    """The figures of ``paper.json``."""
    values: dict[str, Any] = json.loads(files("softermax").joinpath("paper.json").read_text(encoding="utf-8"))
    return values
