"""A unit with registers after its outputs: what a comparison at equal borders asks for.

The lanes of Softermax end in gates, those of the baselines in registers; whoever puts ours into a pipeline may have to
add them.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring

from softermax.rtl.pipeline import register


class OutputRegisters(wiring.Component):
    """A unit and one register stage after each of its output streams; ready goes through without a register."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        super().__init__(unit.signature)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        for name, member in self.signature.members.items():
            inner, outer = getattr(unit, name), getattr(self, name)
            if member.is_port or not isinstance(member.signature, stream.Signature):
                raise TypeError(f"{name}: only streams have registers put after them")
            if member.flow == wiring.In:
                wiring.connect(m, wiring.flipped(outer), inner)
                continue
            m.d.comb += inner.ready.eq(~outer.valid | outer.ready)
            with m.If(inner.ready):
                m.d.sync += outer.valid.eq(inner.valid)
            moved = register(m, inner.p.as_value(), inner.valid & inner.ready, f"{name}_out")
            m.d.comb += outer.p.as_value().eq(moved)
        return m
