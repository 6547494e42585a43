"""Whether the shipped bench notices each of the mutations, and of those that it does not whether they change anything.

A mutation that the bench misses is given to Yosys: with registers, memories' words and instances as inputs and outputs, the
mutated module must equal the module; or nothing of what it changes leaves the unit (`softermax.rtl.export.in_context`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from softermax.progress import Progress, silent
from softermax.rtl.export.bench import passed, run
from softermax.rtl.export.equality import equal_modules
from softermax.rtl.export.in_context import explained
from softermax.rtl.export.mutations import Mutation, broken, mutations
from softermax.spec import AnySpec

Outcome = Literal["caught", "equivalent", "survived"]
_MEMORY = re.compile(
    r"^module (\w+) \((?:(?!^endmodule).)*?^  reg [^;\n]*\[0:(\d+)\];", re.MULTILINE | re.DOTALL
)
_LARGE = 64
"""Words of a memory that Yosys takes too long to spread into registers."""
_LONGEST_RUN = 120
"""Seconds after which a mutant counts as stuck."""


@dataclass(frozen=True)
class Tried:
    """What became of a mutation."""

    mutation: Mutation
    outcome: Outcome
    said: str
    """How the bench noticed it, or what shows that there is nothing to notice."""


def tried(
    folder: Path,
    name: str,
    spec: AnySpec,
    rows: int = 1,
    only: Sequence[int] | None = None,
    report: Progress = silent,
) -> list[Tried]:
    """Of the files in ``folder`` that a unit of a spec was exported as, for so many rows at a time, each mutation with what
    became of it; ``only`` those numbers of the list."""
    verilog = (folder / f"{name}.v").read_text(encoding="utf-8")
    listed = [m for m in mutations(verilog) if only is None or m.number in only]
    if not passed(_bench(verilog, folder, name)):
        raise RuntimeError(f"the bench of {name} fails without any mutation")
    found, missed = {}, []
    for done, mutation in enumerate(listed):
        report(done, len(listed), "mutations")
        said = _bench(broken(verilog, mutation), folder, name)
        if passed(said):
            missed.append(mutation)
        else:
            found[mutation.number] = Tried(mutation, "caught", _reason(said))
    equal = proved_equal(verilog, missed)
    for mutation in missed:
        how: str | None = "proved equal to the module by Yosys"
        if mutation.number not in equal:
            how = explained(verilog, mutation, spec, rows, name, _passes)
        found[mutation.number] = Tried(mutation, "equivalent" if how else "survived", how or "")
    return [found[number] for number in sorted(found)]


def _bench(verilog: str, folder: Path, name: str) -> str:
    """What the bench of ``folder`` prints of a design; why it broke off, if it did.

    In Icarus, which compiles in a moment, where there is one; otherwise in Verilator.
    """
    with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
        here = Path(temporary)
        (here / f"{name}.v").write_text(verilog, encoding="utf-8")
        for file in (*folder.glob(f"{name}_*.hex"), folder / f"{name}_tb.sv"):
            (here / file.name).symlink_to(file.resolve())
        try:
            if shutil.which("iverilog") is None or shutil.which("vvp") is None:
                return run(here, name)
            compiled = ["iverilog", "-g2012", "-o", "bench", f"{name}.v", f"{name}_tb.sv"]
            subprocess.run(compiled, cwd=here, capture_output=True, check=True)
            done = subprocess.run(
                ["vvp", "bench"], cwd=here, capture_output=True, text=True, timeout=_LONGEST_RUN, check=True
            )
        except (subprocess.SubprocessError, RuntimeError) as error:
            return f"FAIL: {str(error).splitlines()[0]}"
    return done.stdout


def _passes(verilog: str, folder: Path, name: str) -> bool:
    return passed(_bench(verilog, folder, name))


def _reason(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "")


def proved_equal(verilog: str, listed: Sequence[Mutation]) -> set[int]:
    """Numbers of the mutations that leave their module as it is. Of a module with a large memory nothing is proved."""
    large = {module for module, words in _MEMORY.findall(verilog) if int(words) >= _LARGE}
    return {
        mutation.number
        for mutation in listed
        if mutation.module not in large and equal_modules(verilog, broken(verilog, mutation), mutation.module)
    }
