"""A language model with Softermax and without retraining: perplexity of a text.

A text is read in windows, evenly spaced over all of it, each of which stands alone: its opening passage may be twice as
hard as the rest. Variants are compared window by window, and the interval of a difference is a paired bootstrap over windows.

A variant is ``exact``, a spec's name (``paper+fold``, ``paper+fold:deferred``) or a rival's (``rival:ita``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from softermax.models.drop_in import enable, use_softmax
from softermax.models.pretrained import load_network, plain_text
from softermax.progress import Progress, silent, within
from softermax.results import today
from softermax.rivals import get_attention

VARIANTS = (
    "exact",
    "row-scaled+fold",
    "lean-row-scaled+fold",
    "paper+fold:deferred",
    "paper+fold",
    "lean+fold",
    "paper",
    "row-scaled",
)

Rows = list[dict[str, Any]]
BEGINS = ("gemma3_text",)
"""Models whose every text begins with the tokenizer's first token; without it they predict poorly."""
RESAMPLES = 2000
"""Draws of the bootstrap."""


def measure_perplexity(
    model: str,
    text: str | None,
    text_name: str,
    tokens: int,
    contexts: Sequence[int],
    variants: Sequence[str] | None = None,
    known: Sequence[Mapping[str, Any]] = (),
    keep: Callable[[Rows], object] | None = None,
    report: Progress = silent,
) -> Rows:
    """Perplexity of every variant at every context length, beside the ``known`` rows, which are not measured again.

    ``tokens`` are scored in all, in as many windows as a context length makes of them. A row keeps each window's loss. ``keep`` gets all rows after each new one, so that an interrupted run can go on from there.
    """
    chosen = list(variants or VARIANTS)
    check_variants(chosen)
    for context in contexts:
        if context < 2 or tokens % context:
            raise ValueError(f"context {context}: must be 2 or more and a divisor of the {tokens} tokens")
    # Rows of an older file, of the text's opening instead of windows, have no losses and are measured anew.
    rows = [dict(row) for row in known if "losses" in row]
    key = {"model": model, "text": text_name, "tokens": tokens}
    todo = [(c, v) for c in contexts for v in chosen if not _find(rows, key | {"context": c, "variant": v})]
    if todo:
        ids, first, network = load_text(model, text, tokens)
    for number, (context, variant) in enumerate(todo):
        pieces = windows(ids, context, tokens // context, first)
        found = losses(
            set_variant(network, variant),
            pieces,
            f"{variant} at {context}",
            within(report, number, len(todo)),
        )
        rows.append(
            key
            | {"context": context, "variant": variant, "perplexity": math.exp(np.mean(found))}
            | {"losses": [round(loss, 6) for loss in found], "date": today()}
        )
        if keep is not None:
            keep(rows)
    if todo:
        report(len(todo), len(todo), "")
    return rows


def compared(
    rows: Sequence[Mapping[str, Any]], model: str, text_name: str, tokens: int
) -> list[dict[str, Any]]:
    """The rows of one text, each with its difference to the exact softmax and that one's interval."""
    key = {"model": model, "text": text_name, "tokens": tokens}
    mine = [row for row in rows if {k: row[k] for k in key} == key]
    return [
        {k: v for k, v in row.items() if k != "losses"}
        | {"windows": len(row["losses"])}
        | _to_exact(rows, row)
        for row in mine
    ]


def check_variants(variants: Sequence[str]) -> None:
    """An error for a name that is neither ``exact`` nor a spec nor ``rival:NAME``."""
    for variant in variants:
        if variant != "exact":
            get_attention(variant)


def set_variant(model: PreTrainedModel, variant: str) -> PreTrainedModel:
    return use_softmax(model) if variant == "exact" else enable(model, variant)


def windows(ids: Tensor, context: int, count: int, first: int | None = None) -> list[Tensor]:
    """``count`` pieces of ``context`` tokens, evenly spaced from the first token to the last.

    ``first`` takes the place of each piece's first token: what begins every text of the model.
    """
    if count * context > len(ids):
        raise ValueError(f"the text has {len(ids)} tokens, {count * context} are needed")
    starts = np.linspace(0, len(ids) - context, count).round().astype(int) if count > 1 else [0]
    pieces = [ids[start : start + context].clone() for start in starts]
    if first is not None:
        for piece in pieces:
            piece[0] = first
    return pieces


@torch.no_grad()
def losses(
    model: PreTrainedModel, pieces: Sequence[Tensor], note: str = "", report: Progress = silent
) -> list[float]:
    """The mean negative log likelihood of each piece's tokens but the first."""
    found = []
    for done, piece in enumerate(pieces):
        report(done, len(pieces), note)
        logits = model(input_ids=piece[None]).logits[0, :-1].float()
        found.append(float(torch.nn.functional.cross_entropy(logits, piece[1:])))
    return found


def load_text(model: str, text: str | None, tokens: int) -> tuple[Tensor, int | None, PreTrainedModel]:
    """The tokens of a text, what every text of the model begins with, and the model, in single precision."""
    prose = text if text is not None else plain_text(characters=16 * tokens)
    tokenizer, network = load_network(model, AutoModelForCausalLM)
    ids = tokenizer(prose, add_special_tokens=False, return_tensors="pt", verbose=False)["input_ids"][0]
    return ids, tokenizer.bos_token_id if network.config.model_type in BEGINS else None, network


def interval(ours: Sequence[float], exact: Sequence[float]) -> tuple[float, float]:
    """95 % of a paired bootstrap over windows: perplexity over that of the exact softmax, less one."""
    apart = np.asarray(ours) - np.asarray(exact)
    drawn = np.random.default_rng(0).integers(0, len(apart), (RESAMPLES, len(apart)))
    low, high = np.quantile(np.expm1(apart[drawn].mean(axis=1)), (0.025, 0.975))
    return float(low), float(high)


def _find(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)


def _to_exact(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, float | None]:
    """Perplexity over that of the exact softmax on the same windows, less one, and an interval if windows are several."""
    same = {k: row[k] for k in ("model", "text", "tokens", "context")}
    exact = _find(rows, same | {"variant": "exact"})
    if exact is None:
        return {"to exact": None, "low": None, "high": None}
    low, high = interval(row["losses"], exact["losses"]) if len(exact["losses"]) > 1 else (None, None)
    return {"to exact": row["perplexity"] / exact["perplexity"] - 1, "low": low, "high": high}


def perplexity_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a table per model and text, variants by context lengths."""
    lines = [
        "# Perplexity without retraining",
        "",
        "Windows are evenly spaced over the text, and each stands alone. In brackets: the difference to the exact softmax, with a",
        "95 % interval from a paired bootstrap over windows where there are several. `:deferred` is A8 with float values, weights",
        "and PowSum in A8's integers. The packaged SmolLM2 is the Instruct model in 4 bits.",
        "",
    ]
    for model, text, tokens in dict.fromkeys((r["model"], r["text"], r["tokens"]) for r in rows):
        mine = [r for r in rows if (r["model"], r["text"], r["tokens"]) == (model, text, tokens)]
        contexts = sorted({r["context"] for r in mine})
        lines += [
            f"## {model}, {text}, {tokens} tokens at each context",
            "",
            "| attention | " + " | ".join(f"context {c}" for c in contexts) + " |",
            "|" + "---|" * (1 + len(contexts)),
        ]
        for variant in dict.fromkeys(r["variant"] for r in mine):
            cells = []
            for context in contexts:
                row = _find(mine, {"context": context, "variant": variant})
                cells.append("" if row is None else _cell(row, _to_exact(mine, row)))
            lines.append(f"| `{variant}` | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], apart: Mapping[str, float | None]) -> str:
    figure = f"{row['perplexity']:.2f}"
    if not apart["to exact"]:
        return figure
    if apart["low"] is None:
        return f"{figure} ({apart['to exact']:+.2%})"
    return f"{figure} ({apart['to exact']:+.2%}, {apart['low']:+.2%} to {apart['high']:+.2%})"
