"""A unit as Verilog that people read: modules as in the sources, each with what its source says of it, words under
their own names, registers grouped by the enable that they share.

Registers have no initial values: what is not reset holds no word that anything depends on. `tests/rtl/test_verilog.py` proves
every module equal to the RTLIL that synthesis takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from amaranth.hdl import Fragment
from amaranth.lib import wiring

from softermax.rtl.convert import to_rtlil
from softermax.rtl.export.module import text_of
from softermax.rtl.export.names import KEYWORDS, module_names, port_names
from softermax.rtl.export.rtlil import read

_MEANT = """\
// Unsigned operands are meant to be extended with zeros, and of a sum the lower bits to be taken: the others are unused.
// Of cases that overlap the first one counts. All modules of a design are in one file.
"""
_LINTS = ("WIDTHEXPAND", "WIDTHTRUNC", "UNUSEDSIGNAL", "CASEOVERLAP", "DECLFILENAME")
"""Off from the first module to the last, and on again for whatever file comes next."""


def to_readable_verilog(component: wiring.Component, name: str, header: str = "") -> str:
    """The component and its parts as Verilog-2005 modules; ``header`` goes on top as a comment.

    The module is called ``name``, and those of its parts begin with it: two designs of different names go together.
    """
    if name in KEYWORDS:
        raise ValueError(f"name = {name!r}: must not be a keyword of Verilog")
    modules = read(to_rtlil(component, name))
    called, ports = module_names(modules), port_names(modules)
    about = dict(_described(Fragment.get(component, None), name))
    parts = [
        _comment(about.get(module.name, "")) + text_of(module, called, ports) for module in modules.values()
    ]
    off, on = ("".join(f"// verilator lint_{how} {name}\n" for name in _LINTS) for how in ("off", "on"))
    return _comment(header) + _MEANT + off + "\n" + "\n".join(parts) + "\n" + on


def _described(fragment: Fragment, path: str) -> Iterator[tuple[str, str]]:
    """What the sources say of the module at a path and of its parts."""
    yield path, _docs(fragment)
    for number, (part, name, _) in enumerate(fragment.subfragments):
        yield from _described(part, f"{path}.{name or f'U${number}'}")


def _docs(fragment: Fragment) -> str:
    made_from = [origin for origin in fragment.origins or () if isinstance(origin, wiring.Component)]
    if not made_from:
        return ""
    of = type(made_from[0])
    if not of.__module__.startswith("softermax."):
        return f"{of.__name__} of Amaranth's library."
    return inspect.cleandoc(of.__doc__ or "")


def _comment(text: str) -> str:
    return "".join(f"// {line}".rstrip() + "\n" for line in text.splitlines())
