"""A unit as files that stand on their own: Verilog, test bench, vectors, datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from softermax.files import write_text
from softermax.rtl.convert import spec_header, to_verilog
from softermax.rtl.export.bench import hex_file, test_bench
from softermax.rtl.export.datasheet import datasheet
from softermax.rtl.simulation import ports_of
from softermax.rtl.unit import Unit
from softermax.rtl.units import UnitName, create
from softermax.rtl.vectors import vectors
from softermax.spec import AnySpec


def contents(unit: Unit, slices: int) -> dict[str, str]:
    """File names and texts."""
    name, made = unit.module_name, vectors(unit, slices)
    header = spec_header(f"{name}: {unit.description()}", unit.spec)
    files = {
        f"{name}.v": to_verilog(unit, name, header),
        f"{name}_tb.sv": test_bench(
            unit, name, made, f"Test bench of {name}: prints PASS or FAIL.\n" + header
        ),
        f"{name}.md": datasheet(unit, name),
    }
    return files | {f"{port.name}.hex": hex_file(port, made[port.name]) for port in ports_of(unit)}


def export(
    spec: AnySpec, unit: UnitName, folder: Path, parameters: Mapping[str, int], slices: int = 600
) -> list[Path]:
    """Write a unit's files; everything is made before the first file is written."""
    files = contents(create(spec, unit, **parameters), slices)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: not a folder")
    for file, text in files.items():
        write_text(folder / file, text)
    return [folder / file for file in files]
