"""How Yosys compares two versions of a module: with registers, memories' words and instances as inputs and outputs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from softermax.rtl import yosys

AS_LOGIC = ("proc", "memory -nordff", "dffunmap", "opt_clean -purge")
"""A design that was read, as gates and plain registers."""
COMPARE = ("equiv_make gold gate both", "hierarchy -top both", "equiv_struct", "equiv_simple")
"""Words of the same name are compared on their way, so that no proof is large."""

_UNPROVEN = re.compile(r"^ *Unproven \$equiv \S+ \\(\S+)_gold ", re.MULTILINE)
_OUTPUT = re.compile(r"^ *output (?:wire |reg )(?:\[[^]]*\] )?(\w+)", re.MULTILINE)


def opened(module: str) -> str:
    """Its registers and instances become ports. From the top down: an instance is taken out while its module has its
    own ports only."""
    return f"expose -dff -evert -evert-dff {module}"


def equal_modules(gold: str, gate: str, module: str) -> bool:
    """Whether Yosys proves that a module is the same in two texts, of the other modules only the ports.

    Words of the same name are compared on their way, so that no proof is large. Where such words differ they may, as long as
    nothing that leaves the module does: the proof is tried again without comparing them.
    """
    outputs = set(_OUTPUT.findall(gold[gold.index(f"module {module} (") :].partition(");")[0]))
    differ: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
        folder = Path(temporary)
        (folder / "gold.v").write_text(gold, encoding="utf-8")
        (folder / "gate.v").write_text(gate, encoding="utf-8")
        while True:
            (folder / "apart").write_text("".join(f"{name}\n" for name in sorted(differ)), encoding="utf-8")
            script = []
            for design in ("gold", "gate"):
                script += [
                    "design -reset",
                    f"read_verilog {design}.v",
                    f"blackbox * {module} %d",
                    *AS_LOGIC,
                    opened(module),
                    f"design -stash {design}",
                ]
            script += [
                "design -reset",
                f"design -copy-from gold -as gold {module}",
                f"design -copy-from gate -as gate {module}",
                "equiv_make -blacklist apart gold gate both",
                *COMPARE[1:],
                "equiv_status",
            ]
            said = yosys.run(script, folder)
            if "Equivalence successfully proven" in said:
                return True
            found = set(_UNPROVEN.findall(said)) - differ
            # Registers and instances leave the module by ports with a dot.
            if not found or any("." in name or name in outputs for name in found):
                return False
            differ |= found
