"""The command line: each group of commands in a file of its own; this one parses and calls.

A group's module has ``register(commands)``, which adds its commands. Modules import what they run
only when it runs, so that ``softermax --help`` is instant and needs NumPy only.

Exit codes: 0 done, 1 a comparison failed, 2 bad input, 3 a fault, 130 Ctrl-C, 141 the pipe's reader left.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softermax import __version__

GROUPS = (
    "core", "explorer", "rivals", "speed", "models", "training", "generation", "hardware", "silicon", "fpga", "search", "report", "completion",
)  # fmt: skip
"""Modules beside this one."""

STORY = {
    "arithmetic": ("demo", "explore", "presets", "tables", "verify", "rivals"),
    "models": (
        "attention",
        "evaluate",
        "finetune",
        "accuracy",
        "perplexity",
        "generate",
        "compare",
        "export",
    ),
    "kernels": ("info", "bench", "breakdown"),
    "hardware": ("rtl",),
    "silicon": ("silicon", "fpga", "search"),
    "report": ("reproduce",),
}
"""The order of the overview: the paper's. A command that is not here is listed at the end."""

_WIDTH = 80
_PACKAGE = str(Path(__file__).parents[1])

Run = Callable[[argparse.Namespace], int]


class Commands:
    """Where a group's commands are added."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._sub = parser.add_subparsers(
            dest="command", metavar="COMMAND", parser_class=argparse.ArgumentParser
        )
        self.summaries: dict[str, str] = {}

    def add(
        self, name: str, run: Run, summary: str, examples: Sequence[str], listed: bool = True
    ) -> argparse.ArgumentParser:
        """A command, with the options that every command has. ``run`` returns the exit code."""
        parser: argparse.ArgumentParser = self._sub.add_parser(
            name,
            help=summary,
            description=summary,
            epilog="examples:\n" + "\n".join(f"  softermax {line}" for line in examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        level = parser.add_mutually_exclusive_group()
        level.add_argument("-q", "--quiet", action="store_true", help="print results only")
        level.add_argument(
            "-v", "--verbose", action="store_true", help="print what is being done; tracebacks of errors"
        )
        parser.set_defaults(run=run)
        if listed:
            self.summaries[name] = summary
        return parser

    def overview(self) -> str:
        """What ``softermax --help`` prints: a line a command, in the paper's order, within a screen."""
        told = {name for names in STORY.values() for name in names}
        lines = []
        for heading, names in STORY.items():
            rest = [name for name in self.summaries if name not in told] if heading == "report" else []
            for name in (*names, *rest):
                if name in self.summaries:
                    summary = textwrap.shorten(self.summaries[name], _WIDTH - 23, placeholder=" …")
                    lines.append(f"{heading:11}{name:12}{summary}")
                    heading = ""
        return "\n".join(
            [
                "usage: softermax COMMAND [--json] [--quiet] [--verbose] ...   (--help: examples)",
                *lines,
                "--version. Exit codes: 0 done, 1 differs, 2 bad input, 3 a fault, 130 Ctrl-C.",
                "",
            ]
        )


class _Parser(argparse.ArgumentParser):
    """The top parser, whose help is the overview."""

    overview: Callable[[], str]

    def format_help(self) -> str:
        return self.overview()


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="softermax")
    parser.add_argument("--version", action="version", version=f"softermax {__version__}")
    commands = Commands(parser)
    parser.overview = commands.overview
    for group in GROUPS:
        module: Any = importlib.import_module(f"softermax.cli.{group}")
        module.register(commands)
    return parser


_PLACES = {
    "--data-dir": "DATA",
    "--pdk-root": "PDK",
    "--openroad": "PYTHON",
    "--out": "FOLDER",
    "--text": "TEXT",
    "--storage": "FILE",
    "--rivals-from": "FILE",
    "--from": "FILE",
    "--plot": "FOLDER",
}
"""Options whose value says where something lies on one machine: a result names them by what they hold."""


def command_line(argv: Sequence[str]) -> str:
    """The command as a result file records it: what to type on another machine."""
    shown = ["softermax"]
    for word in argv:
        option, equals, _ = word.partition("=")
        if shown[-1] in _PLACES:
            shown.append(_PLACES[shown[-1]])
        elif equals and option in _PLACES:
            shown += [option, _PLACES[option]]
        else:
            # An absolute path is of one machine too; its last part says what was meant.
            shown.append(Path(word).name if word.startswith("/") else word)
    return shlex.join(shown)


def _is_bad_input(error: Exception) -> bool:
    """Whether the caller is told what to give instead: this package refused it, or the system a file.

    A ValueError or TypeError that nobody raised on purpose is a fault of the program like any other.
    """
    if isinstance(error, OSError | ModuleNotFoundError):
        return True
    if not isinstance(error, ValueError | TypeError | ImportError):
        return False
    if isinstance(error.__cause__, Exception) and not error.__cause__.__traceback__:
        # From a worker process, which sends its traceback as text: the last line of code before the message.
        code = [line.strip() for line in str(error.__cause__).splitlines() if line.startswith("    ")]
        places = [line for line in str(error.__cause__).splitlines() if line.startswith("  File ")]
        return bool(code and places) and code[-1].startswith("raise ") and _PACKAGE in places[-1]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(_PACKAGE) and (last.line or "").startswith("raise ")


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    args.command_line = command_line(sys.argv[1:] if argv is None else argv)
    if args.command is None:
        parser.print_help()
        return 0
    started = time.monotonic()
    try:
        if args.verbose:
            print(f"{args.command}: softermax {__version__}", file=sys.stderr, flush=True)
        code = int(args.run(args))
        sys.stdout.flush()
    except KeyboardInterrupt:
        # Amaranth warns of every component that was made and not used yet when it is collected.
        warnings.simplefilter("ignore")
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if args.verbose or not _is_bad_input(error):
            traceback.print_exc()
        if _is_bad_input(error):
            print(f"softermax {args.command}: {error}", file=sys.stderr)
            return 2
        print(f"softermax {args.command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 3
    if args.verbose:
        print(f"{args.command}: exit code {code} after {time.monotonic() - started:.2f} s", file=sys.stderr)
    return code
