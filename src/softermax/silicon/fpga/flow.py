"""One design on one device: RTL to a mapped netlist, then placed, routed and timed, each tool in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir, kept, key
from softermax.results import versions
from softermax.rtl import yosys
from softermax.rtl.convert import to_rtlil
from softermax.rtl.shift_harness import ShiftHarness
from softermax.silicon.fpga.families import Family

SEED = 1
"""Of placement: one, which every table names."""
AIM_MHZ = 200
"""What placement and routing aim at, above what any design reaches: so all of them are made as fast as they can be."""
SOURCES = ("silicon.fpga.flow",)
_TOP = "fpga_harness"
_RUN = "import sys; from {module} import {function} as run; sys.exit(run(sys.argv[1:]))"
_USED = re.compile(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%$", re.M)
_ONLY_REGISTER = re.compile(r"(\d+) LCs used as DFF only")


class PlaceError(ValueError):
    """nextpnr failed, and not for want of room."""


@dataclass(frozen=True)
class Placed:
    """What a design takes of a device, without the harness around it."""

    luts: int
    """Look-up tables, those that a carry chain or a memory takes among them."""
    registers: int
    dsps: int
    block_rams: int
    fmax_mhz: float | None
    """After routing; None where the design does not fit."""
    slowest: str
    """The sub-unit in which most of the slowest path lies."""

    @property
    def fits(self) -> bool:
        return self.fmax_mhz is not None


def require(family: Family) -> None:
    """Refuse where the family's nextpnr is not installed."""
    if importlib.util.find_spec(family.module) is None:
        raise ImportError(
            f"family {family.name}: {family.wheel} is not installed; it comes with: pip install '.[fpga]' in the source tree"
        )


def place(unit: Any, family: Family, seed: int = SEED) -> Placed:
    """A component on a device of the family, or what is kept of it."""
    require(family)
    rtlil = to_rtlil(ShiftHarness(unit), _TOP)
    tools = versions(("pyosys", family.wheel))
    content = key(rtlil, family, seed, AIM_MHZ, tools, sources=SOURCES)

    def make(partial: Path) -> None:
        partial.write_text(json.dumps(asdict(_place(rtlil, family, seed))), encoding="utf-8")

    def read(path: Path) -> Placed:
        return Placed(**json.loads(path.read_text(encoding="utf-8")))

    return kept(cache_dir("silicon", "fpga") / f"{family.name}-{content}.json", make, read)


def _place(rtlil: str, family: Family, seed: int) -> Placed:
    with tempfile.TemporaryDirectory(prefix="softermax-") as name:
        folder = Path(name)
        (folder / "design.il").write_text(rtlil, encoding="utf-8")
        yosys.run(synthesis(family), folder)
        of_modules = json.loads((folder / "stat.json").read_text(encoding="utf-8"))["modules"]
        cells = {module.lstrip("\\"): counts["num_cells_by_type"] for module, counts in of_modules.items()}
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _RUN.format(module=family.module, function=family.function),
                *family.options,
                *("--json", "placed.json", "--report", "report.json"),
                *("--seed", str(seed), "--freq", str(AIM_MHZ), "--timing-allow-fail"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        report = folder / "report.json"
        if done.returncode == 0 and report.is_file():
            timing = json.loads(report.read_text(encoding="utf-8"))
        elif too_large(done.stderr):
            timing = None
        else:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            said = errors[-1] if errors else "".join(done.stderr.strip().splitlines()[-1:])
            raise PlaceError(f"nextpnr for {family.name} ended with code {done.returncode}: {said}")
        return counted(family, cells, done.stderr, timing)


def synthesis(family: Family) -> list[str]:
    """The passes. The unit stays a module of its own until it is mapped: its cells are counted apart from the harness's,
    and no gate of the one is merged with one of the other."""
    unit = f"{_TOP}.{ShiftHarness.UNIT}"
    return [
        "read_rtlil design.il",
        f"setattr -mod -set keep_hierarchy 1 {unit}",
        f"{family.synth} -top {_TOP}",
        "tee -q -o stat.json stat -json",
        f"setattr -mod -unset keep_hierarchy {unit}",
        "flatten",
        "opt_clean -purge",
        "write_json placed.json",
    ]


def used(log: str) -> dict[str, tuple[int, int]]:
    """What nextpnr says of a packed design: cells of each kind, and how many the device has."""
    return {kind: (int(taken), int(there)) for kind, taken, there in _USED.findall(log)}


def too_large(log: str) -> bool:
    return any(taken > there for taken, there in used(log).values())


def counted(
    family: Family, cells: Mapping[str, Mapping[str, int]], log: str, timing: Mapping[str, Any] | None
) -> Placed:
    """The figures of a design, of Yosys' cells by module, nextpnr's log and its report."""
    packed = {kind: taken for kind, (taken, _) in used(log).items()}
    if family.logic not in packed:
        raise PlaceError(f"nextpnr for {family.name} does not say how many {family.logic} it has packed")
    luts = packed[family.logic] + sum(packed.get(kind, 0) * each for kind, each in family.luts_beside)
    # Of logic cells with a register each, those whose look-up table is free.
    luts -= sum(map(int, _ONLY_REGISTER.findall(log)))
    mine = cells[f"{_TOP}.{ShiftHarness.UNIT}"]
    registers = sum(count for kind, count in mine.items() if kind.startswith(family.registers))
    fmax, slowest = _slowest(timing) if timing else (None, "")
    return Placed(
        luts - cells[_TOP].get(family.lut, 0),
        registers,
        packed.get(family.dsp, 0),
        packed.get(family.block_ram, 0),
        fmax,
        slowest,
    )


def _slowest(timing: Mapping[str, Any]) -> tuple[float, str]:
    """The clock's frequency, and the sub-unit of most cells on the path that limits it."""
    clock, figures = min(timing["fmax"].items(), key=lambda item: item[1]["achieved"])
    parts: Counter[str] = Counter()
    for path in timing["critical_paths"]:
        if path["from"].endswith(clock) and path["to"].endswith(clock):
            parts.update(_part(step["to"]["cell"]) for step in path["path"])
            break
    return round(float(figures["achieved"]), 2), parts.most_common(1)[0][0] if parts else ""


def _part(cell: str) -> str:
    """``unit.exponential.lane_3.sum_LUT4_Z`` lies in ``exponential``; what is the unit's own lies in ``unit``."""
    path = cell.split(".")
    if path[0] != ShiftHarness.UNIT:
        return "harness"
    return re.sub(r"(_?\d+)$", "", path[1]) if len(path) > 2 else ShiftHarness.UNIT
