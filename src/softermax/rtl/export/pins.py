"""The streams of an exported module by the names of its ports, and what goes through them in its vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from amaranth.lib import data

from softermax.fixedpoint import IntArray
from softermax.rtl.axi_stream import AxiStream, lane_bytes
from softermax.rtl.packing import Words, pack
from softermax.rtl.simulation import ports_of
from softermax.rtl.skid_buffer import Registered
from softermax.rtl.unit import Unit
from softermax.rtl.vectors import Fields, fields_of_streams


@dataclass(frozen=True)
class Stream:
    """A stream of an exported module."""

    name: str
    is_input: bool
    layout: data.StructLayout
    payload: tuple[tuple[str, int], ...]
    """Ports that make up the payload, with their bits, the lowest first."""
    valid: str
    ready: str


@dataclass(frozen=True)
class Clocking:
    """Clock and reset of an exported module."""

    clock: str
    reset: str
    active_low: bool


PLAIN = Clocking("clk", "rst", False)
AXI = Clocking("aclk", "aresetn", True)


def clocking(component: Unit | AxiStream) -> Clocking:
    return AXI if isinstance(component, AxiStream) else PLAIN


def streams(component: Unit | AxiStream) -> list[Stream]:
    """Of a unit, or of the top with AXI4-Stream ports."""
    if isinstance(component, AxiStream):
        return [_axi("s_axis", True, component.s_axis), _axi("m_axis", False, component.m_axis)]
    return [plain(port.name, port.is_input, port.layout) for port in ports_of(component)]


def plain(name: str, is_input: bool, layout: data.StructLayout) -> Stream:
    """A stream as every unit has it, and every part of one."""
    payload = ((f"{name}__payload", int(layout.size)),)
    return Stream(name, is_input, layout, payload, f"{name}__valid", f"{name}__ready")


def _axi(name: str, is_input: bool, layout: data.StructLayout) -> Stream:
    payload = tuple((f"{name}_{part}", int(field.width)) for part, field in layout)
    return Stream(name, is_input, layout, payload, f"{name}_tvalid", f"{name}_tready")


def vectors(component: Unit | AxiStream, slices: int) -> dict[str, Words]:
    """Packed payloads of every stream."""
    unit = component.top if isinstance(component, AxiStream) else component
    inner = unit.unit if isinstance(unit, Registered) else unit
    fields = fields_of_streams(inner, slices)
    if isinstance(component, AxiStream):
        fields = {"s_axis": _scores(component, fields["slices"])} | {
            "m_axis": _probabilities(component, fields["probabilities"])
        }
    return {stream.name: pack(stream.layout, fields[stream.name]) for stream in streams(component)}


def _scores(component: AxiStream, slices: Fields) -> Fields:
    keep = np.repeat(slices["mask"], _bytes(component.s_axis), axis=1)
    return {"tdata": slices["x"], "tkeep": keep, "tlast": slices["last"], "tid": slices["row"]}


def _probabilities(component: AxiStream, out: Fields) -> Fields:
    keep: IntArray = np.ones((len(out["y"]), component.lanes * _bytes(component.m_axis)), dtype=np.int64)
    exponent = {"tuser": out["exponent"]} if "exponent" in out else {}
    return {"tdata": out["y"], "tkeep": keep, "tlast": out["last"], "tid": out["row"], **exponent}


def _bytes(layout: data.StructLayout) -> int:
    return lane_bytes(layout["tdata"].shape.elem_shape.width)
