"""Scores that the units work on: attention scores of a real model on real text, and Gaussian ones.

Both come as float scores and as the raw words of the paper's input format, so that a Softermax unit
and a half-precision one do the same job.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.cache import cache_dir, kept, key
from softermax.fixedpoint import IntArray
from softermax.spec import SoftermaxSpec

COLUMNS = 384
"""SQuAD's sequence length, the paper's workload."""
GAUSSIAN_DEVIATION = 2.0
_RECORD_TIMEOUT = 600
RECORDER = ("models.record",)
"""The sources that decide what is recorded."""


@dataclass(frozen=True)
class Scores:
    """Rows of scores: float, and the same in half precision as bits."""

    name: str
    values: NDArray[np.float32]
    """(rows, columns)."""

    @property
    def half(self) -> IntArray:
        return self.values.astype(np.float16).view(np.uint16).astype(np.int64)

    def raw(self, spec: SoftermaxSpec) -> IntArray:
        return golden.quantize(self.values, spec)

    def take(self, rows: int) -> Scores:
        """That many rows, spread evenly over all; repeated from the start where there are too few."""
        index = np.arange(rows) * max(1, len(self.values) // rows) % len(self.values)
        return Scores(self.name, self.values[index])

    @property
    def content(self) -> str:
        return hashlib.sha256(self.name.encode() + self.values.tobytes()).hexdigest()[:16]


def gaussian(rows: int, columns: int = COLUMNS, seed: int = 0) -> Scores:
    values = np.random.default_rng(seed).normal(0.0, GAUSSIAN_DEVIATION, (rows, columns))
    return Scores("gaussian", values.astype(np.float32))


def recorded() -> tuple[Scores | None, str]:
    """Recorded attention scores, made at first use and cached; without them, the reason why.

    Recording needs PyTorch and transformers, which this package never imports: it runs in a process
    of its own.
    """
    saved = cache_dir("silicon", "stimuli") / f"attention-{key(COLUMNS, sources=RECORDER)}.npz"
    try:
        return Scores("attention", kept(saved, _record, _read)), ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, f"attention scores cannot be recorded: {error}"


def both_kinds(rows: int) -> tuple[list[Scores], str]:
    """Recorded scores first where they can be had, then Gaussian ones; and why there are no recorded ones."""
    real, note = recorded()
    made = gaussian(rows)
    return ([real, made] if real is not None else [made]), note


def run_recorder(*options: str) -> dict[str, NDArray[Any]]:
    """What the recorder writes with these options. It runs in a process of its own: it needs torch."""
    with tempfile.TemporaryDirectory(prefix="softermax-") as folder:
        made = Path(folder) / "recorded.npz"
        done = subprocess.run(
            [sys.executable, "-m", "softermax.models.record", str(made), *options],
            capture_output=True,
            text=True,
            timeout=_RECORD_TIMEOUT,
            check=False,
        )
        if done.returncode != 0 or not made.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ValueError(said[-1] if said else "the recorder wrote nothing")
        with np.load(made, allow_pickle=False) as data:
            return dict(data)


def _record(partial: Path) -> None:
    scores = run_recorder()["scores_float"].astype(np.float32)
    if scores.ndim != 2 or scores.shape[1] != COLUMNS:
        raise ValueError(f"the recorder wrote scores of shape {scores.shape}, expected (rows, {COLUMNS})")
    with partial.open("wb") as stream:
        np.savez(stream, scores=scores, allow_pickle=False)


def _read(path: Path) -> NDArray[np.float32]:
    with np.load(path, allow_pickle=False) as data:
        return np.asarray(data["scores"], dtype=np.float32)
