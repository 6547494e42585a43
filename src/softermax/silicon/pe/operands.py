"""Operands of a real model's attention, for the PE's lanes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.cache import cache_dir, kept, key
from softermax.silicon.pe.counts import HEAD_SIZE
from softermax.silicon.stimuli import COLUMNS, RECORDER, run_recorder

_SOURCES = (*RECORDER, "silicon/pe/operands.py")


@dataclass(frozen=True)
class Operands:
    """Queries, keys and values (rows, head size) of one head, and the scale of the scores."""

    name: str
    q: NDArray[np.int8]
    k: NDArray[np.int8]
    v: NDArray[np.int8]
    scale: float


def operands() -> tuple[Operands, str]:
    """Operands of a head of 64 of the recorded model, made at first use and cached; without them, random ones and the
    reason why.

    MiniLM's heads are 32 wide. Two that stand side by side are taken for one of 64, so that an accumulator adds up as
    many chunks as in the paper's BERT.
    """
    saved = cache_dir("silicon", "stimuli") / f"operands-{key(HEAD_SIZE, sources=_SOURCES)}.npz"
    try:
        return kept(saved, _record, _read), ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        rng = np.random.default_rng(0)
        shape = (COLUMNS, HEAD_SIZE)
        q, k, v = (np.clip(rng.normal(0, 32, shape), -128, 127).astype(np.int8) for _ in range(3))
        return Operands("random", q, k, v, 2.0**-12), f"attention operands cannot be recorded: {error}"


def _record(partial: Path) -> None:
    heads = [run_recorder("--rows", "1", "--head", "0")]
    width = heads[0]["q"].shape[1]
    if HEAD_SIZE % width:
        raise ValueError(f"the recorder wrote heads of {width}, of which none of {HEAD_SIZE} can be made")
    heads += [run_recorder("--rows", "1", "--head", str(n)) for n in range(1, HEAD_SIZE // width)]
    made: dict[str, Any] = {}
    for name in ("q", "k", "v"):
        made[name], made[f"{name}_scale"] = _side_by_side(
            [head[name] for head in heads], [float(head[f"{name}_scale"]) for head in heads]
        )
    scale = made["q_scale"] * made["k_scale"] / float(np.sqrt(HEAD_SIZE))
    with partial.open("wb") as stream:
        np.savez(stream, q=made["q"], k=made["k"], v=made["v"], scale=scale, allow_pickle=False)


def _side_by_side(parts: list[NDArray[Any]], scales: list[float]) -> tuple[NDArray[np.int8], float]:
    """Integers with a scale each as one array with one scale, the largest: the others' are rounded to it."""
    scale = max(scales)
    words = [
        np.rint(part.astype(np.float64) * (own / scale)) for part, own in zip(parts, scales, strict=True)
    ]
    return np.concatenate(words, axis=1).astype(np.int8), scale


def _read(path: Path) -> Operands:
    with np.load(path, allow_pickle=False) as data:
        return Operands("attention", data["q"], data["k"], data["v"], float(data["scale"]))
