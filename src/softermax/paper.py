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


def accuracy(task: str, model: str = "BERT-Base") -> tuple[float, float] | None:
    """A task's int8 baseline and its Softermax in Table III; None for a task that is not the paper's.

    >>> accuracy("mnli")
    (83.27, 83.8)
    """
    arms = figures()["accuracy"]["models"][model]
    return (arms["baseline"][task], arms["softermax"][task]) if task in arms["baseline"] else None
