"""completion: what makes the shell complete commands, options and values."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from softermax.cli.output import print_json
from softermax.extras import need
from softermax.spec import PRESETS

if TYPE_CHECKING:
    from softermax.cli import Commands

SHELLS = ("bash", "zsh", "tcsh")
_SPECS = ("spec", "preset", "presets")
_FILES = ("out", "plot", "text", "model")
_FOLDERS = ("data_dir", "pdk_root")


def register(commands: Commands) -> None:
    command = commands.add(
        "completion",
        completion,
        "print a script that completes commands, options and values in a shell",
        [
            "completion bash > ~/.local/share/bash-completion/completions/softermax",
            "completion zsh > ~/.zfunc/_softermax",
        ],
        listed=False,
    )
    command.add_argument("shell", choices=SHELLS, help="which shell")


def completion(args: argparse.Namespace) -> int:
    shtab = need("shtab", "cli")
    from softermax.cli import build_parser

    parser = build_parser()
    for command in _commands(parser):
        for action in command._actions:
            if action.dest in _FOLDERS:
                action.complete = shtab.DIRECTORY
            elif action.dest in _FILES:
                action.complete = shtab.FILE
            if action.dest in _SPECS and action.choices is None:
                action.choices = [name + fold for name in PRESETS for fold in ("", "+fold")]
    script = shtab.complete(parser, args.shell)
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        print(script)
    return 0


def _commands(parser: argparse.ArgumentParser) -> list[Any]:
    return [
        command
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for command in action.choices.values()
    ]
