"""The units of a spec as Verilog, for the page's download.

A unit is made in a process of its own, one at a time, and within a time limit: wide units with fine tables take
hours and gigabytes. Run as a program, this module is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http import HTTPStatus
from typing import Any

from softermax.explorer.request import Impossible, RequestError
from softermax.extras import need
from softermax.rtl.names import UNIT_NAMES, UnitName
from softermax.spec import AnySpec, DeferredSpec, spec_from_dict

DEFERRED_UNITS: tuple[UnitName, ...] = ("deferred",)
UNITS = tuple(name for name in UNIT_NAMES if name not in DEFERRED_UNITS)

MAX_LANES = 64
"""Wider units take long to convert: `softermax rtl` makes them."""

SECONDS = 60.0
"""How long a unit may take, and how long a request waits for the one before it."""

_one_at_a_time = threading.Lock()


def verilog(spec: AnySpec, unit: Any) -> tuple[str, str]:
    """File name and Verilog-2005 of one unit, the spec on top as a comment. Needs the extra ``hardware``."""
    units = DEFERRED_UNITS if isinstance(spec, DeferredSpec) else UNITS
    if unit not in units:
        raise RequestError(f"unit = {unit!r}: must be one of {', '.join(units)}", "unit")
    rows = spec.scores if isinstance(spec, DeferredSpec) else spec
    if rows.slice_width is not None and rows.slice_width > MAX_LANES:
        raise Impossible(
            f"slice_width = {rows.slice_width}: the explorer writes units of 1 to {MAX_LANES} lanes, softermax rtl wider ones",
            "slice_width",
        )
    if not _one_at_a_time.acquire(timeout=SECONDS):
        raise RequestError(
            "another unit is being made: try again later", status=HTTPStatus.SERVICE_UNAVAILABLE
        )
    try:
        answer = _in_process({"spec": spec.to_dict(), "unit": unit})
    except subprocess.TimeoutExpired:
        words = (rows.input, rows.unnormed, spec.powsum, spec.reciprocal)
        raise RequestError(
            f"too large: a unit of {rows.slice_width} lanes with tables of {rows.pow2_segments} and "
            f"{spec.reciprocal_segments} segments and words of up to {max(word.bits for word in words)} bits was not made "
            f"in {SECONDS:g} s; take fewer of them, or softermax rtl, which has no time limit"
        ) from None
    finally:
        _one_at_a_time.release()
    if "refused" in answer:
        raise Impossible.because(answer["refused"])
    return answer["name"], answer["text"]


def _in_process(order: dict[str, str | dict[str, Any]]) -> dict[str, str]:
    """What `main` answers in a process of its own, which is ended, with all that it started, after `SECONDS`."""
    # Yosys works in temporary folders, which a process that is killed cannot delete.
    with tempfile.TemporaryDirectory(prefix="softermax-") as folder:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "softermax.explorer.verilog", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": folder},
            start_new_session=True,
        )
        try:
            text, errors = worker.communicate(json.dumps(order), timeout=SECONDS)
        finally:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.communicate()
    if worker.returncode:
        raise RuntimeError(f"no Verilog was made: {errors.strip().rpartition(chr(10))[2]}")
    answer: dict[str, str] = json.loads(text)
    return answer


def main() -> None:
    """Read an order from standard input and write the answer, both JSON. The explorer's process is the one argument."""
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    order = json.load(sys.stdin)
    spec = spec_from_dict(order["spec"])
    try:
        need("pyosys", "hardware")
        component = spec.create(order["unit"])
    except (ValueError, ImportError) as error:
        answer = {"refused": str(error)}
    else:
        from softermax.rtl.convert import provenance
        from softermax.rtl.export.verilog import to_readable_verilog

        name = component.module_name
        header = provenance(f"{name}: {component.description()}", component.parameters())
        answer = {"name": f"{name}.v", "text": to_readable_verilog(component, name, header)}
    json.dump(answer, sys.stdout)


def _end_with(parent: int) -> None:
    """This process and what it started end when the explorer is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
