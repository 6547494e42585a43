"""Where a command's independent pieces of work are done: options that several commands have."""

from __future__ import annotations

import argparse
import importlib.util

from softermax.executor import LOCAL


def add_ray(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ray",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="work on Ray instead of processes: alone here, `auto` on this machine's cluster, or an address",
    )


def add_places(command: argparse.ArgumentParser) -> None:
    command.add_argument("--workers", type=int, help="parallel processes (default: one per core)")
    add_ray(command)


def ray_where_installed(args: argparse.Namespace) -> str | None:
    """Ray on this machine where it is installed, unless ``--ray`` names another place or ``--workers`` asks for processes."""
    if args.ray or args.workers is not None or importlib.util.find_spec("ray") is None:
        given: str | None = args.ray
        return given
    return LOCAL


def check_workers(args: argparse.Namespace) -> None:
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers {args.workers}: must be 1 or more")
