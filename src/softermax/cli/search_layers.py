"""search --layers and --heads: a spec for each layer, or each head, of a model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, write_result
from softermax.files import write_text

if TYPE_CHECKING:
    from softermax.search.front import Found
    from softermax.search.layers import Part
    from softermax.search.objectives import RecordedRows

Find = Callable[[str, "RecordedRows", dict[str, str]], "list[Found]"]
"""The points of a search, by what it is called, its rows and what it holds beside ``--fix``."""


def search_layers(
    args: argparse.Namespace,
    rows: RecordedRows,
    budget: dict[str, float],
    fixed: Mapping[str, str],
    find: Find,
    packages: tuple[str, ...],
) -> int:
    from softermax.search.layers import parts_of, search_parts

    parts = parts_of(rows, args.heads)

    def found(part: Part) -> list[Found]:
        if not args.quiet:
            print(f"{part.name}: {len(part.rows)} rows", file=sys.stderr, flush=True)
        # Words from the layer's own range, unless they are held.
        own = {} if {"input", "input_integer"} & set(fixed) else {"input_integer": str(part.integer_bits)}
        return find(part.name, part.rows, own)

    picked = search_parts(parts, found, budget, args.max_loss)
    table = [
        {"layer": part.layer, "head": part.head} | picked[part.name].row() | {"name": part.name}
        for part in parts
    ]
    shown = [{k: v for k, v in row.items() if k not in ("spec", "front")} for row in table]
    if args.out:
        path = Path(args.out) / "layers.json"
        write_text(path, json.dumps(_as_given(table), indent=1) + "\n")
        page = f"# A spec for each {'head' if args.heads else 'layer'}\n\n{markdown_table(shown)}"
        notes = {"model": rows.model, "rows": len(rows), "columns": rows.columns, "trials": args.trials}
        write_result(args, "search-layers", table, page, packages, notes)
        if not (args.json or args.quiet):
            print(f"wrote {path}: for enable(model, load_layers(...))", file=sys.stderr)
    print_json(table) if args.json else print_table(shown)
    return 0


def _as_given(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Layers as `enable` takes them, with specs as their fields."""
    layers: dict[str, Any] = {}
    for row in table:
        if row["head"] is None:
            layers[str(row["layer"])] = row["spec"]
        else:
            layers.setdefault(str(row["layer"]), []).append(row["spec"])
    return layers
