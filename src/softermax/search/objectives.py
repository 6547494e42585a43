"""What a spec is judged by, cheap to dear: golden error on recorded scores, modelled silicon, the real flow.

Errors are those of the golden model's probabilities to the exact softmax of the same float scores, mean over rows: ``l1`` the sum
of absolute differences, ``kl`` the divergence, ``mass`` what a row adds up to. All in base e: what a model that nobody retrained
sees. Area and energy are those of the units (`silicon_model`), which is where words matter; ``whole_*`` add the modelled
memory of what waits between them.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.cache import cache_dir, kept, key
from softermax.golden import BoolArray
from softermax.rivals.accuracy import divergence, l1, mass
from softermax.rivals.designs.exact import softmax
from softermax.silicon.stimuli import run_recorder
from softermax.spec import AnySpec


@dataclass(frozen=True)
class RecordedRows:
    """Rows of a model's attention scores."""

    model: str
    scores: NDArray[np.float32]
    """(rows, columns)."""
    mask: BoolArray
    layer: NDArray[np.int16]
    head: NDArray[np.int16]

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or not self.scores.size or self.mask.shape != self.scores.shape:
            raise ValueError(
                f"scores of shape {self.scores.shape}, mask of {self.mask.shape}: must be the same (rows, columns)"
            )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def columns(self) -> int:
        return int(self.scores.shape[1])

    @property
    def content(self) -> str:
        """Changes with every score."""
        return hashlib.sha256(self.scores.tobytes() + self.mask.tobytes()).hexdigest()[:16]

    @cached_property
    def exact(self) -> NDArray[np.float64]:
        found: NDArray[np.float64] = softmax(self.scores.astype(np.float64), self.mask)
        return found

    def take(self, rows: int) -> RecordedRows:
        """So many rows, spread evenly over all."""
        if rows >= len(self):
            return self
        return self._of(np.linspace(0, len(self) - 1, rows).astype(np.int64))

    def of_layer(self, layer: int, head: int | None = None) -> RecordedRows:
        """One layer's rows, or one head's."""
        chosen = self.layer == layer
        if head is not None:
            chosen = chosen & (self.head == head)
        return self._of(np.flatnonzero(chosen))

    def _of(self, index: NDArray[np.int64]) -> RecordedRows:
        return RecordedRows(
            self.model, self.scores[index], self.mask[index], self.layer[index], self.head[index]
        )


@dataclass(frozen=True)
class Error:
    """How far a spec is from the softmax on some rows."""

    l1: float
    kl: float
    mass: float
    rows: int


def golden_error(spec: AnySpec, rows: RecordedRows) -> Error:
    found = np.where(rows.mask, spec.compute(rows.scores, rows.mask), 0.0)
    # What lies outside a mask has no probability in either.
    return Error(l1(found, rows.exact), divergence(found, rows.exact), mass(found), len(rows))


def recorded_rows(model: str, length: int, rows: int, text: str | None = None) -> RecordedRows:
    """A model's scores on rows of ``length`` tokens, evenly from all layers, heads and queries; made at first use and kept.

    ``text`` is the path of a UTF-8 file; without one the model reads prose from PyPI. Recording needs PyTorch and
    transformers, which this room never imports: it runs in a process of its own.
    """
    content = hashlib.sha256(Path(text).read_bytes()).hexdigest() if text else ""
    name = key(model, length, rows, content, sources=("models.record",))
    options = ["--model", model, "--length", str(length), "--rows", str(rows)]
    options += ["--text", text] if text else []

    def make(partial: Path) -> None:
        try:
            made = run_recorder(*options)
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"scores of {model} at {length}: not recorded within {error.timeout:.0f} s; ask for fewer rows or less length"
            ) from None
        wanted = {field: made[field] for field in ("scores_float", "mask", "layer", "head")}
        with partial.open("wb") as stream:
            np.savez(stream, **wanted)  # type: ignore[arg-type]

    return kept(cache_dir("search", "recorded") / f"{name}.npz", make, lambda path: _read(path, model))


def load_rows(path: str | Path) -> RecordedRows:
    """Scores of a user's own: an .npz file with ``scores`` (rows, columns) and, if rows are of several lengths, ``mask``."""
    try:
        return _read(Path(path), Path(path).stem)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{path}: not recorded scores ({error}); must be .npz with an array `scores` (rows, columns)"
        ) from None


def _read(path: Path, model: str) -> RecordedRows:
    with np.load(path, allow_pickle=False) as data:
        found: dict[str, Any] = dict(data)
    scores = np.asarray(found["scores_float"] if "scores_float" in found else found["scores"], np.float32)
    none = np.zeros(len(scores), np.int16)
    mask = np.asarray(found["mask"], np.bool_) if "mask" in found else np.ones(scores.shape, np.bool_)
    return RecordedRows(model, scores, mask, found.get("layer", none), found.get("head", none))


def layers_of(rows: RecordedRows) -> Sequence[int]:
    return sorted({int(layer) for layer in rows.layer})
