"""What tools of integration ask for beside the Verilog: a FuseSoC core, and an IP-XACT description. No unit has registers
that software could reach, so neither has a memory map."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from softermax import __version__
from softermax.rtl.export.bench import hex_name
from softermax.rtl.export.pins import AXI, Clocking, Stream

_IPXACT = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"
_AXI_PORTS = {"tdata": "TDATA", "tkeep": "TKEEP", "tlast": "TLAST", "tid": "TID", "tuser": "TUSER"}


def fusesoc_core(streams: Sequence[Stream], name: str, about: str) -> str:
    """The core file (CAPI 2): targets ``default``, ``lint`` and ``sim``."""
    hexes = "".join(
        f"      - {file}: {{file_type: user, copyto: {file}}}\n"
        for file in (hex_name(name, stream.name) for stream in streams)
    )
    return _CORE.format(name=name, version=__version__, about=about.replace('"', "'"), hexes=hexes)


_CORE = """CAPI=2:
# SPDX-License-Identifier: Apache-2.0
name: softermax:units:{name}:{version}
description: "{about}"

filesets:
  rtl:
    files:
      - {name}.v: {{file_type: verilogSource-2005}}
  bench:
    files:
      - {name}_tb.sv: {{file_type: systemVerilogSource}}
{hexes}
targets:
  default: &default
    filesets: [rtl]
    toplevel: {name}
  lint:
    <<: *default
    default_tool: verilator
    tools:
      verilator:
        mode: lint-only
  sim:
    filesets: [rtl, bench]
    toplevel: {name}_tb
    default_tool: icarus
    tools:
      icarus:
        iverilog_options: [-g2012]
"""


def ipxact(streams: Sequence[Stream], clocking: Clocking, name: str, about: str) -> str:
    """The component in IP-XACT (IEEE 1685-2014): ports, files and, of AXI4-Stream ports, bus interfaces."""
    ports = [(clocking.clock, "in", 1), (clocking.reset, "in", 1)]
    for stream in streams:
        into, out = ("in", "out") if stream.is_input else ("out", "in")
        ports += [(port, into, bits) for port, bits in stream.payload]
        ports += [(stream.valid, into, 1), (stream.ready, out, 1)]
    buses = "".join(_bus(stream) for stream in streams) if clocking is AXI else ""
    return _COMPONENT.format(
        xmlns=_IPXACT,
        name=name,
        version=__version__,
        about=escape(about),
        buses=f"  <ipxact:busInterfaces>\n{buses}  </ipxact:busInterfaces>\n" if buses else "",
        ports="".join(_PORT.format(port=port, direction=way, left=bits - 1) for port, way, bits in ports),
    )


def _bus(stream: Stream) -> str:
    maps = [(_AXI_PORTS[port.removeprefix(f"{stream.name}_")], port) for port, _ in stream.payload]
    maps += [("TVALID", stream.valid), ("TREADY", stream.ready)]
    return _BUS.format(
        name=stream.name,
        side="slave" if stream.is_input else "master",
        maps="".join(_MAP.format(logical=logical, physical=port) for logical, port in maps),
    )


_COMPONENT = """<?xml version="1.0" encoding="UTF-8"?>
<!-- SPDX-License-Identifier: Apache-2.0 -->
<ipxact:component xmlns:ipxact="{xmlns}">
  <ipxact:vendor>softermax</ipxact:vendor>
  <ipxact:library>units</ipxact:library>
  <ipxact:name>{name}</ipxact:name>
  <ipxact:version>{version}</ipxact:version>
{buses}  <ipxact:model>
    <ipxact:views>
      <ipxact:view>
        <ipxact:name>rtl</ipxact:name>
        <ipxact:componentInstantiationRef>rtl</ipxact:componentInstantiationRef>
      </ipxact:view>
    </ipxact:views>
    <ipxact:instantiations>
      <ipxact:componentInstantiation>
        <ipxact:name>rtl</ipxact:name>
        <ipxact:language>verilog</ipxact:language>
        <ipxact:moduleName>{name}</ipxact:moduleName>
        <ipxact:fileSetRef>
          <ipxact:localName>rtl</ipxact:localName>
        </ipxact:fileSetRef>
      </ipxact:componentInstantiation>
    </ipxact:instantiations>
    <ipxact:ports>
{ports}    </ipxact:ports>
  </ipxact:model>
  <ipxact:fileSets>
    <ipxact:fileSet>
      <ipxact:name>rtl</ipxact:name>
      <ipxact:file>
        <ipxact:name>{name}.v</ipxact:name>
        <ipxact:fileType>verilogSource</ipxact:fileType>
      </ipxact:file>
    </ipxact:fileSet>
  </ipxact:fileSets>
  <ipxact:description>{about}</ipxact:description>
</ipxact:component>
"""
_PORT = """      <ipxact:port>
        <ipxact:name>{port}</ipxact:name>
        <ipxact:wire>
          <ipxact:direction>{direction}</ipxact:direction>
          <ipxact:vectors>
            <ipxact:vector>
              <ipxact:left>{left}</ipxact:left>
              <ipxact:right>0</ipxact:right>
            </ipxact:vector>
          </ipxact:vectors>
        </ipxact:wire>
      </ipxact:port>
"""
_BUS = """    <ipxact:busInterface>
      <ipxact:name>{name}</ipxact:name>
      <ipxact:busType vendor="amba.com" library="AMBA4" name="AXI4Stream" version="r0p0_1"/>
      <ipxact:abstractionTypes>
        <ipxact:abstractionType>
          <ipxact:abstractionRef vendor="amba.com" library="AMBA4" name="AXI4Stream_rtl" version="r0p0_1"/>
          <ipxact:portMaps>
{maps}          </ipxact:portMaps>
        </ipxact:abstractionType>
      </ipxact:abstractionTypes>
      <ipxact:{side}/>
    </ipxact:busInterface>
"""
_MAP = """            <ipxact:portMap>
              <ipxact:logicalPort>
                <ipxact:name>{logical}</ipxact:name>
              </ipxact:logicalPort>
              <ipxact:physicalPort>
                <ipxact:name>{physical}</ipxact:name>
              </ipxact:physicalPort>
            </ipxact:portMap>
"""
