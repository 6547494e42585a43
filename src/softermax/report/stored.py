"""Results stored in the source tree, ``docs/results``: shown, labelled, where this run has not measured the like."""

from __future__ import annotations

from pathlib import Path

import softermax
from softermax.results import Envelope


def folder() -> Path | None:
    """``docs/results`` of the source tree that this package is run from; None for an installed one."""
    root = Path(softermax.__file__).parents[2]
    found = root / "docs" / "results"
    return found if found.is_dir() and (root / "pyproject.toml").is_file() else None


def load(name: str) -> Envelope | None:
    """``NAME.json``, None where it is not there."""
    here = folder()
    return Envelope.load(here / f"{name}.json") if here and (here / f"{name}.json").is_file() else None
