"""Stages that take no time: what a worker process runs in the tests of the machinery."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from softermax.progress import Progress
from softermax.reproduce.stage import Settings


def count(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Leaves a line per run in the file ``runs``."""
    with Path(settings["runs"]).open("a", encoding="utf-8") as file:
        file.write(settings["name"] + "\n")
    progress(1, 2, "half way")
    print("noise that must not reach the messages")
    return {"name": settings["name"], "fresh": bool(settings.get("fresh"))}


def fail(settings: Settings, progress: Progress) -> dict[str, Any]:
    raise RuntimeError("it broke")


def need_what_is_not_there(settings: Settings, progress: Progress) -> dict[str, Any]:
    raise ImportError("nothing is not installed; it comes with: pip install '.[nothing]'")


def die(settings: Settings, progress: Progress) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def no_number(settings: Settings, progress: Progress) -> dict[str, Any]:
    return {"value": float("nan")}


def wait(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Until the file ``go`` is there."""
    progress(1, 10, f"worker {os.getpid()}")
    while not Path(settings["go"]).exists():
        time.sleep(0.02)
    return {"waited": True}
