"""attention, perplexity: what Softermax does to a pretrained model.

Each command checks all of its options before it imports PyTorch: a mistake is named at once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.torch_setup import (
    ANY_MODEL,
    LANGUAGE_MODEL,
    PACKAGES,
    SPEC,
    begin_torch,
    check_counts,
    check_model,
    check_out,
    check_threads,
)
from softermax.files import read_text
from softermax.results import Envelope, enveloped
from softermax.rivals import get_attention
from softermax.spec import get_spec

if TYPE_CHECKING:
    from softermax.cli import Commands


def register(commands: Commands) -> None:
    command = commands.add(
        "attention",
        attention,
        "a model's attention in fixed point, layer by layer",
        ["attention", "attention --model smollm2 --length 2048 --plot attention.svg"],
    )
    command.add_argument("--model", default="minilm", help=ANY_MODEL)
    command.add_argument("--spec", default="paper", help=SPEC)
    command.add_argument("--text", help="a UTF-8 text file (default: prose from PyPI)")
    command.add_argument("--length", type=int, default=384, help="tokens per row (default: %(default)s)")
    command.add_argument("--sequences", type=int, default=4, help="how many (default: %(default)s)")
    command.add_argument("--plot", help="an .svg or .png file to write")
    command.add_argument("--out", help="folder for attention-MODEL-SPEC.json, .md and .svg")
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
    command.add_argument("--model", default="smollm2", help=LANGUAGE_MODEL)
    command.add_argument("--text", help="a UTF-8 text file (default: prose from PyPI)")
    command.add_argument(
        "--tokens",
        type=int,
        default=8192,
        help="tokens to score, in windows spaced over the text (default: %(default)s)",
    )
    command.add_argument("--contexts", type=int, nargs="+", default=[512, 2048], help="context lengths")
    command.add_argument(
        "--variants", nargs="+", help="of exact, a spec, a spec followed by :deferred, rival:NAME"
    )
    command.add_argument("--out", help="folder for perplexity.json and perplexity.md; what is there is kept")
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def attention(args: argparse.Namespace) -> int:
    check_threads(args)
    check_counts(args, "sequences")
    check_out(args.out)
    if args.length < 2:
        raise ValueError(f"--length {args.length}: must be 2 or more")
    get_spec(args.spec)
    if args.plot and Path(args.plot).suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--plot {args.plot}: must be a name that ends in .svg, .png or .pdf")
    text = read_text(args.text) if args.text else None
    check_model(args.model)
    begin_torch(args)
    from softermax.models import statistics

    layers = statistics.attention_statistics(args.model, args.spec, text, args.length, args.sequences)
    title = f"{args.model}, {args.spec}, {args.length} tokens"
    rows = [dataclasses.asdict(layer) for layer in layers]
    advice = statistics.advice(layers, args.spec)
    if args.plot:
        statistics.plot(args.plot, layers, title)
    if args.out:
        name = f"attention-{Path(args.model).name}-{Path(args.spec).stem}"
        page = f"# Attention in fixed point: {title}\n\n{markdown_table(rows)}\n\n{advice}\n"
        notes = {"model": args.model, "spec": args.spec, "length": args.length, "sequences": args.sequences}
        write_result(args, name, rows, page, PACKAGES, notes)
        with contextlib.suppress(ImportError):
            statistics.plot(Path(args.out) / f"{name}.svg", layers, title)
    if args.json:
        print_json(rows)
    else:
        print_table(rows)
        print(advice)
    return 0


def perplexity(args: argparse.Namespace) -> int:
    check_threads(args)
    check_counts(args, "tokens", "contexts")
    check_out(args.out)
    for context in args.contexts:
        if context < 2 or args.tokens % context:
            raise ValueError(
                f"--contexts {context}: must be 2 or more and a divisor of the {args.tokens} tokens"
            )
    for variant in args.variants or []:
        if variant != "exact":
            get_attention(variant)
    path = Path(args.out) / "perplexity.json" if args.out else None
    known = Envelope.load(path).rows if path and path.is_file() else []
    text = read_text(args.text) if args.text else None
    name = Path(args.text).name if args.text else "prose from PyPI"
    check_model(args.model)
    begin_torch(args)
    from softermax.models.perplexity import compared, measure_perplexity, perplexity_page

    def keep(rows: Sequence[Any]) -> None:
        """Each figure as soon as it is there: the next run measures only what is missing."""
        if path:
            enveloped(args.command_line, rows, PACKAGES).save(path)

    with progress("variants", args.quiet) as report:
        rows = measure_perplexity(
            args.model, text, name, args.tokens, args.contexts, args.variants, known, keep, report
        )
    if args.out:
        write_result(args, "perplexity", rows, perplexity_page(rows), PACKAGES)
    shown = compared(rows, args.model, name, args.tokens)
    print_json(shown) if args.json else print_table(shown)
    return 0
