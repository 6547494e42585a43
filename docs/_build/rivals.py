"""Everything of docs/rivals.md from one command, at the root of the repository: ``python docs/_build/rivals.py``.

By itself it measures every design's error, joins what is stored of silicon and of models, draws the pictures and fills the page and
the README: about a minute. ``--silicon`` measures every rival in gates first (an hour or two on two cores; what did not change
comes from the cache), ``--models --data-dir DATA`` fine-tunes, swaps and scores models first (an hour or two). ``--dry-run`` prints the
commands alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from softermax.rivals import PREFIX, all_designs, is_rival

ROOT = Path(__file__).resolve().parents[2]
RESULTS = "docs/results"
OPTIONS = ("i-bert", "ita", "e2softmax")
"""Rivals that go into models with an exponent per row too: the three with their own ways to lose mass."""
TUNED = "out/rivals"
"""Fine-tuned models that designs are put into, by task."""
SWAPPED = {
    "stsb": ("--epochs", "2"),
    "mrpc": ("--epochs", "3"),
}
"""Tasks whose whole dev sets are scored with each design, and how long a model is fine-tuned for each."""
CONTEXTS = {512: 1024, 2048: 2048}
"""Tokens that perplexity is taken of, by context."""
LONG = 2048
"""The context from which on only designs that were built are scored, with ours: every one would take an hour."""
Command = list[str]


def swapped() -> list[str]:
    """What goes into models: ours but for near twins, every rival, and some with our exponent per row."""
    names = ["paper+fold", "lean+fold", "lean-row-scaled+fold", "paper+fold:deferred"]
    for design in all_designs():
        plain, _, option = design.name.partition(":")
        if design.about.kind == "rival" and (not option or (option == "row-scaled" and plain in OPTIONS)):
            names.append(PREFIX + design.name)
    return [*names, PREFIX + "int8-scores"]


def built() -> list[str]:
    """Of those what was built, and ours."""
    from softermax.rtl.rivals.registry import built

    rivals = {PREFIX + name for name in built()}
    return [name for name in swapped() if not is_rival(name) or name in rivals]


def silicon() -> Iterator[Command]:
    yield ["softermax", "silicon", "--rivals", "all", "--width", "16", "32", "--out", RESULTS]


def models(data: str) -> Iterator[Command]:
    """Fine-tuned models with each design put in, and a language model."""
    threads = ["--threads", "1"]
    given = ["--data-dir", data, *threads]
    for task, length in SWAPPED.items():
        tuned = f"{TUNED}/{task}"
        train = ["--task", task, "--arm", "fp32", "--products", "bfloat16", *length]
        yield ["softermax", "finetune", *train, "--out", tuned, *given]
        yield [
            "softermax", "evaluate", f"{tuned}/model", "--presets", *swapped(), "--out", f"{RESULTS}/rivals/{task}", *given,
        ]  # fmt: skip
    learned = f"{TUNED}/stsb-consmax"
    train = ["--task", "stsb", "--preset", "rival:consmax", "--products", "bfloat16", "--epochs", "1"]
    start = ["--model", f"{TUNED}/stsb/model", "--keep-head"]
    yield ["softermax", "finetune", *train, *start, "--out", learned, *given]
    yield ["cp", f"{learned}/finetune.json", f"{RESULTS}/rivals/stsb/learned-consmax.json"]
    for context, tokens in CONTEXTS.items():
        yield [
            "softermax", "perplexity", "--text", f"{data}/lm/wikitext2_test.txt", "--tokens", str(tokens),
            "--contexts", str(context), "--variants", "exact", *(swapped() if context < LONG else built()),
            "--out", f"{RESULTS}/rivals", *threads,
        ]  # fmt: skip


def page() -> Iterator[Command]:
    """The table of designs with pictures, then the pages that read it."""
    yield ["softermax", "rivals", "--out", RESULTS, "--quiet"]
    pages = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
    yield [sys.executable, "docs/_build/results.py", "README.md", *pages]


def commands(args: argparse.Namespace) -> list[Command]:
    if args.models and not args.data_dir:
        raise SystemExit("--models: needs --data-dir DATA, a folder with glue/ and lm/")
    return [
        *(silicon() if args.silicon else ()),
        *(models(args.data_dir) if args.models else ()),
        *page(),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silicon", action="store_true", help="measure rivals and ours in gates")
    parser.add_argument("--models", action="store_true", help="put every design into models")
    parser.add_argument("--data-dir", help="with --models: the folder with glue/ and lm/")
    parser.add_argument("--dry-run", action="store_true", help="print the commands alone")
    args = parser.parse_args(argv)
    beside = Path(sys.executable).parent
    for command in commands(args):
        print("$", shlex.join(command), flush=True)
        if not args.dry_run:
            path = os.pathsep.join([str(beside), os.environ.get("PATH", "")])
            subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PATH": path})


if __name__ == "__main__":
    main()
