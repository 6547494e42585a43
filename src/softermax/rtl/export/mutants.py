"""Whether the shipped bench notices each of the mutations, and of those that it does not whether they change anything.

A mutation that the bench misses is given to Yosys: with registers, memories' words and instances as inputs and outputs, the
mutated module must equal the module.
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
from softermax.rtl import yosys
from softermax.rtl.export.bench import passed, run
from softermax.rtl.export.equality import AS_LOGIC, COMPARE, opened
from softermax.rtl.export.mutations import Mutation, broken, mutations

Outcome = Literal["caught", "equivalent", "survived"]
_MEMORY = re.compile(
    r"^module (\w+) \((?:(?!^endmodule).)*?^  reg [^;\n]*\[0:(\d+)\];", re.MULTILINE | re.DOTALL
)
_LARGE = 64
"""Words of a memory that Yosys takes too long to spread into registers."""
_LONGEST_RUN = 20
"""Seconds after which a mutant counts as stuck."""


@dataclass(frozen=True)
class Tried:
    """What became of a mutation."""

    mutation: Mutation
    outcome: Outcome
    said: str
    """How the bench noticed it, or what shows that there is nothing to notice."""


def tried(
    folder: Path, name: str, only: Sequence[int] | None = None, report: Progress = silent
) -> list[Tried]:
    """Of the exported files in ``folder``, each mutation with what became of it; ``only`` those numbers of the list."""
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
        found[mutation.number] = (
            Tried(mutation, "equivalent", "proved equal to the module by Yosys")
            if mutation.number in equal
            else Tried(mutation, "survived", "")
        )
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


def _reason(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "")


def proved_equal(verilog: str, listed: Sequence[Mutation]) -> set[int]:
    """Numbers of the mutations that leave their module as it is. Of a module with a large memory nothing is proved."""
    large = {module for module, words in _MEMORY.findall(verilog) if int(words) >= _LARGE}
    listed = [mutation for mutation in listed if mutation.module not in large]
    if not listed:
        return set()
    with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
        folder = Path(temporary)
        (folder / "gold.v").write_text(verilog, encoding="utf-8")
        script = []
        for mutation in listed:
            (folder / f"{mutation.number}.v").write_text(broken(verilog, mutation), encoding="utf-8")
            for file, design in (("gold", "gold"), (str(mutation.number), "gate")):
                script += [
                    "design -reset",
                    f"read_verilog {file}.v",
                    # Of the others only their ports matter.
                    f"blackbox * {mutation.module} %d",
                    *AS_LOGIC,
                    opened(mutation.module),
                    f"design -stash {design}",
                ]
            script += [
                "design -reset",
                f"design -copy-from gold -as gold {mutation.module}",
                f"design -copy-from gate -as gate {mutation.module}",
                *COMPARE,
                f"log mutant {mutation.number}",
                "equiv_status",
            ]
        said = yosys.run(script, folder)
    answers = re.split(r"^mutant (\d+)$", said, flags=re.MULTILINE)
    return {
        int(number)
        for number, answer in zip(answers[1::2], answers[2::2], strict=True)
        if "Equivalence successfully proven" in answer
    }
