"""search --perplexity and --evaluate: finalists in a model."""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cache import cache_dir, key, look_up
from softermax.cli.output import progress
from softermax.cli.torch_setup import begin_torch
from softermax.files import read_text, write_text
from softermax.results import versions

if TYPE_CHECKING:
    from softermax.search.front import Found


def in_models(args: argparse.Namespace, points: Sequence[Found]) -> dict[str, dict[str, Any]]:
    """What finalists do in a model, by their names: perplexity, or points that a task loses."""
    if not (args.perplexity or args.evaluate):
        return {}
    from softermax.search.finals import finalists

    args.threads = None
    begin_torch(args)
    chosen = finalists(points, args.finalists)
    found: dict[str, dict[str, Any]] = {point.name: {} for point in chosen}
    if args.perplexity:
        for name, row in _perplexities(args, chosen).items():
            found[name] |= row
    if args.evaluate:
        for name, row in _scores(args, chosen).items():
            found[name] |= row
    return found


def _perplexities(args: argparse.Namespace, chosen: Sequence[Found]) -> dict[str, dict[str, float]]:
    """Each is kept as it comes: a command that was interrupted goes on from there."""
    from softermax.models.perplexity import interval, measure_perplexity

    text = read_text(args.text) if args.text else None
    folder = cache_dir("search", "perplexity", _key(args, text))
    rows = folder / "rows.json"
    variants = {str(folder / f"{key(point.spec.to_json())}.json"): point for point in chosen}
    for path, point in variants.items():
        write_text(path, point.spec.to_json())
    with progress("perplexity", args.quiet) as report:

        def told(done: int, total: int, note: str) -> None:
            file, at, length = note.partition(" at ")
            report(done, total, (variants[file].name if file in variants else file) + at + length)

        measured = measure_perplexity(
            args.model,
            text,
            "text",
            args.perplexity,
            [args.length],
            ["exact", *variants],
            known=look_up(rows, lambda path: json.loads(read_text(path))) or [],
            keep=lambda found: write_text(rows, json.dumps(found)),
            report=told,
        )
    by_variant = {row["variant"]: row for row in measured}
    exact = by_variant["exact"]
    found: dict[str, dict[str, float]] = {}
    for path, point in variants.items():
        row = by_variant[path]
        own = {
            "perplexity": row["perplexity"],
            "perplexity_lost": row["perplexity"] / exact["perplexity"] - 1,
        }
        if len(row["losses"]) > 1:  # one window has no interval
            own["perplexity_low"], own["perplexity_high"] = interval(row["losses"], exact["losses"])
        found[point.name] = own
    return found


def _key(args: argparse.Namespace, text: str | None) -> str:
    """Of all that a perplexity depends on but the spec."""
    model = Path(args.model)
    files = sorted(model.rglob("*")) if model.is_dir() else []
    return key(
        args.model,
        [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files],
        hashlib.sha256(text.encode()).hexdigest() if text else "",
        args.length,
        args.perplexity,
        versions(("torch", "transformers")),
        sources=("models.perplexity", "golden/", "kernels/", "pytorch/"),
    )


def _scores(args: argparse.Namespace, chosen: Sequence[Found]) -> dict[str, dict[str, float]]:
    from softermax.finetune.swap import evaluate_swaps
    from softermax.search.front import write_specs

    with tempfile.TemporaryDirectory(prefix="softermax-") as folder:
        files = {str(path): name for name, path in write_specs(chosen, Path(folder)).items()}
        rows = evaluate_swaps(args.evaluate, args.data_dir, swaps=list(files))[1:]
        return {files[row["attention"]]: {"score_lost": -row["difference"]} for row in rows}
