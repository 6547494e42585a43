"""OpenROAD in a process of its own: where it is, one layout, and a layout's power, each made again if the process crashes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir, kept, key
from softermax.silicon import verilog
from softermax.silicon.netlist import Netlist
from softermax.silicon.route.activity import Switching
from softermax.silicon.route.technology import job_of

ATTEMPTS = 4
"""The wheel crashes now and then, and not twice at the same place."""
SOURCES = ("silicon/route/layout.py",)
"""The code that makes a layout of a job. The netlist's text and all that the job says are in a layout's key."""
UTILISATION = 0.7
SETUP_MARGINS_NS, HOLD_MARGIN_NS = (0.05, 0.1, 0.15, 0.2), 0.02
"""What repair leaves for the difference between estimated and routed wires: the first with which the clock is met is taken."""
VARIABLE = "SOFTERMAX_OPENROAD"
_SCRIPT = Path(__file__).with_name("layout.py")
_HOW = (
    "pip install openroad==0.0.1 (Linux with glibc 2.38 or newer), or name another Python that imports it "
    f"with --openroad or {VARIABLE}"
)
_VERSION = "import openroad; from importlib.metadata import version as v; print(v('openroad'))"


class LayoutError(ValueError):
    """OpenROAD did not make a layout."""


@dataclass(frozen=True)
class Detailed:
    """What detailed routing came to."""

    violations: int
    """Of design rules."""
    wire_um: float


@dataclass(frozen=True)
class Layout:
    """A design as it was placed and routed."""

    cells: list[tuple[str, str, dict[str, str]]]
    """Name, type, and the net of each pin."""
    ports: dict[str, str]
    """The net of each bit of a port."""
    wires_ff: dict[str, float]
    slack_ns: float
    hold_slack_ns: float
    latency_ns: float
    """From the clock's port to a flip-flop, on average."""
    skew_ns: float
    wire_um: float
    """Of global routing."""
    core_um2: float
    detailed: Detailed | None
    verilog: str = field(repr=False)
    spef: str = field(repr=False)
    """The same netlist and wires as OpenROAD writes them, for its own power report."""

    @classmethod
    def read(cls, path: Path) -> Layout:
        values = json.loads(gzip.decompress(path.read_bytes()))
        found = {field.name: values[field.name] for field in fields(cls)}
        return cls(**found | {"detailed": Detailed(**found["detailed"]) if found["detailed"] else None})


@dataclass(frozen=True)
class LayoutOptions:
    """What a user chooses of a layout."""

    python: str
    """That imports OpenROAD."""
    version: str
    utilisation: float = UTILISATION
    detailed: bool = False

    def __post_init__(self) -> None:
        if not 0.1 <= self.utilisation <= 0.9:
            raise ValueError(
                f"--utilisation {self.utilisation}: must be 0.1 to 0.9, the share of the core that cells take"
            )


def find(given: str | None = None) -> tuple[str, str]:
    """The Python that imports OpenROAD, and OpenROAD's version: the one given, or of the environment, or this one."""
    named = given or os.environ.get(VARIABLE)
    return _found(named or sys.executable, named is not None)


@lru_cache(maxsize=4)
def _found(python: str, named: bool) -> tuple[str, str]:
    path = shutil.which(python)
    if path is None:
        raise FileNotFoundError(
            f"--openroad {python}: no such program: must be a Python that imports openroad"
        )
    done = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return path, done.stdout.split()[-1]
    reason = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    who = f"{python} does not import openroad ({reason})" if named else "OpenROAD is not installed"
    raise FileNotFoundError(f"--route: {who}: {_HOW}")


def lay_out(netlist: Netlist, clock_ns: float, options: LayoutOptions) -> Layout:
    """The layout of the least margin that meets the clock; where none does, the fastest."""
    best: Layout | None = None
    for margin in SETUP_MARGINS_NS:
        found = _layout(netlist, clock_ns, options, margin)
        if best is None or found.slack_ns > best.slack_ns:
            best = found
        if found.slack_ns >= 0:
            break
    assert best is not None
    return best


def power_w(layout: Layout, netlist: Netlist, clock_ns: float, switching: Switching, python: str) -> float:
    """What OpenROAD's own power report says of a layout that switches so."""
    job = _job(netlist, clock_ns) | {"activity": switching}
    texts = {"netlist.v": layout.verilog, "wires.spef": layout.spef}
    return float(json.loads(_run(texts, job, python, netlist.name))["total"])


def _job(netlist: Netlist, clock_ns: float) -> dict[str, Any]:
    """What a job says of its design, whatever is to be done with it."""
    inputs = [verilog.port_bit(port, i) for port, bits in netlist.inputs.items() for i in range(len(bits))]
    clock = next((name for name, bits in netlist.inputs.items() if netlist.clock in bits), None)
    if clock is None:
        raise ValueError(f"{netlist.name}: it has no clock; a layout with a clock tree needs one")
    return job_of(netlist.library) | {
        "verilog": "netlist.v",
        "top": verilog.MODULE,
        "clock": verilog.port_bit(clock, 0),
        "inputs": inputs,
        "clock_ns": clock_ns,
    }


def _layout(netlist: Netlist, clock_ns: float, options: LayoutOptions, setup_margin_ns: float) -> Layout:
    """A netlist's layout, or the one that is kept of it."""
    text = verilog.mapped(netlist)
    job = _job(netlist, clock_ns) | {
        "setup_margin_ns": setup_margin_ns,
        "hold_margin_ns": HOLD_MARGIN_NS,
        "utilisation": options.utilisation,
        "detailed": options.detailed,
    }
    portable = {name: value for name, value in job.items() if name not in ("lef", "liberty")}
    content = key(text, netlist.library.content, portable, options.version, sources=SOURCES)

    def make(partial: Path) -> None:
        given = job | {"threads": os.cpu_count() or 1}
        answer = _run({job["verilog"]: text}, given, options.python, netlist.name)
        partial.write_bytes(gzip.compress(answer, 1))

    return kept(cache_dir("silicon", "layouts") / f"{netlist.name}-{content}.json.gz", make, Layout.read)


def _run(texts: Mapping[str, str], job: dict[str, Any], python: str, name: str) -> bytes:
    """The script's answer to a job that lies beside these files."""
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(prefix="softermax-") as path:
            folder = Path(path)
            for file, text in texts.items():
                (folder / file).write_text(text, encoding="utf-8")
            (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
            with (folder / "log").open("wb") as log:
                # Run from there, where no module of ours has the name of one of theirs.
                script = shutil.copy(_SCRIPT, folder)
                done = subprocess.run(
                    [python, script, str(folder / "job.json")],
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    check=False,
                )
            answer, error = folder / "answer.json", folder / "error"
            said = (folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = next((line for line in reversed(said) if "[ERROR" in line), "".join(said[-1:]))
            if answer.is_file() and done.returncode == 0:
                return answer.read_bytes()
            if error.is_file():
                raise LayoutError(
                    f"layout of {name}: OpenROAD failed in {error.read_text(encoding='utf-8').strip()}: {last}"
                )
            if done.returncode >= 0 and not _crashed(done.returncode):
                raise LayoutError(f"layout of {name}: OpenROAD ended with code {done.returncode}: {last}")
    how = _signal_name(done.returncode)
    raise LayoutError(f"layout of {name}: OpenROAD crashed {ATTEMPTS} times, at last by {how}, after: {last}")


def _crashed(code: int) -> bool:
    """Whether a shell in between reports that its program was ended by a signal."""
    return code > 128


def _signal_name(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
