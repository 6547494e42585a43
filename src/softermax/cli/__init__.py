"""The command line: each group of commands in a file of its own; this one parses and calls.

A group's module has ``register(commands)``, which adds its commands. Modules import what they run
only when it runs, so that ``softermax --help`` is instant and needs NumPy only.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from softermax import __version__

GROUPS = ("core", "kernels", "models", "hardware", "silicon", "breakdown", "report")
"""Modules beside this one, in the order in which their commands are listed."""

Run = Callable[[argparse.Namespace], int]


class Commands:
    """Where a group's commands are added."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._sub = parser.add_subparsers(dest="command", metavar="COMMAND")

    def add(self, name: str, run: Run, summary: str, examples: Sequence[str] = ()) -> argparse.ArgumentParser:
        """A command, with the options that every command has. ``run`` returns the exit code."""
        epilog = "examples:\n" + "\n".join(f"  softermax {line}" for line in examples) if examples else None
        parser: argparse.ArgumentParser = self._sub.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        level = parser.add_mutually_exclusive_group()
        level.add_argument("-q", "--quiet", action="store_true", help="print results only")
        level.add_argument("-v", "--verbose", action="store_true", help="print what is being done")
        parser.set_defaults(run=run)
        return parser


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="softermax",
        description="Softermax: a softmax in base two, fixed point and one pass, from PyTorch to silicon.",
    )
    parser.add_argument("--version", action="version", version=f"softermax {__version__}")
    commands = Commands(parser)
    for group in GROUPS:
        module: Any = importlib.import_module(f"softermax.cli.{group}")
        module.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, TypeError, OSError, ImportError) as error:
        if args.verbose:
            raise
        print(f"softermax {args.command}: {error}", file=sys.stderr)
        return 2
