"""The processing element up to its accumulators: commands in, scores of NLanes keys out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pe.buffer import Buffer
from softermax.rtl.pe.config import OPERAND_BITS, PEConfig
from softermax.rtl.pe.payloads import Kind, accumulators, command_layout, scores_layout
from softermax.rtl.pe.schedule import Schedule
from softermax.rtl.pe.vector_mac import VectorMac
from softermax.rtl.pipeline import follow, register, stages

BUFFERS = ("input_buffer", "weight_buffer", "collector")


class ProcessingElement(wiring.Component):
    """Vector MACs between input buffer, weight buffer and accumulation collector.

    stage 0   schedule: addresses of vector and weights
    stage 1   buffers: vector, and weights when they change       | vector, weights (the ports' registers)
    stage 2   lanes: products                                     | products
    stage 3   lanes: dot products; collector: accumulators read   | dot products, accumulators
    stage 4   lanes: added; back into the collector, or a query's scores out

    All stages wait when the scores are not taken. ``accesses`` has a bit for each port's access in a
    cycle: reading and writing of each of `BUFFERS`.
    """

    def __init__(self, config: PEConfig) -> None:
        self.config = config
        operands = data.ArrayLayout(unsigned(OPERAND_BITS), config.vector_size)
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(config))),
                "scores": Out(stream.Signature(scores_layout(config))),
                "accesses": Out(2 * len(BUFFERS)),
            }
        )
        self.schedule = Schedule(config)
        self.input_buffer = Buffer(operands, config.vectors)
        self.weight_buffer = Buffer(data.ArrayLayout(operands, config.lanes), config.tiles)
        self.collector = Buffer(accumulators(config), config.rows)
        self.macs = [VectorMac(config.vector_size) for _ in range(config.lanes)]

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.schedule = schedule = self.schedule
        for name in BUFFERS:
            m.submodules[name] = getattr(self, name)
        scores = self.scores
        advance = Signal()
        valids, enables = stages(m, schedule.step, advance, 3, "stage")
        m.d.comb += [schedule.advance.eq(advance), advance.eq(~scores.valid | scores.ready)]
        run = self._take_commands(m, valids)
        at_2, at_3 = self._read_operands(m, enables)
        self._accumulate(m, enables, at_2, at_3)

        # Stage 4: back into the collector, or out.
        m.d.comb += [
            self.collector.write.eq(valids[-1] & advance & ~at_3.last_chunk),
            self.collector.write_address.eq(at_3.row),
            scores.valid.eq(valids[-1] & at_3.last_chunk),
            scores.p.row.eq(at_3.row),
            scores.p.first.eq(at_3.first_group & run["first"]),
            scores.p.last.eq(at_3.last_group & run["last"]),
            scores.p.ends_tile.eq(scores.p.last & at_3.last_row),
            scores.p.mantissa.eq(run["mantissa"]),
            scores.p.shift.eq(run["shift"]),
            *(
                scores.p.mask[lane].eq(~at_3.last_group | (lane < run["keys"]))
                for lane in range(self.config.lanes)
            ),
        ]
        ports = [port for name in BUFFERS for port in (getattr(self, name).read, getattr(self, name).write)]
        m.d.comb += self.accesses.eq(Cat(*ports))
        return m

    def _take_commands(self, m: Module, valids: list[Signal]) -> dict[str, Signal]:
        """Writes and starts; a run keeps the next command waiting until its last step has left. What a run has to say
        of all its scores."""
        commands, schedule = self.commands, self.schedule
        input_buffer, weight_buffer = self.input_buffer, self.weight_buffer
        operands = commands.p["data"].as_value()
        taken = Signal()
        m.d.comb += [
            commands.ready.eq(~Cat(schedule.step, *valids).any()),
            taken.eq(commands.valid & commands.ready),
            schedule.start.eq(taken & (commands.p.kind == Kind.RUN)),
            schedule.queries.eq(commands.p.queries),
            schedule.groups.eq(commands.p.groups),
            schedule.chunks.eq(commands.p.chunks),
            input_buffer.write.eq(taken & (commands.p.kind == Kind.INPUT)),
            input_buffer.write_address.eq(commands.p.address),
            input_buffer.write_data.eq(operands[: len(input_buffer.write_data.as_value())]),
            weight_buffer.write.eq(taken & (commands.p.kind == Kind.WEIGHTS)),
            weight_buffer.write_address.eq(commands.p.address),
            weight_buffer.write_data.eq(operands),
        ]
        names = ("keys", "first", "last", "mantissa", "shift")
        return {name: register(m, getattr(commands.p, name), schedule.start, name) for name in names}

    def _read_operands(self, m: Module, enables: list[Signal]) -> tuple[data.View, data.View]:
        """Stage 0: addresses. Where the steps of stages 2 and 3 stand in their run."""
        schedule, input_buffer, weight_buffer = self.schedule, self.input_buffer, self.weight_buffer
        m.d.comb += [
            input_buffer.read.eq(enables[0]),
            input_buffer.read_address.eq(schedule.input_address),
            weight_buffer.read.eq(enables[0] & schedule.first_row),
            weight_buffer.read_address.eq(schedule.weight_address),
        ]
        names = ("row", "last_row", "first_chunk", "last_chunk", "first_group", "last_group")
        place = Signal(data.StructLayout({name: getattr(schedule, name).shape() for name in names}))
        m.d.comb += [place[name].eq(getattr(schedule, name)) for name in names]
        _, at_2, at_3 = follow(m, place, enables, "place", 1)
        return at_2, at_3

    def _accumulate(self, m: Module, enables: list[Signal], at_2: data.View, at_3: data.View) -> None:
        """Stages 1 to 4 of the lanes: products, then their sums beside what the collector has."""
        collector = self.collector
        m.d.comb += [
            collector.read.eq(enables[2] & ~at_2.first_chunk),
            collector.read_address.eq(at_2.row),
        ]
        for lane, mac in enumerate(self.macs):
            m.submodules[f"mac_{lane}"] = mac
            m.d.comb += [
                mac.vector.eq(self.input_buffer.read_data),
                mac.weights.eq(self.weight_buffer.read_data[lane]),
                mac.enable.eq(Cat(enables[1], enables[2])),
                mac.first.eq(at_3.first_chunk),
                mac.collected.eq(collector.read_data[lane]),
                collector.write_data[lane].eq(mac.accumulated),
                self.scores.p.acc[lane].eq(mac.accumulated),
            ]
