"""Yosys by its Python wheel, in a process of its own: an error in Yosys ends the process it runs in."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from softermax.extras import need

_RUNNER = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.stdin.read().splitlines():
    libyosys.run_pass(command, design)
"""


class YosysError(RuntimeError):
    """A pass failed; the message is the end of Yosys' log."""


def run(commands: Sequence[str], folder: Path, timeout: float | None = None) -> str:
    """Run passes one after the other in ``folder``, so that file names need no quoting; the log."""
    if importlib.util.find_spec("pyosys") is None:
        need("pyosys", "hardware")
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER],
        input="\n".join(commands) + "\n",
        cwd=folder,
        timeout=timeout,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise YosysError("Yosys failed:\n" + "\n".join(said[-20:]))
    return done.stdout
