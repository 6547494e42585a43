"""Streams with registers on all their wires: two words of room, so that ready needs no answer from behind."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pipeline import register
from softermax.rtl.simulation import ports_of
from softermax.rtl.unit import Event, Unit


class SkidBuffer(wiring.Component):
    """A stream, one cycle later: valid, payload and ready all come from registers.

    The second word holds what arrives in the cycle in which the sink stops taking; a word per cycle goes through.
    """

    latency = 1

    def __init__(self, shape: Any) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        i, o = self.i, self.o
        spare, into_o, into_spare = Signal(), Signal(), Signal()
        empty = Signal(init=1)
        """Of the second word: ready as a register."""
        m.d.comb += [
            i.ready.eq(empty),
            spare.eq(~empty),
            into_o.eq((~o.valid | o.ready) & (i.valid | spare)),
            into_spare.eq(i.valid & empty & o.valid & ~o.ready),
        ]
        kept = register(m, i.payload.as_value(), into_spare, "spare_payload")
        word = register(m, Mux(spare, kept, i.payload.as_value()), into_o, "payload")
        m.d.comb += o.payload.as_value().eq(word)
        with m.If(~o.valid | o.ready):
            m.d.sync += [o.valid.eq(i.valid | spare), empty.eq(1)]
        with m.Elif(into_spare):
            m.d.sync += empty.eq(0)
        return m


def skid_registers(unit: Any) -> int:
    """Flip-flops of skid buffers on all streams of a unit: two words each, valid and ready."""
    return sum(2 * int(port.layout.size) + 2 for port in ports_of(unit))


class Registered(Unit):
    """A unit with a skid buffer on every stream: all its outputs are registers, and no input reaches one of them
    within a cycle."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.name, self.module_name = unit.name, unit.module_name  # type: ignore[misc]
        self.cycles_per_slice = unit.cycles_per_slice  # type: ignore[misc]
        self.spec, self.lanes = unit.spec, unit.lanes
        super().__init__(unit.signature)

    def description(self) -> str:  # type: ignore[override]
        return f"{self.unit.description()} Skid buffers on all streams."

    @property
    def longest_row(self) -> int | None:
        return self.unit.longest_row

    def parameters(self) -> dict[str, Any]:
        return {"registered": "skid buffers on all streams", **self.unit.parameters()}

    def timing(self) -> list[Event]:
        """What comes in is taken at once, what goes out is later by the two buffers on its way."""
        later = 2 * SkidBuffer.latency
        events = []
        for event in self.unit.timing():
            if self.signature.members[event.stream].flow == In:
                cycles = tuple(range(len(event.cycles)))
                meaning = f"`{event.stream}` is taken from cycle 0 on"
            else:
                cycles = tuple(cycle + later for cycle in event.cycles)
                meaning = (
                    f"`{event.stream}` from cycle {cycles[0]} on, {later} later than without the skid buffers"
                )
            events.append(Event(event.stream, cycles, meaning))
        return events

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        for name, member in self.signature.members.items():
            outer, inner = getattr(self, name), getattr(self.unit, name)
            m.submodules[f"{name}_skid"] = skid = SkidBuffer(inner.payload.shape())
            if member.flow == In:
                wiring.connect(m, wiring.flipped(outer), skid.i)
                wiring.connect(m, skid.o, inner)
            else:
                wiring.connect(m, inner, skid.i)
                wiring.connect(m, skid.o, wiring.flipped(outer))
        return m
