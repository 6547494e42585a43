"""A unit as files that stand on their own: Verilog, test bench, vectors, datasheet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from softermax.files import write_text
from softermax.rtl.convert import provenance, to_verilog
from softermax.rtl.export.bench import hex_file, hex_name, test_bench
from softermax.rtl.export.datasheet import datasheet
from softermax.rtl.simulation import ports_of
from softermax.rtl.unit import Unit
from softermax.rtl.units import UnitName, create
from softermax.rtl.vectors import vectors
from softermax.spec import AnySpec

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def contents(unit: Unit, name: str, slices: int) -> dict[str, str]:
    """File names and texts. ``name`` is that of the module, and of all its files the first part."""
    made = vectors(unit, slices)
    header = provenance(f"{name}: {unit.description()}", unit.parameters())
    verilog = to_verilog(unit, name, header)
    if f"module \\{name} " in verilog:
        # Yosys escapes it.
        raise ValueError(f"name = {name!r}: must not be a keyword of Verilog")
    files = {
        f"{name}.v": verilog,
        f"{name}_tb.sv": test_bench(unit, name, made, header),
        f"{name}.md": datasheet(unit, name),
    }
    return files | {hex_name(name, port): hex_file(port, made[port.name]) for port in ports_of(unit)}


def export(
    spec: AnySpec,
    unit: UnitName,
    folder: Path,
    parameters: Mapping[str, int],
    slices: int = 600,
    name: str | None = None,
) -> list[Path]:
    """Write a unit's files; everything is made before the first file is written.

    ``name`` is the module's, the unit's own unless given. Modules of its parts begin with it, so that two exports of
    different names go into one design and into one folder.
    """
    if name is not None and not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name = {name!r}: must be letters, digits and underscores, and not begin with a digit"
        )
    component = create(spec, unit, **parameters)
    files = contents(component, name or component.module_name, slices)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: not a folder")
    for file, text in files.items():
        write_text(folder / file, text)
    return [folder / file for file in files]
