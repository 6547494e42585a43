"""A language model with Softermax and without retraining: perplexity of a text.

A variant is ``exact``, a spec (``paper+fold``), or a spec with ``:deferred`` behind it (A8, emulated).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from softermax.files import write_text
from softermax.models.drop_in import disable, enable
from softermax.models.pretrained import allowed_models, find_model, plain_text
from softermax.progress import Progress
from softermax.spec import get_spec

VARIANTS = (
    "exact",
    "row-scaled+fold",
    "paper+fold:deferred",
    "paper+fold",
    "paper",
    "row-scaled",
)
"""Deferred normalisation (A8) has a PowSum and a reciprocal of its own; from the spec it takes the rest."""


def measure(
    model: str,
    text: str | None,
    text_name: str,
    tokens: int,
    contexts: Sequence[int],
    variants: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    command: str = "",
    report: Progress | None = None,
) -> list[dict[str, Any]]:
    """Perplexity of every variant at every context length; with ``out``, kept as they come and not redone."""
    chosen = list(variants or VARIANTS)
    for variant in chosen:
        parse(variant)
    for context in contexts:
        if context < 2 or tokens % context:
            raise ValueError(f"context {context}: must be 2 or more and a divisor of the {tokens} tokens")
    known = _known(out)
    key = {"model": model, "text": text_name, "tokens": tokens}
    todo = [(c, v) for c in contexts for v in chosen if not _find(known, key | {"context": c, "variant": v})]
    if todo:
        ids, network = _load(model, text, tokens)
    for number, (context, variant) in enumerate(todo):
        if report:
            report(number, len(todo), f"{variant} at {context}")
        value = perplexity(set_variant(network, variant), ids, context)
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        known.append(key | {"context": context, "variant": variant, "perplexity": value, "date": date})
        if out is not None:
            _write(Path(out), known, command)
    if report and todo:
        report(len(todo), len(todo), "")
    return [row | {"to exact": _ratio(known, row)} for row in known if {k: row[k] for k in key} == key]


def parse(variant: str) -> tuple[str | None, bool]:
    """The spec's name (None for exact) and whether normalisation is deferred."""
    if variant == "exact":
        return None, False
    name, colon, mode = variant.partition(":")
    get_spec(name)
    if colon and mode != "deferred":
        raise ValueError(f"variant {variant!r}: allowed behind the colon is deferred")
    return name, bool(colon)


def set_variant(model: PreTrainedModel, variant: str) -> PreTrainedModel:
    name, deferred = parse(variant)
    return disable(model) if name is None else enable(model, name, deferred=deferred)


@torch.no_grad()
def perplexity(model: PreTrainedModel, ids: Tensor, context: int) -> float:
    """exp of the mean negative log likelihood; each piece of ``context`` tokens stands alone."""
    total, count = 0.0, 0
    for piece in ids.split(context):
        logits = model(input_ids=piece[None]).logits[0, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum"))
        count += len(piece) - 1
    return math.exp(total / count)


def _load(model: str, text: str | None, tokens: int) -> tuple[Tensor, PreTrainedModel]:
    where = find_model(model)
    options: dict[str, Any] = {"gguf_file": where.gguf_file} if where.gguf_file else {}
    prose = text if text is not None else plain_text(characters=8 * tokens)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where.path, **options)
        network = AutoModelForCausalLM.from_pretrained(where.path, dtype=torch.float32, **options)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model {model!r} cannot be loaded ({reason}); {allowed_models()}") from error
    # Twelve characters a token are more than any prose has, and the whole file need not be tokenised.
    ids = tokenizer(prose[: 12 * tokens], return_tensors="pt", verbose=False)["input_ids"][0][:tokens]
    if len(ids) < tokens:
        raise ValueError(f"the text has {len(ids)} tokens, {tokens} are needed")
    return ids, network.eval()


def _known(out: str | os.PathLike[str] | None) -> list[dict[str, Any]]:
    path = Path(out) / "perplexity.json" if out is not None else None
    if path is None or not path.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def _find(rows: Sequence[dict[str, Any]], wanted: dict[str, Any]) -> dict[str, Any] | None:
    return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)


def _ratio(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> float | None:
    """Perplexity over that of the exact softmax on the same text, less one."""
    same = {k: row[k] for k in ("model", "text", "tokens", "context")}
    exact = _find(rows, same | {"variant": "exact"})
    return row["perplexity"] / exact["perplexity"] - 1 if exact else None


def _write(folder: Path, rows: Sequence[dict[str, Any]], command: str) -> None:
    write_text(folder / "perplexity.json", json.dumps(rows, indent=1) + "\n")
    lines = [
        "# Perplexity without retraining",
        "",
        "Each piece of text stands alone; in brackets the difference to the exact softmax. `:deferred` is A8 with",
        "float values, weights and PowSum in A8's integers.",
        "",
        f"Command: `{command}`; torch {version('torch')}, transformers {version('transformers')}, "
        f"{max(str(r['date']) for r in rows)}.",
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
    write_text(folder / "perplexity.md", "\n".join(lines))
