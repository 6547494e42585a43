"""Is every word of a lean preset needed? Errors of variants, one word changed at a time, on Gaussian rows and real attention.

An error is the L1 distance of a row to the exact softmax of the same float scores, all with the fold (A9), mean over rows. Each
variant stands beside the paper's words with the same kind of output, which is what lean must not be worse than.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.golden import BoolArray
from softermax.progress import Progress, silent
from softermax.spec import LOG2E, PRESETS, SoftermaxSpec

LENGTHS = (16, 64, 128, 384, 1024, 2048, 8192)
DEVIATIONS = (1.0, 2.0, 3.0)
ELEMENTS = 1 << 16
"""Of a set of Gaussian rows, at least 16 rows and at most 512."""
MODELS = ("minilm", "mpnet", "smollm2")
RECORDED_ROWS = 480
RECORDED_LENGTH = 384

PAIRS = {"lean": "paper", "lean-row-scaled": "row-scaled"}
"""The lean presets, and whose words they are shorter than."""

NO_CHANGE = "none"
OFFSET = "an offset per head"

CHANGES: dict[str, dict[str, Any]] = {
    NO_CHANGE: {},
    "unnormed Q(1,15), truncated": {"unnormed": "Q(1,15)", "unnormed_rounding": "truncate"},
    "unnormed Q(1,10), truncated": {"unnormed": "Q(1,10)", "unnormed_rounding": "truncate"},
    "unnormed Q(1,9), truncated": {"unnormed": "Q(1,9)", "unnormed_rounding": "truncate"},
    "unnormed Q(1,8), truncated": {"unnormed": "Q(1,8)", "unnormed_rounding": "truncate"},
    "unnormed Q(1,10)": {"unnormed": "Q(1,10)"},
    "unnormed Q(1,9)": {"unnormed": "Q(1,9)"},
    "unnormed Q(1,8)": {"unnormed": "Q(1,8)"},
    "unnormed Q(1,7)": {"unnormed": "Q(1,7)"},
    "unnormed Q(1,6)": {"unnormed": "Q(1,6)"},
    "unnormed half-even": {"unnormed_rounding": "half-even"},
    "product Q(1,15)": {"product": "Q(1,15)"},
    "product Q(1,10)": {"product": "Q(1,10)"},
    "product Q(1,9)": {"product": "Q(1,9)"},
    "product Q(1,7)": {"product": "Q(1,7)"},
    "unnormed and product Q(1,7)": {"unnormed": "Q(1,7)", "product": "Q(1,7)"},
    "2^x in 2 segments": {"pow2_segments": 2},
    "2^x in 1 segment": {"pow2_segments": 1},
    "powsum 8 fraction bits": {"powsum": 8},
    "powsum 5 fraction bits": {"powsum": 5},
    "powsum 4 fraction bits": {"powsum": 4},
    "powsum truncated": {"powsum_rounding": "truncate"},
    "reciprocal Q(1,9)": {"reciprocal": "Q(1,9)"},
    "reciprocal Q(1,6)": {"reciprocal": "Q(1,6)"},
    "reciprocal Q(1,5)": {"reciprocal": "Q(1,5)"},
    "1/x in 8 segments": {"reciprocal_segments": 8},
    "1/x in 2 segments": {"reciprocal_segments": 2},
    "1/x in 1 segment": {"reciprocal_segments": 1},
    "input Q(6,3)": {"input": "Q(6,3)"},
    "input Q(6,1)": {"input": "Q(6,1)"},
    "input Q(5,2)": {"input": "Q(5,2)", "max": "Q(5,2)"},
    OFFSET: {},
}
"""What is changed of a lean preset, by what a table calls it. A number of ``powsum`` is its fraction bits."""


@dataclass(frozen=True)
class ScoreSet:
    """Rows of float scores that are measured together."""

    name: str
    scores: NDArray[np.float32]
    mask: BoolArray
    head: NDArray[np.int64]
    """Which head each row comes from: an offset is a head's own."""

    def shifted(self, top: float) -> ScoreSet:
        """The same rows, each head's lowered so far that its largest score is ``top`` at most: softmax stays the same."""
        seen = np.where(self.mask, self.scores, -np.inf).max(-1)
        largest = np.full(int(self.head.max()) + 1, -np.inf)
        np.maximum.at(largest, self.head, seen)
        down = np.maximum(largest - top, 0.0)[self.head]
        return replace(self, scores=(self.scores - down[:, None]).astype(np.float32))

    @property
    def exact(self) -> NDArray[np.float64]:
        masked = np.where(self.mask, self.scores.astype(np.float64), -np.inf)
        powers = np.exp(masked - masked.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))


@lru_cache(maxsize=64)
def gaussian_set(length: int, deviation: float) -> ScoreSet:
    rows = int(np.clip(ELEMENTS // length, 16, 512))
    rng = np.random.default_rng((length, int(deviation)))
    scores = rng.normal(0, deviation, (rows, length)).astype(np.float32)
    name = f"gaussian {length} x {deviation:g}"
    return ScoreSet(name, scores, np.ones(scores.shape, np.bool_), np.zeros(rows, np.int64))


def recorded_set(model: str, rows: int = RECORDED_ROWS, length: int = RECORDED_LENGTH) -> ScoreSet:
    """Rows picked evenly from all layers, heads and queries of a model that reads prose.

    A model that is not installed is an error that says how to get it.
    """
    import torch

    from softermax.models.attention import Attended, observe
    from softermax.models.pretrained import plain_text
    from softermax.models.statistics import load_exact

    tokenizer, network = load_exact(model)
    text = plain_text(characters=16 * length)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt", verbose=False)["input_ids"][
        :, :length
    ]
    seen: list[Attended] = []
    with torch.no_grad(), observe(seen.append):
        network(input_ids=ids)
    heads = seen[0].scores.shape[1]
    every = np.linspace(0, len(seen) * heads * length - 1, rows).astype(np.int64)
    layer, head, query = every // (heads * length), every // length % heads, every % length
    scores = np.stack(
        [seen[n].scores[0, h, q].float().numpy() for n, h, q in zip(layer, head, query, strict=True)]
    )
    masks = [
        call.mask.expand(call.scores.shape)
        if call.mask is not None
        else torch.ones_like(call.scores, dtype=torch.bool)
        for call in seen
    ]
    mask = np.stack([masks[n][0, h, q].numpy() for n, h, q in zip(layer, head, query, strict=True)])
    return ScoreSet(model, scores, mask, layer * heads + head)


def score_sets(models: Sequence[str], report: Progress = silent) -> tuple[list[ScoreSet], dict[str, str]]:
    """All sets, and why a model has none."""
    sets = [gaussian_set(length, deviation) for length in LENGTHS for deviation in DEVIATIONS]
    missing: dict[str, str] = {}
    for number, model in enumerate(models):
        report(number, len(models), f"attention of {model}")
        try:
            sets.append(recorded_set(model))
        except (ImportError, OSError, ValueError) as error:
            missing[model] = str(error).splitlines()[0]
    return sets, missing


def changed(preset: str, change: Mapping[str, Any]) -> SoftermaxSpec:
    """A preset with the fold and with some fields changed; ``powsum`` may be its fraction bits alone."""
    spec = PRESETS[preset].replace(base="fold")
    fields = dict(change)
    if isinstance(fields.get("powsum"), int):
        fields["powsum"] = (spec.powsum.integer, fields["powsum"])
    return spec.replace(**fields)


def distance(spec: SoftermaxSpec, rows: ScoreSet) -> tuple[float, float]:
    """L1 distance to the exact softmax and sum of a row, means over rows."""
    found = golden.softermax(golden.quantize(rows.scores, spec, rows.mask), spec, rows.mask).value
    return float(np.abs(found - rows.exact).sum(-1).mean()), float(found.sum(-1).mean())


def measure_words(
    sets: Sequence[ScoreSet],
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    report: Progress = silent,
) -> list[dict[str, Any]]:
    """A row per preset and change: its distance and row sum on every set, and the ratio of its distances to those of the
    paper's words. The rows of those stand first, without a change."""
    chosen = CHANGES if changes is None else changes
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for number, one in enumerate(sets):
        report(number, len(sets), one.name)
        lowered = one.shifted(PRESETS["lean"].max_high / LOG2E)
        saturates = not np.array_equal(lowered.scores, one.scores)
        for lean, paper in PAIRS.items():
            found.setdefault((paper, NO_CHANGE), {})[one.name] = distance(changed(paper, {}), one)
            for name, change in chosen.items():
                try:
                    spec = changed(lean, change)
                except ValueError:  # as products that are shorter than the output
                    continue
                if name == OFFSET and not saturates:
                    continue
                if change and spec == changed(lean, {}):
                    continue  # the preset has this word
                by_set = found.setdefault((lean, name), {})
                by_set[one.name] = distance(spec, lowered if name == OFFSET else one)
    report(len(sets), len(sets), "")
    return [_row(preset, change, by_set, found) for (preset, change), by_set in found.items()]


def _row(
    preset: str, change: str, by_set: Mapping[str, tuple[float, float]], found: Mapping[Any, Any]
) -> dict[str, Any]:
    paper = found[PAIRS.get(preset, preset), NO_CHANGE]
    ratios = {name: l1 / paper[name][0] for name, (l1, _) in by_set.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    return {
        "preset": preset,
        "change": change,
        "mean_ratio": round(float(np.mean(list(ratios.values()))), 4),
        "worst_ratio": round(ratios[worst], 4),
        "worst_on": worst,
        "l1": {name: round(l1, 5) for name, (l1, _) in by_set.items()},
        "row_sum": {name: round(total, 5) for name, (_, total) in by_set.items()},
    }
