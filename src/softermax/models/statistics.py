"""What real attention looks like in fixed point: saturation, flushed probabilities, remaining mass.

A model runs on real text with its exact softmax; each layer's scores then go through Softermax beside
it. The figures tell which preset the model needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softermax.files import replacing
from softermax.functional import softermax
from softermax.models.drop_in import Attended, observe, use_softmax
from softermax.models.masks import rows_spec
from softermax.models.pretrained import load_network, plain_text
from softermax.pytorch import words
from softermax.spec import AnySpec, DeferredSpec, get_spec

_MASS_LOST = 0.02
_SATURATED = 0.01


@dataclass(frozen=True)
class LayerStatistics:
    """One layer over all heads, queries and sequences. Shares are of unmasked elements."""

    layer: int
    lowest_score: float
    highest_score: float
    saturated: float
    """Scores that the input word clips."""
    worst_head: float
    """The same in the head that clips most."""
    flushed: float
    """Probabilities that come out as zero though the exact one is not."""
    flushed_mass: float
    """What the flushed ones weigh together in the exact softmax, mean over rows."""
    row_sum: float
    """What the probabilities of a row add up to, mean over rows."""
    row_sum_low: float
    """The first percentile of it."""


def attention_statistics(
    model: str, spec: str | AnySpec, text: str | None, length: int, sequences: int
) -> list[LayerStatistics]:
    """Statistics of each layer on ``sequences`` pieces of ``length`` tokens of a text."""
    if length < 2 or sequences < 1:
        raise ValueError(f"length = {length}, sequences = {sequences}: must be 2 or more, 1 or more")
    chosen = get_spec(spec) if isinstance(spec, str) else spec
    tokenizer, network = load_exact(model)
    longest = getattr(network.config, "max_position_embeddings", length)
    if length > longest:
        raise ValueError(f"length = {length}: {model} takes at most {longest} tokens")
    prose = text if text is not None else plain_text(characters=8 * length * (sequences + 1))
    ids = tokenizer(prose, add_special_tokens=False, return_tensors="pt", verbose=False)["input_ids"][0]
    if len(ids) < length * sequences:
        raise ValueError(f"the text has {len(ids)} tokens; {sequences} of {length} need {length * sequences}")
    layers: dict[int, list[Tensor]] = {}  # by module, in the order of the first pass

    def see(call: Attended) -> None:
        layers.setdefault(id(call.module), []).append(_row_figures(call, chosen))

    with torch.no_grad(), observe(see):
        for n in range(sequences):
            network(input_ids=ids[n * length : (n + 1) * length][None])
    return [_summary(number, parts) for number, parts in enumerate(layers.values())]


def load_exact(model: str) -> tuple[Any, Any]:
    """Tokenizer and headless model with the exact softmax of our attention."""
    from transformers import AutoModel

    tokenizer, network = load_network(model, AutoModel)
    return tokenizer, use_softmax(network)


def _row_figures(call: Attended, spec: AnySpec) -> Tensor:
    """(rows, 8): lowest, highest, clipped, elements, flushed, flushed mass, row sum, head of each row."""
    scores = call.scores
    mask = (
        call.mask.expand(scores.shape) if call.mask is not None else torch.ones_like(scores, dtype=torch.bool)
    )
    exact = call.probabilities
    ours = softermax(scores, mask=mask, spec=spec)
    clipped = words.saturates(scores, rows_spec(spec)) & mask
    flushed = (ours == 0) & (exact > 0) & mask
    infinite = torch.finfo(scores.dtype).max
    heads = torch.arange(scores.shape[1])[None, :, None].expand(scores.shape[:-1])
    columns = [
        scores.masked_fill(~mask, infinite).amin(-1),
        scores.masked_fill(~mask, -infinite).amax(-1),
        clipped.sum(-1),
        mask.sum(-1),
        flushed.sum(-1),
        (exact * flushed).sum(-1),
        ours.sum(-1),
        heads,
    ]
    return torch.stack([c.float().flatten() for c in columns], dim=1)


def _summary(number: int, parts: Sequence[Tensor]) -> LayerStatistics:
    low, high, clipped, elements, flushed, mass, sums, heads = torch.cat(list(parts)).double().unbind(1)
    total = elements.sum()
    by_head = [
        float(clipped[heads == h].sum() / elements[heads == h].sum()) for h in range(int(heads.max()) + 1)
    ]
    return LayerStatistics(
        number,
        float(low.min()),
        float(high.max()),
        float(clipped.sum() / total),
        max(by_head),
        float(flushed.sum() / total),
        float(mass.mean()),
        float(sums.mean()),
        float(torch.quantile(sums, 0.01)),
    )


def advice(rows: Sequence[LayerStatistics], spec: str | AnySpec) -> str:
    """What the figures mean for the choice of a preset."""
    chosen = get_spec(spec) if isinstance(spec, str) else spec
    lost = max(row.flushed_mass for row in rows)
    word = "weight" if isinstance(chosen, DeferredSpec) else "output"
    if lost <= _MASS_LOST:
        lines = [f"The {word} word flushes at most {lost:.1%} of a layer's mass: it is wide enough."]
    else:
        fixed = not isinstance(chosen, DeferredSpec) and chosen.output_mode == "fixed"
        cure = "row-scaled (A7) or deferred (A8)" if fixed else "one of more bits in a .json file"
        lines = [f"The {word} word flushes up to {lost:.1%} of a layer's mass; {cure} keeps more."]
    clipped = max(row.worst_head for row in rows)
    if clipped > _SATURATED:
        lines.append(
            f"One head saturates {clipped:.1%} of its scores; an input word of more bits in a .json file avoids it."
        )
    return "\n".join(lines)


def plot(path: str | os.PathLike[str], rows: Sequence[LayerStatistics], title: str) -> None:
    """Three panels over the layers: saturation, flushed elements and mass, row sums."""
    from softermax.extras import need

    figure = need("matplotlib.figure", "cli").Figure(figsize=(9, 3), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    layers = [row.layer for row in rows]
    left.plot(layers, [100 * row.saturated for row in rows], "o-", label="all heads")
    left.plot(layers, [100 * row.worst_head for row in rows], "x--", label="worst head")
    left.set_ylabel("scores that saturate, %")
    middle.plot(layers, [100 * row.flushed for row in rows], "o-", label="elements")
    middle.plot(layers, [100 * row.flushed_mass for row in rows], "x--", label="their mass")
    middle.set_ylabel("flushed to zero, %")
    right.plot(layers, [row.row_sum for row in rows], "o-", label="mean")
    right.plot(layers, [row.row_sum_low for row in rows], "x--", label="1st percentile")
    right.set_ylabel("row sum")
    for axes in (left, middle, right):
        axes.set_xlabel("layer")
        axes.legend()
    figure.suptitle(title)
    kind = Path(path).suffix.lstrip(".") or "svg"
    if kind not in ("svg", "png", "pdf"):
        raise ValueError(f"--plot {os.fspath(path)}: must be a name that ends in .svg, .png or .pdf")
    with replacing(path) as partial:
        figure.savefig(partial, format=kind)
