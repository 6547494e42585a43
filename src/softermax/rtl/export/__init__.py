"""A unit as files that stand on their own: Verilog, benches, vectors, datasheet, FuseSoC core, IP-XACT description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from softermax.files import write_text
from softermax.rtl.axi_stream import AxiStream
from softermax.rtl.convert import provenance
from softermax.rtl.export.bench import hex_file, hex_name, test_bench
from softermax.rtl.export.cocotb_bench import cocotb_bench
from softermax.rtl.export.datasheet import datasheet
from softermax.rtl.export.packages import fusesoc_core, ipxact
from softermax.rtl.export.pins import clocking, streams, vectors
from softermax.rtl.export.verilog import to_readable_verilog
from softermax.rtl.skid_buffer import Registered
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unit import Unit
from softermax.rtl.units import UnitName, create
from softermax.spec import AnySpec

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def contents(unit: Unit, name: str, slices: int, axi: bool = False) -> dict[str, str]:
    """File names and texts. ``name`` is that of the module, and of all its files the first part."""
    component = AxiStream(unit) if axi else unit
    made, ports = vectors(component, slices), streams(component)
    header = provenance(f"{name}: {unit.description()}", unit.parameters())
    files = {
        f"{name}.v": to_readable_verilog(component, name, header),
        f"{name}_tb.sv": test_bench(ports, clocking(component), name, made, header),
        f"{name}.md": datasheet(unit, name, component),
        f"test_{name}.py": cocotb_bench(ports, clocking(component), name, header),
        f"{name}.core": fusesoc_core(ports, name, unit.description()),
        f"{name}.xml": ipxact(ports, clocking(component), name, unit.description()),
    }
    return files | {
        hex_name(name, port.name): hex_file(int(port.layout.size), made[port.name]) for port in ports
    }


def export(
    spec: AnySpec,
    unit: UnitName,
    folder: Path,
    parameters: Mapping[str, int],
    slices: int = 600,
    name: str | None = None,
    axi: bool = False,
    registered: bool = False,
) -> list[Path]:
    """Write a unit's files; everything is made before the first file is written.

    ``axi`` puts the top between AXI4-Stream ports, ``registered`` skid buffers on all streams.
    ``name`` is the module's, the unit's own unless given. Modules of its parts begin with it, so that two exports of
    different names go into one design and into one folder.
    """
    if name is not None and not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name = {name!r}: must be letters, digits and underscores, and not begin with a digit"
        )
    made: Unit = create(spec, unit, **parameters)
    if axi and not isinstance(made, Softermax):
        raise ValueError(
            f"axi with unit = {unit!r}: AXI4-Stream ports are the top's; must be of the unit top"
        )
    module = name or (f"{made.module_name}_axi" if axi else made.module_name)
    files = contents(Registered(made) if registered else made, module, slices, axi)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: not a folder")
    for file, text in files.items():
        write_text(folder / file, text)
    return [folder / file for file in files]
