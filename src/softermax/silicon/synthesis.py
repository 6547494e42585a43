"""RTLIL to a mapped netlist: Yosys and ABC, in a process of their own.

An error of Yosys ends the process that runs it, so each run is a subprocess. Sub-units are kept apart
while logic is mapped: cells carry the name of their sub-unit from before flattening, and ABC maps one
sub-unit after the other, so that every cell of the netlist belongs to exactly one of them.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir, kept, key
from softermax.results import versions
from softermax.rtl import yosys
from softermax.silicon.library import Library
from softermax.silicon.netlist import Netlist, read

TOP = "top"
"""The sub-unit of cells that belong to the design itself."""
CLOCK_GATES = "clock gates"
SOURCES = ("silicon.synthesis",)
"""The code that maps."""
_CELLS = "cells.lib"


def modules_of(rtlil: str) -> tuple[str, dict[str, str]]:
    """The top module's name, and the sub-unit of each module: its path without numbers, two levels deep.

    ``top.exponential.lane_3$17`` becomes ``exponential.lane``: the lanes of a unit are one sub-unit.
    """
    names = re.findall(r"^module \\(\S+)", rtlil, re.M)
    match = re.search(r"^attribute \\top 1\n(?:attribute [^\n]*\n)*module \\(\S+)", rtlil, re.M)
    if match is None:
        raise ValueError("the RTLIL text has no top module")
    top = match.group(1)
    units: dict[str, str] = {}
    for name in names:
        path = name.removeprefix(top).lstrip(".")
        parts = [re.sub(r"(\$\d+|_?\d+)+$", "", part) for part in path.split(".")]
        units[name] = ".".join(parts[:2]) if path else TOP
    return top, units


def synthesise(rtlil: str, library: Library, clock_ns: float, effort_ns: float | None = None) -> Netlist:
    """Map a design for a clock period, or take the cached netlist. ``effort_ns`` is the delay that ABC aims
    at in each sub-unit, the clock period unless given."""
    if clock_ns <= 0:
        raise ValueError(f"clock period {clock_ns} ns: must be more than 0")
    top, units = modules_of(rtlil)
    delay_ps = round((effort_ns or clock_ns) * 1000)
    content = key(rtlil, library.content, delay_ps, versions(("pyosys",)), sources=SOURCES)

    def make(partial: Path) -> None:
        mapped = _map(rtlil, top, units, library, delay_ps)
        partial.write_bytes(gzip.compress(json.dumps(mapped).encode(), 1))

    return kept(
        cache_dir("silicon", "netlists") / f"{top}-{content}.json.gz",
        make,
        lambda path: read(json.loads(gzip.decompress(path.read_bytes())), top, library),
    )


def _map(rtlil: str, top: str, units: dict[str, str], library: Library, delay_ps: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="softermax-") as name:
        folder, d = Path(name), library.description
        (folder / "design.il").write_text(rtlil, encoding="utf-8")
        (folder / _CELLS).write_text(library.liberty, encoding="utf-8")
        (folder / "constraints").write_text(
            f"set_driving_cell {d.driver}\nset_load {d.output_load_ff}\n", encoding="utf-8"
        )
        try:
            yosys.run(_script(top, units, library, delay_ps), folder)
        except yosys.YosysError as error:
            reasons = [line for line in str(error).splitlines() if "ERROR" in line]
            raise ValueError(f"synthesis of {top} failed: {reasons[-1] if reasons else error}") from None
        return json.loads((folder / "mapped.json").read_text(encoding="utf-8"))


def _script(top: str, units: dict[str, str], library: Library, delay_ps: int) -> list[str]:
    d = library.description
    abc = f"abc -liberty {_CELLS} -constr constraints -D {delay_ps}"
    lines = [
        "read_rtlil design.il",
        f"hierarchy -check -top {top}",
        # Silicon powers up with any content: registers get their values from the reset alone.
        "attrmap -remove init",
        "synth -noabc",
        # Resets become logic inside their own sub-unit; enables stay, for clock gates.
        "dfflegalize -cell $_DFF_P_ x -cell $_DFFE_PP_ x",
        *(f'setattr -set unit "{unit}" {_escaped(module)}/c:*' for module, unit in units.items()),
        "flatten",
        "opt -full",
        # Sharing of gates may bring multiplexers of whole words back.
        "simplemap",
    ]
    if d.clock_gate:
        pins = d.clock_gate_pins.split(":")
        tied = " ".join(f"-tie_lo {pin}" for pin in pins[3:])
        lines.append(f"clockgate -pos {d.clock_gate} {':'.join(pins[:3])} {tied} -min_net_size 4")
        lines.append(f'setattr -set unit "{CLOCK_GATES}" t:{d.clock_gate}')
    lines += [f"dfflibmap -liberty {_CELLS}", "opt -purge"]
    # Flip-flops whose reset or enable became logic left cells without a sub-unit; they are the design's own.
    lines.append(f'setattr -set unit "{TOP}" c:* a:unit=* %d')
    for unit in dict.fromkeys(units.values()):
        lines.append(f"select -set logic a:unit={unit} t:$_* %i")
        lines.append(f"{abc} @logic")
        lines.append(f'setattr -set unit "{unit}" c:* a:unit=* %d')
    lines += ["setundef -zero"]
    if d.tie_high and d.tie_low:
        high, low = d.tie_high.replace(":", " "), d.tie_low.replace(":", " ")
        lines.append(f"hilomap -singleton -hicell {high} -locell {low}")
    lines += [
        "splitnets",
        "opt_clean -purge",
        f'setattr -set unit "{TOP}" c:* a:unit=* %d',
        "check -mapped",
        "write_json mapped.json",
    ]
    return lines


def _escaped(module: str) -> str:
    return f"\\{module}"
