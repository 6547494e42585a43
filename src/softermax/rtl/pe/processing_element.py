"""The processing element up to its accumulators: commands in, scores of NLanes keys out."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.pe.buffer import Buffer
from softermax.rtl.pe.config import OPERAND_BITS, PEConfig
from softermax.rtl.pe.schedule import Schedule
from softermax.rtl.pe.vector_mac import VectorMac
from softermax.rtl.pe.words import Kind, accumulators, command_layout, scores_layout

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
        m.submodules.input_buffer = input_buffer = self.input_buffer
        m.submodules.weight_buffer = weight_buffer = self.weight_buffer
        m.submodules.collector = collector = self.collector
        commands, scores = self.commands, self.scores

        # Commands: a run keeps the next command waiting until its last step has left.
        valid = {stage: Signal(name=f"valid_{stage}") for stage in (1, 2, 3)}
        run = {name: Signal.like(getattr(commands.p, name), reset_less=True, name=name)
               for name in ("keys", "first", "last", "mantissa", "shift")}  # fmt: skip
        taken = Signal()
        advance = Signal()
        m.d.comb += [
            commands.ready.eq(~schedule.step & ~valid[1] & ~valid[2] & ~valid[3]),
            taken.eq(commands.valid & commands.ready),
            schedule.start.eq(taken & (commands.p.kind == Kind.RUN)),
            schedule.queries.eq(commands.p.queries),
            schedule.groups.eq(commands.p.groups),
            schedule.chunks.eq(commands.p.chunks),
            schedule.advance.eq(advance),
            input_buffer.write.eq(taken & (commands.p.kind == Kind.INPUT)),
            input_buffer.write_address.eq(commands.p.address),
            input_buffer.write_data.eq(
                commands.p["data"].as_value()[: len(input_buffer.write_data.as_value())]
            ),
            weight_buffer.write.eq(taken & (commands.p.kind == Kind.WEIGHTS)),
            weight_buffer.write_address.eq(commands.p.address),
            weight_buffer.write_data.eq(commands.p["data"].as_value()),
        ]
        with m.If(schedule.start):
            m.d.sync += [register.eq(getattr(commands.p, name)) for name, register in run.items()]

        # Stage 0 to 1: readings.
        into_1 = Signal()
        m.d.comb += [
            into_1.eq(schedule.step & advance),
            input_buffer.read.eq(into_1),
            input_buffer.read_address.eq(schedule.input_address),
            weight_buffer.read.eq(into_1 & schedule.first_row),
            weight_buffer.read_address.eq(schedule.weight_address),
        ]
        flags = Cat(
            schedule.row, schedule.last_row, schedule.first_chunk, schedule.last_chunk,
            schedule.first_group, schedule.last_group,
        )  # fmt: skip
        flags_1, flags_2, flags_3 = (
            Signal.like(flags, reset_less=True, name=f"flags_{i}") for i in (1, 2, 3)
        )
        with m.If(advance):
            m.d.sync += [valid[1].eq(schedule.step), valid[2].eq(valid[1]), valid[3].eq(valid[2])]
        with m.If(into_1):
            m.d.sync += flags_1.eq(flags)

        # Stages 1 to 3: products, then their sums beside what the collector has.
        bits = len(schedule.row)
        into_2, into_3 = Signal(), Signal()
        m.d.comb += [
            into_2.eq(valid[1] & advance),
            into_3.eq(valid[2] & advance),
            collector.read.eq(into_3 & ~flags_2[bits + 1]),
            collector.read_address.eq(flags_2[:bits]),
        ]
        with m.If(into_2):
            m.d.sync += flags_2.eq(flags_1)
        with m.If(into_3):
            m.d.sync += flags_3.eq(flags_2)

        # Stage 4: sums.
        row, last_row, first_chunk, last_chunk, first_group, last_group = (
            flags_3[:bits], *(flags_3[bits + i] for i in range(5))
        )  # fmt: skip
        for lane, mac in enumerate(self.macs):
            m.submodules[f"mac_{lane}"] = mac
            m.d.comb += [
                mac.vector.eq(input_buffer.read_data),
                mac.weights.eq(weight_buffer.read_data[lane]),
                mac.enable.eq(Cat(into_2, into_3)),
                mac.first.eq(first_chunk),
                mac.collected.eq(collector.read_data[lane]),
                collector.write_data[lane].eq(mac.accumulated),
                scores.p.acc[lane].eq(mac.accumulated),
                scores.p.mask[lane].eq(~last_group | (lane < run["keys"])),
            ]
        m.d.comb += [
            collector.write.eq(valid[3] & advance & ~last_chunk),
            collector.write_address.eq(row),
            scores.valid.eq(valid[3] & last_chunk),
            advance.eq(~scores.valid | scores.ready),
            scores.p.row.eq(row),
            scores.p.first.eq(first_group & run["first"]),
            scores.p.last.eq(last_group & run["last"]),
            scores.p.ends_tile.eq(scores.p.last & last_row),
            scores.p.mantissa.eq(run["mantissa"]),
            scores.p.shift.eq(run["shift"]),
        ]
        ports = [port for name in BUFFERS for port in (getattr(self, name).read, getattr(self, name).write)]
        m.d.comb += self.accesses.eq(Cat(*ports))
        return m
