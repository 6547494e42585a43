"""finetune, accuracy, evaluate, compare: Softermax in models that are trained for a task.

Each command checks all of its options before it imports PyTorch: a mistake is named at once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.places import add_ray
from softermax.cli.torch_setup import (
    MODEL,
    PACKAGES,
    SPEC,
    begin_torch,
    check_counts,
    check_model,
    check_out,
    check_threads,
)
from softermax.executor import executor
from softermax.results import Envelope, enveloped
from softermax.rivals import get_attention
from softermax.spec import get_spec

if TYPE_CHECKING:
    from softermax.cli import Commands
    from softermax.finetune.own_data import OwnData
    from softermax.finetune.run import Run

_TASKS = "squad, rte, cola, mrpc, qnli, qqp, sst2, stsb, mnli, or movies (from PyPI)"
_DATA = "folder with glue/TASK/{train,dev}.tsv and squad/{train,dev}.json (default: the hub; movies needs neither)"
_SIZES = (
    "epochs", "learning_rate", "first_epochs", "first_learning_rate", "batch", "train_rows", "dev_rows",
    "held_out", "max_length", "products",
)  # fmt: skip
"""Options of accuracy that replace what a recipe says."""


def register(commands: Commands) -> None:
    _register_finetune(commands)
    _register_accuracy(commands)
    _register_compare(commands)
    command = commands.add(
        "evaluate",
        evaluate,
        "Softermax in a fine-tuned model, without retraining",
        ["evaluate out/finetune/model", "evaluate out/stsb/model --data-dir data --json"],
    )
    command.add_argument("model", help="the folder `model` that finetune wrote")
    command.add_argument(
        "--presets",
        nargs="+",
        help="specs or rival:NAME to put in (default: those of the accuracy table, with and without fold)",
    )
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--dev-rows", type=int, help="a subset of dev (default: what training evaluated on)")
    command.add_argument(
        "--out", help="folder for evaluate.json and evaluate.md; what is there of the same model is kept"
    )
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def _register_compare(commands: Commands) -> None:
    command = commands.add(
        "compare",
        compare,
        "a classifier's accuracy, speed and size, form by form",
        [
            "compare out/fp32/model",
            "compare out/fp32/model --tuned out/softermax/model --batch 8 --out out/compare",
            "compare MODEL --data my.csv --text-column review --label-column stars --json",
        ],
    )
    command.add_argument(
        "model", help="a classifier in floating point: a folder, or a name on the Hugging Face hub"
    )
    _add_own_data(command, "instead of those that finetune scored the model on")
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--rows", type=int, default=500, help="to score, at most (default: %(default)s)")
    command.add_argument(
        "--tuned", help="folder of the int8 model that finetune made of it (default: calibrated only)"
    )
    command.add_argument("--spec", help="of Softermax without --tuned (default: paper+fold)")
    command.add_argument(
        "--batch", type=int, default=1, help="rows in the batch that is timed (default: %(default)s)"
    )
    command.add_argument("--rounds", type=int, default=30, help="of timing (default: %(default)s)")
    command.add_argument(
        "--max-length", type=int, default=128, help="tokens per row at most (default: %(default)s)"
    )
    command.add_argument(
        "--no-memory", action="store_true", help="do not start a process to measure memory in"
    )
    command.add_argument("--out", help="folder for compare.json, compare.md and compare.svg")
    command.add_argument("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")


def _register_finetune(commands: Commands) -> None:
    command = commands.add(
        "finetune",
        finetune,
        "fine-tune in fp32, in int8, or in int8 with Softermax",
        [
            "finetune",
            "finetune --data my.csv --text-column review --label-column stars --out out/mine",
            "finetune --task stsb --arm int8 --data-dir data --out out/stsb --resume",
            "finetune --task stsb --data-dir data --model out/fp32/model --keep-head --preset paper+absorbed",
        ],
    )
    command.add_argument("--task", help=f"{_TASKS} (default: movies)")
    _add_own_data(command, "instead of a task")
    command.add_argument("--dev-data", help="rows to score, as --data (default: a share of --data)")
    command.add_argument(
        "--dev-share", type=float, help="of --data, to score and not to train on (default: 0.125)"
    )
    command.add_argument("--arm", default="softermax", help="fp32, int8 or softermax (default: %(default)s)")
    command.add_argument(
        "--preset", default="paper", help=f"+absorbed puts log2(e) into the query weights; {SPEC}"
    )
    command.add_argument("--model", default="minilm", help=MODEL)
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--out", default="out/finetune", help="folder of the run (default: %(default)s)")
    command.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --out")
    command.add_argument("--seed", type=int, default=0, help="of head, data order, dropout (default: 0)")
    command.add_argument("--dropout", type=float, help="instead of the model's own")
    command.add_argument("--keep-head", action="store_true", help="start with the head that the model has")
    command.add_argument("--held-out", type=int, default=0, help="rows of train to score on the way instead")
    command.add_argument("--checkpoint-steps", type=int, default=100, help="(default: %(default)s)")
    command.add_argument("--log-steps", type=int, default=10, help="(default: %(default)s)")
    _add_size(command, epochs=2.0, batch=32, learning_rate=1e-4)


def _add_own_data(command: argparse.ArgumentParser, instead: str) -> None:
    command.add_argument(
        "--data", help=f"own rows, {instead}: .csv, .tsv, .jsonl, or a folder that datasets saved"
    )
    command.add_argument(
        "--text-column", nargs="+", help="one or two columns of --data (default: text or sentence)"
    )
    command.add_argument("--label-column", help="column of --data with the classes (default: label)")


def _own_data(args: argparse.Namespace) -> OwnData | None:
    """What --data and the options around it say."""
    from softermax.finetune.own_data import OwnData

    names = {"text_column": "texts", "label_column": "label", "dev_data": "dev", "dev_share": "dev_share"}
    given = {names[name]: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    if args.data is None:
        for name in names:
            if getattr(args, name, None) is not None:
                raise ValueError(f"--{name.replace('_', '-')}: is about --data, which is not given")
        return None
    if "dev" in given and "dev_share" in given:
        raise ValueError("--dev-share: must be left out where --dev-data is given")
    if "texts" in given:
        given["texts"] = tuple(given["texts"])
    return OwnData(args.data, **given)


def _register_accuracy(commands: Commands) -> None:
    command = commands.add(
        "accuracy",
        accuracy,
        "the paper's accuracy table: arms x tasks x seeds",
        [
            "accuracy --data-dir data --out docs/results",
            "accuracy --data-dir data --out docs/results --gather",
            "accuracy --data-dir data --out docs/results --tasks rte --choose",
        ],
    )
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--out", default="docs/results", help="folder of the table (default: %(default)s)")
    command.add_argument("--tasks", nargs="+", help=f"{_TASKS} (default: the paper's nine)")
    command.add_argument(
        "--recipe",
        default="two-stage",
        help="two-stage: fp32 until the loss is flat, then a short stage per arm from there; single: every arm "
        "from the pretrained model (default: %(default)s)",
    )
    command.add_argument("--arms", nargs="+", help="of fp32, int8 and softermax (default: all three)")
    command.add_argument(
        "--presets",
        nargs="+",
        help="specs of the softermax arm, or rival:NAME; +absorbed puts log2(e) into the query weights first (default: paper, "
        "paper+absorbed, paper+fold and lean+fold; for single: paper)",
    )
    command.add_argument(
        "--swaps", nargs="+", help="specs or rival:NAME to put into int8 models without retraining"
    )
    command.add_argument("--model", default="minilm", help=MODEL)
    command.add_argument("--seeds", type=int, help="seeds per task (default: the recipe's)")
    command.add_argument("--gather", action="store_true", help="only make the table of what is done")
    command.add_argument(
        "--choose", action="store_true", help="try rates of both stages on rows held out of train"
    )
    command.add_argument("--until", help="stop at this time, HH:MM; the same command continues")
    command.add_argument("--models", help="folder that keeps each cell's model (default: they are deleted)")
    command.add_argument("--first-epochs", type=float, help="passes over train in the first stage")
    command.add_argument("--first-learning-rate", type=float, help="the first stage's")
    command.add_argument("--held-out", type=int, help="rows of train to score on the way, not to train on")
    add_ray(command)
    _add_size(command, epochs=None, batch=None, learning_rate=None)


def _add_size(
    command: argparse.ArgumentParser, epochs: float | None, batch: int | None, learning_rate: float | None
) -> None:
    shown = "(default: %(default)s)" if learning_rate else "(default: the recipe's)"
    command.add_argument("--epochs", type=float, default=epochs, help=f"passes over train {shown}")
    command.add_argument("--learning-rate", type=float, default=learning_rate, help=shown)
    command.add_argument(
        "--batch", type=int, default=batch, help=f"rows per step, over all processes {shown}"
    )
    command.add_argument("--train-rows", type=int, help="a subset of train")
    command.add_argument("--dev-rows", type=int, help="a subset of dev")
    command.add_argument("--max-length", type=int, help="tokens per row at most")
    command.add_argument(
        "--products",
        default="float32" if learning_rate else None,
        help=f"what linear layers multiply in while training, float32 or bfloat16 {shown}",
    )
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def finetune(args: argparse.Namespace) -> int:
    from softermax.finetune.run import Run, check_folder
    from softermax.finetune.tasks import OWN

    data = _own_data(args)
    if data is not None and (args.task or args.data_dir):
        raise ValueError(f"--{'task' if args.task else 'data-dir'}: must be left out where --data is given")
    fields = {f.name: getattr(args, f.name) for f in dataclasses.fields(Run) if hasattr(args, f.name)}
    run = Run(**fields | {"task": OWN if data else args.task or Run.task, "data": data})
    check_threads(args)
    check_counts(args, "checkpoint_steps", "log_steps")
    check_out(args.out)
    check_folder(run, Path(args.out), args.resume)
    _check_data([run], args.data_dir)
    check_model(run.model)
    begin_torch(args)
    from softermax.finetune.train import prepare, train

    prepared = prepare(run, args.data_dir)
    with progress(f"{run.task}, {run.arm}", args.quiet) as report:
        result = train(
            prepared,
            args.out,
            resume=args.resume,
            checkpoint_steps=args.checkpoint_steps,
            log_steps=args.log_steps,
            report=report,
        )
    if int(os.environ.get("RANK", "0")) > 0:
        return 0
    row = dataclasses.asdict(run) | {"scores": dict(result.scores), "seconds": result.seconds}
    scores = [{"metric": name, "per cent": value} for name, value in result.scores.items()]
    page = f"# {run.task}, {run.arm}: one fine-tuning\n\n{markdown_table(scores)}\n"
    write_result(args, "finetune", [row], page, PACKAGES, {"curve": result.curve})
    if args.json:
        print_json(row | {"losses": result.losses})
    else:
        print_table(scores)
        if not args.quiet:
            print(f"model in {args.out}/model, {result.seconds:.0f} s", file=sys.stderr)
    return 0


def accuracy(args: argparse.Namespace) -> int:
    from softermax.finetune.recipe import SHARES, TWO_STAGE, planned
    from softermax.finetune.run import ARMS
    from softermax.finetune.tasks import get_tasks

    check_threads(args)
    check_out(args.out)
    until = _today(args.until) if args.until else None
    whole = TWO_STAGE if args.recipe == "two-stage" else SHARES
    tasks = [task.name for task in get_tasks(args.tasks)] if args.tasks else list(whole)
    changes = {name: getattr(args, name) for name in _SIZES}
    runs = planned(tasks, args.presets, args.model, args.seeds, args.arms or ARMS, args.recipe, **changes)
    for name in args.swaps or []:
        get_attention(name)
    if not args.gather:
        _check_data(runs, args.data_dir)
        check_model(args.model)
    if args.choose:
        return _choose(args, runs)
    begin_torch(args)
    from softermax.finetune import cells, page, table
    from softermax.finetune.swap import SWAPS

    folder = Path(args.out) / "accuracy"
    swaps = args.swaps or SWAPS
    if not args.gather:
        with progress("steps", args.quiet) as report:

            def announce(number: int, count: int, run: Any) -> None:
                if not args.quiet:
                    print(f"cell {number + 1} of {count}: {run.cell}", file=sys.stderr, flush=True)

            if args.models:
                cells.add_swaps(runs, folder, args.data_dir, args.models, swaps)
            with contextlib.ExitStack() as stack:
                place = stack.enter_context(executor(ray=args.ray)) if args.ray else None
                cells.fill(runs, folder, args.data_dir, announce, report, until, args.models, swaps, place)
    done, first = cells.gather(folder), cells.gather_first(folder)
    if not done and args.gather:
        raise ValueError(f"{folder}: no cell is there; run the command without --gather first")
    if not done:
        print(f"no cell is finished yet; the same command continues ({len(runs)} to go)", file=sys.stderr)
        return 0
    left = sum(not cells.is_done(run, folder) for run in runs)
    found = table.differences(done, args.data_dir)
    rows = [dataclasses.asdict(entry) for entry in table.entries(done)]
    differences = [dataclasses.asdict(difference) for difference in found]
    notes = {"cells": len(done), "to_go": left, "recipe": "two-stage" if first else "single"}
    write_result(args, "accuracy", rows, page.markdown(done, first, found, left), PACKAGES, notes)
    parts = {
        "differences": differences,
        "swaps": table.swaps(done),
        "curves": table.curves(done, first),
    }
    if first:
        parts["first"] = [dataclasses.asdict(stage) for stage in table.first_stages(first)]
    for name, part in parts.items():
        enveloped(args.command_line, part, PACKAGES).save(Path(args.out) / f"accuracy-{name}.json")
    # The table is whole without its pictures; matplotlib comes with the extra cli.
    with contextlib.suppress(ImportError):
        page.plot(Path(args.out) / "accuracy.svg", found)
        if first:
            page.plot_curves(Path(args.out) / "accuracy-curves.svg", first)
    if args.json:
        print_json(rows)
    else:
        print_table([row | {"seeds": len(row["seeds"])} for row in rows])
        shown = [row | {"seeds": len(row["seeds"])} for row in differences]
        print_table(shown, title="\nless int8, 95 % interval")
    return 0


def _choose(args: argparse.Namespace, runs: Sequence[Run]) -> int:
    """Rates and epochs of both stages, on rows held out of train: seed 0 of each task. Tasks that --out has stay."""
    from softermax.finetune.recipe import candidates

    wanted = list({run.task: run for run in reversed(runs) if run.seed == 0}.values())[::-1]
    tried = [candidates(run) for run in wanted]
    begin_torch(args)
    from softermax.finetune.choose import Trial, are_of, choice_page, try_stages

    path = Path(args.out) / "accuracy-choice.json"

    def known() -> list[Trial]:
        return [Trial(**row) for row in Envelope.load(path).rows] if path.is_file() else []

    with progress("steps", args.quiet) as report:
        for run, first, second in tried:
            mine = [trial for trial in known() if (trial.task, trial.model) == (run.task, run.model)]
            if not are_of(mine, run, first, second, args.data_dir):
                mine = try_stages(run, first, second, args.data_dir, report)
            # Read again: another process may have finished other tasks in the meantime.
            trials = [t for t in known() if (t.task, t.model) != (run.task, run.model)] + mine
            rows = [dataclasses.asdict(trial) for trial in trials]
            write_result(args, "accuracy-choice", rows, choice_page(trials), PACKAGES)
    print_json(rows) if args.json else print_table(rows)
    return 0


def evaluate(args: argparse.Namespace) -> int:
    from softermax.finetune.run import read_trained

    check_threads(args)
    check_counts(args, "dev_rows")
    check_out(args.out)
    run = read_trained(Path(args.model))
    for name in args.presets or []:
        get_attention(name)
    _check_data([dataclasses.replace(run, dev_rows=args.dev_rows or run.dev_rows)], args.data_dir, ("dev",))
    begin_torch(args)
    from softermax.finetune.swap import SWAPS, evaluate_swaps

    notes = {
        "run": dataclasses.asdict(run),
        "dev_rows": args.dev_rows or run.dev_rows,
        "weights": _content(Path(args.model)),
    }
    path = Path(args.out) / "evaluate.json" if args.out else None
    before = Envelope.load(path) if path and path.is_file() else None
    known = before.rows if before and {name: before.notes.get(name) for name in notes} == notes else []

    def keep(rows: Sequence[Any]) -> None:
        """Each score as soon as it is there: the next run measures only what is missing."""
        if path:
            enveloped(args.command_line, rows, PACKAGES, notes).save(path)

    presets = args.presets or SWAPS
    rows = evaluate_swaps(args.model, args.data_dir, args.dev_rows, presets, known, keep)
    if args.out:
        page = f"# {run.task}: Softermax in a fine-tuned {run.arm} model\n\n{markdown_table(rows)}\n"
        write_result(args, "evaluate", rows, page, PACKAGES, notes)
    print_json(rows) if args.json else print_table(rows)
    return 0


def _content(model: Path) -> str:
    """Changes with a model's weights."""
    digest = hashlib.sha256()
    for part in sorted(model.glob("*.safetensors")):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


def compare(args: argparse.Namespace) -> int:
    check_threads(args)
    check_counts(args, "rows", "batch", "rounds")
    check_out(args.out)
    if args.max_length < 8:
        raise ValueError(f"--max-length {args.max_length}: must be 8 or more")
    if args.spec and args.tuned:
        raise ValueError("--spec: must be left out where --tuned is given, which has its own")
    if args.spec:
        get_spec(args.spec)
    data = _own_data(args)
    if args.tuned and not (Path(args.tuned) / "config.json").is_file():
        raise ValueError(f"--tuned {args.tuned}: not a saved model, there is no config.json in it")
    check_model(args.model)
    begin_torch(args, timed=True)
    from transformers import AutoTokenizer

    from softermax.models import deployment, quantization
    from softermax.models.pretrained import find_model
    from softermax.speed.compare import (
        compare_forms,
        compared_rows,
        load_classifier,
        plot_compared,
        tokenised,
    )

    where = find_model(args.model).path
    model = load_classifier(where)
    rows, calibration, source = compared_rows(where, model.config, data, args.data_dir, args.rows)
    longest = getattr(model.config, "max_position_embeddings", 512)
    given = tokenised(
        AutoTokenizer.from_pretrained(where), rows, calibration, min(args.max_length, longest), args.batch
    )
    tuned = quantization.load(args.tuned) if args.tuned else None
    with progress("compare", args.quiet) as report:
        found = compare_forms(
            model,
            given,
            args.spec or deployment.SPEC,
            tuned,
            args.rounds,
            args.threads,
            not args.no_memory,
            report,
        )
    batch, tokens = given.timed_shape
    title = f"{len(rows)} rows of {source}; {batch} x {tokens} tokens timed, {args.threads} thread{'s' * (args.threads > 1)}"
    table = [one.to_dict() for one in found]
    if args.out:
        notes = {"rows": len(rows), "batch": batch, "tokens": tokens, "threads": args.threads, "title": title}
        page = f"# A classifier, form by form\n\n{title}.\n\n{markdown_table(table)}\n"
        # The table is whole without its picture; matplotlib comes with the extra cli.
        with contextlib.suppress(ImportError):
            plot_compared(Path(args.out) / "compare.svg", found, title)
            page += "\n![Accuracy over latency](compare.svg)\n"
        write_result(args, "compare", table, page, (*PACKAGES, "onnxruntime", "openvino"), notes)
    print_json(table) if args.json else print_table(table, title)
    return 0


def _check_data(runs: Sequence[Run], data_dir: str | None, splits: Sequence[Any] = ("train", "dev")) -> None:
    """Read the rows once before anything else: a broken file is named at once. The hub's data comes later."""
    from softermax.finetune.data import split_rows
    from softermax.finetune.run import rows_of

    if data_dir is not None and not Path(data_dir).is_dir():
        raise ValueError(f"--data-dir {data_dir}: no such folder")
    for run in {run.task: run for run in runs}.values():
        if data_dir is None and run.data is None and run.task != "movies":
            continue
        for split in splits:
            rows = rows_of(run, split, data_dir)
            if split == "train":
                split_rows(rows, run.held_out)


def _today(clock: str) -> float:
    try:
        hours, minutes = (int(part) for part in clock.split(":"))
        if not (0 <= hours < 24 and 0 <= minutes < 60):
            raise ValueError(clock)
        now = time.localtime()
        at = time.mktime((*now[:3], hours, minutes, 0, 0, 0, -1))
    except ValueError:
        raise ValueError(f"--until {clock}: expected a time like 17:30") from None
    return at if at > time.time() else at + 86400
