"""reproduce, export: the paper in one command, and Softermax in other runtimes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cli.output import print_json, print_table
from softermax.cli.torch_setup import begin_torch, share_cores
from softermax.extras import need
from softermax.spec import get_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from softermax.cli import Commands
    from softermax.report.document import Document
    from softermax.reproduce.stage import Mode, Outcome, Stage


def register(commands: Commands) -> None:
    _register_reproduce(commands)
    command = commands.add(
        "export",
        export,
        "a fine-tuned, quantised model as ONNX",
        [
            "export out/finetune/model model.onnx",
            "export out/finetune/model model.onnx --spec row-scaled+fold",
            "export out/finetune/model model.onnx --operator custom",
        ],
    )
    command.add_argument("model", help="the folder `model` that finetune wrote, or any saved model's")
    command.add_argument("out", metavar="OUT.onnx", help="the file to write")
    command.add_argument(
        "--spec", help="put this Softermax in: a preset, with +fold for base e, or a .json file"
    )
    command.add_argument(
        "--operator",
        choices=["standard", "custom"],
        default="standard",
        help="custom: Softermax as one node, fast, which needs this package's library in onnxruntime (default: %(default)s)",
    )
    command.add_argument(
        "--float-embeddings",
        action="store_true",
        help="keep embeddings in floating point (default: in an 8-bit model, large ones in 8 bits)",
    )
    command.add_argument(
        "--tolerance",
        type=float,
        help="how far outputs may lie from PyTorch's, of the largest one (default: 0.05, or twice as far as 8 bits move them)",
    )
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def _register_reproduce(commands: Commands) -> None:
    command = commands.add(
        "reproduce",
        reproduce,
        "the whole paper beside our figures, in one report",
        [
            "reproduce",
            "reproduce --list",
            "reproduce --stage ladder rtl --out out/report",
            "reproduce --full --data-dir data --pdk-root PDK",
        ],
    )
    size = command.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="some minutes on two cores (default)")
    size.add_argument("--full", action="store_true", help="every table at full size: days")
    command.add_argument("--stage", nargs="+", default=[], metavar="NAME", help="only these (default: all)")
    command.add_argument("--list", action="store_true", help="list the stages and what is done, run nothing")
    command.add_argument(
        "--fresh", action="store_true", help="run stages again that are done; netlists keep their own cache"
    )
    command.add_argument(
        "--out", default="out/report", help="folder for report.html, .md and .json (default: %(default)s)"
    )
    command.add_argument("--data-dir", help="--full: folder with glue/TASK and squad (default: the hub)")
    command.add_argument("--pdk-root", help="--full: the folder with ASAP7's liberty files, for 7 nm too")


def reproduce(args: argparse.Namespace) -> int:
    share_cores()
    need("jinja2", "cli")
    from softermax.report.render import counted, write
    from softermax.report.sections import compose
    from softermax.reproduce.display import display
    from softermax.reproduce.run import choose, log_of
    from softermax.reproduce.run import reproduce as run
    from softermax.reproduce.stages import STAGES

    mode: Mode = "full" if args.full else "quick"
    options = {"data_dir": args.data_dir, "pdk_root": args.pdk_root}
    for name, value in options.items():
        if value is not None and mode == "quick":
            raise ValueError(f"--{name.replace('_', '-')} {value}: only --full uses it")
        if value is not None and not Path(value).is_dir():
            raise ValueError(f"--{name.replace('_', '-')} {value}: no such folder")
    chosen = choose(STAGES, args.stage, mode)
    if args.list:
        return _list_stages(args, STAGES, mode, options)
    if Path(args.out).exists() and not Path(args.out).is_dir():
        raise ValueError(f"--out {args.out}: not a folder")
    asked = {stage.name for stage in chosen}
    outcomes: list[Outcome] = []
    try:
        with display(chosen, args.quiet) as shown:
            for outcome in run(STAGES, mode, args.stage, options, args.fresh, shown):
                outcomes.append(outcome)
                # A report of what there is after every stage: nobody waits for the last one to see the first.
                report = compose([*outcomes, *_to_come(STAGES, outcomes)], mode, _command(args))
                written = write(report, args.out)
                if shown and outcome.name in asked:
                    shown.found(outcome, findings(report, outcome.name))
    except KeyboardInterrupt:
        print("what is finished is kept; the same command goes on from there", file=sys.stderr)
        raise
    broken = [outcome for outcome in outcomes if outcome.name in asked and not outcome.is_done]
    if args.json:
        print_json(report.to_json())
    else:
        print_table(
            [
                {"paper": s.where or "ours", "what": s.title, "verdicts": counted(s.tally)}
                for s in report.sections
            ]
        )
        for outcome in broken:
            print(f"{outcome.name} {outcome.status}: {outcome.reason}", file=sys.stderr)
            log = log_of(outcome.name)
            if args.verbose and log.is_file():
                print(log.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
            elif outcome.status == "failed":
                print(f"what it printed: {log}", file=sys.stderr)
        if not args.quiet:
            print(f"\nreport: {written[0]}, and as .md and .json")
    return 1 if broken else 0


def _to_come(stages: Sequence[Stage], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Stages that this run has not come to yet."""
    from softermax.reproduce.stage import Outcome

    return [Outcome(s.name, s.title, "not run", "still to come") for s in stages[len(outcomes) :]]


def findings(report: Document, stage: str) -> list[str]:
    """What a stage has just shown, a line per comparison with the paper."""
    from softermax.report.document import shown

    lines = []
    for section in report.sections:
        for c in section.comparisons if section.stages[:1] == [stage] else ():
            if c.verdict != "not measured" and not c.note.startswith("stored"):
                paper = f" (paper: {shown(c.paper)})" if c.paper is not None else ""
                lines.append(f"{section.where}: {c.name}: {shown(c.ours)}{paper}, {c.verdict}")
    return lines


def _command(args: argparse.Namespace) -> str:
    """The command as the report prints it: the user's folders are nobody's business."""
    parts = ["softermax reproduce"]
    parts += ["--full"] if args.full else []
    parts += [f"--stage {' '.join(args.stage)}"] if args.stage else []
    parts += ["--data-dir DATA"] if args.data_dir else []
    parts += ["--pdk-root PDK"] if args.pdk_root else []
    return " ".join(parts)


def _list_stages(
    args: argparse.Namespace, stages: tuple[Stage, ...], mode: Mode, options: dict[str, str | None]
) -> int:
    from softermax.reproduce.display import duration
    from softermax.reproduce.run import earlier

    rows = []
    for stage in stages:
        done: Outcome | None = earlier(stage, mode, options)
        seconds = stage.seconds[mode == "full"]
        rows.append(
            {
                "stage": stage.name,
                "what": stage.title,
                "about": duration(seconds) if stage.settings(mode, options) is not None else "--full only",
                "done": done.date if done else None,
            }
        )
    print_json(rows) if args.json else print_table(rows)
    return 0


def export(args: argparse.Namespace) -> int:
    folder = Path(args.model)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{args.model}: not a saved model, there is no config.json in it")
    spec = get_spec(args.spec) if args.spec else None
    need("onnx", "onnx")
    begin_torch(args)
    from softermax.models import quantization
    from softermax.models.drop_in import enable
    from softermax.models.onnx import export_model

    model = quantization.load(folder)
    if spec is not None:
        enable(model, spec)
    done = export_model(
        model, args.out, args.tolerance, args.operator, int8_embeddings=not args.float_embeddings
    )
    if args.json:
        print_json(dataclasses.asdict(done))
        return 0
    shown = {
        "file": done.file,
        "MB": done.megabytes,
        "8-bit weights": done.int8,
        "nodes": done.nodes,
        "largest difference": done.difference,
        "with 8-bit kernels, embeddings": done.optimised_difference,
        "of 8 bits themselves": done.quantised_difference,
    }
    print_table([shown])
    if args.verbose:
        print_table([{"operator": name, "nodes": count} for name, count in done.operators.items()])
    return 0
