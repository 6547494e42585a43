"""The process that one stage runs in: ``python -m softermax.reproduce.worker``.

It reads ``{"target", "settings", "path"}`` as JSON from standard input, and answers on the file descriptor that its
argument names with lines of JSON: ``{"done", "total", "note"}`` as it goes on, then ``{"result", "cpu"}`` or
``{"error", "kind"}``. What the stage prints goes to standard output and error, which are a log file.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

MISSING = "missing"
FAILED = "failed"


def main(arguments: Sequence[str]) -> int:
    order = json.load(sys.stdin)
    sys.path += [entry for entry in order["path"] if entry not in sys.path]
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with open(int(arguments[0]), "w", encoding="utf-8") as pipe:
        answer = _run(order["target"], order["settings"], pipe)
        _send(pipe, answer)
    return 0 if "result" in answer else 1


def _run(target: str, settings: dict[str, Any], pipe: TextIO) -> dict[str, Any]:
    def progress(done: int, total: int, note: str = "") -> None:
        _send(pipe, {"done": done, "total": total, "note": note})

    try:
        module, _, function = target.partition(":")
        result = getattr(importlib.import_module(module), function)(settings, progress)
        json.dumps(result, allow_nan=False)
    except (ImportError, FileNotFoundError) as error:
        traceback.print_exc()
        return {"error": str(error) or type(error).__name__, "kind": MISSING}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "kind": FAILED}
    spent = os.times()
    return {"result": result, "cpu": sum(spent[:4])}


def _send(pipe: TextIO, message: dict[str, Any]) -> None:
    pipe.write(json.dumps(message) + "\n")
    pipe.flush()


def _end_with(parent: int) -> None:
    """The stage and what it started end when the command that wants it is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgid(0), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
