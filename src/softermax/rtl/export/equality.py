"""How Yosys compares two versions of a module: with registers, memories' words and instances as inputs and outputs."""

from __future__ import annotations

AS_LOGIC = ("proc", "memory -nordff", "dffunmap", "opt_clean -purge")
"""A design that was read, as gates and plain registers."""
COMPARE = ("equiv_make gold gate both", "hierarchy -top both", "equiv_struct", "equiv_simple")
"""Words of the same name are compared on their way, so that no proof is large."""


def opened(module: str) -> str:
    """Its registers and instances become ports. From the top down: an instance is taken out while its module has its
    own ports only."""
    return f"expose -dff -evert -evert-dff {module}"
