"""A language model with Softermax and without retraining: perplexity of a text.

A variant is ``exact`` or a spec's name (``paper+fold``, ``paper+fold:deferred``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from softermax.models.drop_in import enable, use_softmax
from softermax.models.pretrained import load_network, plain_text
from softermax.progress import Progress, silent
from softermax.results import today
from softermax.spec import get_spec

VARIANTS = (
    "exact",
    "row-scaled+fold",
    "paper+fold:deferred",
    "paper+fold",
    "paper",
    "row-scaled",
)

Rows = list[dict[str, Any]]


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

    ``keep`` gets all rows after each new one, so that an interrupted run can go on from there.
    """
    chosen = list(variants or VARIANTS)
    check_variants(chosen)
    for context in contexts:
        if context < 2 or tokens % context:
            raise ValueError(f"context {context}: must be 2 or more and a divisor of the {tokens} tokens")
    rows = [dict(row) for row in known]
    key = {"model": model, "text": text_name, "tokens": tokens}
    todo = [(c, v) for c in contexts for v in chosen if not _find(rows, key | {"context": c, "variant": v})]
    if todo:
        ids, network = load_text(model, text, tokens)
    for number, (context, variant) in enumerate(todo):
        report(number, len(todo), f"{variant} at {context}")
        value = perplexity(set_variant(network, variant), ids, context)
        rows.append(key | {"context": context, "variant": variant, "perplexity": value, "date": today()})
        if keep is not None:
            keep(rows)
    if todo:
        report(len(todo), len(todo), "")
    return rows


def compared(
    rows: Sequence[Mapping[str, Any]], model: str, text_name: str, tokens: int
) -> list[dict[str, Any]]:
    """The rows of one text, each with its difference to the exact softmax."""
    key = {"model": model, "text": text_name, "tokens": tokens}
    return [dict(row) | {"to exact": _ratio(rows, row)} for row in rows if {k: row[k] for k in key} == key]


def check_variants(variants: Sequence[str]) -> None:
    """An error for a name that is neither ``exact`` nor a spec."""
    for variant in variants:
        if variant != "exact":
            get_spec(variant)


def set_variant(model: PreTrainedModel, variant: str) -> PreTrainedModel:
    return use_softmax(model) if variant == "exact" else enable(model, variant)


@torch.no_grad()
def perplexity(model: PreTrainedModel, ids: Tensor, context: int) -> float:
    """exp of the mean negative log likelihood; each piece of ``context`` tokens stands alone."""
    total, count = 0.0, 0
    for piece in ids.split(context):
        logits = model(input_ids=piece[None]).logits[0, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum"))
        count += len(piece) - 1
    return math.exp(total / count)


def load_text(model: str, text: str | None, tokens: int) -> tuple[Tensor, PreTrainedModel]:
    """The first tokens of a text, and the language model, in single precision."""
    prose = text if text is not None else plain_text(characters=8 * tokens)
    tokenizer, network = load_network(model, AutoModelForCausalLM)
    # Twelve characters per token are more than any prose has, and the whole file need not be tokenised.
    ids = tokenizer(prose[: 12 * tokens], return_tensors="pt", verbose=False)["input_ids"][0][:tokens]
    if len(ids) < tokens:
        raise ValueError(f"the text has {len(ids)} tokens, {tokens} are needed")
    return ids, network


def _find(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)


def _ratio(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> float | None:
    """Perplexity over that of the exact softmax on the same text, less one."""
    same = {k: row[k] for k in ("model", "text", "tokens", "context")}
    exact = _find(rows, same | {"variant": "exact"})
    return row["perplexity"] / exact["perplexity"] - 1 if exact else None


def perplexity_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a table per model and text, variants by context lengths."""
    lines = [
        "# Perplexity without retraining",
        "",
        "Each piece of text stands alone; in brackets the difference to the exact softmax. `:deferred` is A8 with",
        "float values, weights and PowSum in A8's integers.",
        "",
    ]
    for model, text, tokens in dict.fromkeys((r["model"], r["text"], r["tokens"]) for r in rows):
        mine = [r for r in rows if (r["model"], r["text"], r["tokens"]) == (model, text, tokens)]
        contexts = sorted({r["context"] for r in mine})
        lines += [
            f"## {model}, {text}, {tokens} tokens",
            "",
            "| attention | " + " | ".join(f"context {c}" for c in contexts) + " |",
            "|" + "---|" * (1 + len(contexts)),
        ]
        for variant in dict.fromkeys(r["variant"] for r in mine):
            cells = []
            for context in contexts:
                row = _find(mine, {"context": context, "variant": variant})
                ratio = _ratio(mine, row) if row else None
                cells.append(
                    "" if row is None else f"{row['perplexity']:.2f}" + (f" ({ratio:+.2%})" if ratio else "")
                )
            lines.append(f"| `{variant}` | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)
