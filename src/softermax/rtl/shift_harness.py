"""A unit behind few pins: what a device with a few hundred pins can hold of a unit with a thousand wires."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.simulation import ports_of


class ShiftHarness(wiring.Component):
    """Shift registers around a unit: one is fed bit by bit and drives all of its inputs, one takes all of its outputs
    at once and gives them bit by bit.

    Every path of the unit lies between registers then, those from its inputs and to its outputs among them. Nothing of the
    unit can be optimised away: every input may be anything in every cycle, every output is seen.
    """

    UNIT = "unit"
    """The unit's name in here."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        super().__init__({"given": In(1), "capture": In(1), "taken": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules[self.UNIT] = self.unit
        inputs: list[Any] = []
        outputs: list[Any] = []
        for port in ports_of(self.unit):
            stream = getattr(self.unit, port.name)
            forward, backward = (inputs, outputs) if port.is_input else (outputs, inputs)
            forward += [stream.payload.as_value(), stream.valid]
            backward.append(stream.ready)
        into = Signal(sum(map(len, inputs)), reset_less=True)
        out = Signal(sum(map(len, outputs)), reset_less=True)
        m.d.comb += [Cat(*inputs).eq(into), self.taken.eq(out[-1])]
        m.d.sync += [
            into.eq(Cat(self.given, into)),
            out.eq(Mux(self.capture, Cat(*outputs), out << 1)),
        ]
        return m
