"""explore, export: Softermax on a page, and in other runtimes."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from softermax.cli.output import print_json, print_table
from softermax.extras import need
from softermax.spec import get_spec

if TYPE_CHECKING:
    from softermax.cli import Commands

_SPEC = "a preset, with +fold for base e, or a .json file (default: %(default)s)"


def register(commands: Commands) -> None:
    command = commands.add(
        "explore",
        explore,
        "a local page: drag scores, move widths, see every step",
        ["explore", "explore --open", "explore --spec row-scaled --scores 2 1 x 3.5"],
    )
    command.add_argument("--spec", default="paper", help=f"what the page opens with: {_SPEC}")
    command.add_argument("--scores", nargs="+", default=[], help="numbers, x where masked")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    command.add_argument("--port", type=int, default=8642, help="0 takes a free one (default: %(default)s)")
    command.add_argument(
        "--allow-remote", action="store_true", help="permit a --host that other machines can reach"
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    command = commands.add(
        "export",
        export,
        "a fine-tuned, quantised model as ONNX",
        [
            "export out/finetune/model model.onnx",
            "export out/finetune/model model.onnx --spec row-scaled+fold",
        ],
    )
    command.add_argument("model", help="the folder `model` that finetune wrote, or any saved model's")
    command.add_argument("out", metavar="OUT.onnx", help="the file to write")
    command.add_argument(
        "--spec", help="put this Softermax in: a preset, with +fold for base e, or a .json file"
    )
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def explore(args: argparse.Namespace) -> int:
    from softermax.report.explorer.server import Explorer
    from softermax.report.explorer.state import fragment

    state = fragment(get_spec(args.spec), [_score(text) for text in args.scores])
    with Explorer(args.host, args.port, args.allow_remote) as server:
        url = server.url + (f"#{state}" if state else "")
        if args.json:
            print_json({"url": url})
        else:
            print(url, flush=True)
            if not args.quiet:
                print("Ctrl-C ends it", flush=True)
        if args.open:
            import webbrowser

            webbrowser.open(url)
        server.serve_forever()
    return 0


def export(args: argparse.Namespace) -> int:
    from softermax.cli.models import _begin

    folder = Path(args.model)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{args.model}: not a saved model, there is no config.json in it")
    spec = get_spec(args.spec) if args.spec else None
    need("onnx", "onnx")
    _begin(args)
    from softermax import quantization
    from softermax.integrations.onnx_models import export_model
    from softermax.integrations.transformers import enable

    model = quantization.load(folder)
    if spec is not None:
        enable(model, spec)
    done = export_model(model, args.out)
    if args.json:
        print_json(dataclasses.asdict(done))
        return 0
    shown = {
        "file": done.file,
        "MB": done.megabytes,
        "8-bit weights": done.int8,
        "nodes": done.nodes,
        "largest difference": done.difference,
        "with 8-bit kernels": done.optimised_difference,
    }
    print_table([shown])
    if args.verbose:
        print_table([{"operator": name, "nodes": count} for name, count in done.operators.items()])
    return 0


def _score(text: str) -> float | None:
    if text == "x":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scores {text}: allowed are numbers, and x where masked") from None
