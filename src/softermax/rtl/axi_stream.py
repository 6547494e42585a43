"""The top between two AXI4-Stream ports, under the names that the standard gives them.

Lanes are whole bytes, lane 0 lowest. ``tkeep`` in is the mask: a lane takes part if the bit of its lowest byte is set.
``tlast`` ends a row, ``tid`` names it; slices of different rows may be mixed as AXI allows for different ids. The first slice of a
row needs no mark: it is the one after the last.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, ClockDomain, Module, Shape, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.skid_buffer import Registered
from softermax.rtl.softermax_top import Softermax

BYTE = 8


def lane_bytes(bits: int) -> int:
    """Bytes that a lane of so many bits takes."""
    return -(-bits // BYTE)


def _widened(word: Shape) -> Shape:
    bits = BYTE * lane_bytes(word.width)
    return signed(bits) if word.signed else unsigned(bits)


class AxiStream(wiring.Component):
    """The top with AXI4-Stream ports: ``s_axis`` takes slices of scores, ``m_axis`` gives slices of probabilities.

    A score is extended to whole bytes; what stands above its bits is not looked at. Probabilities are extended with
    zeros. ``m_axis_tkeep`` is all ones: a masked lane's probability is zero. Row-scaled words have their row's exponent in
    ``m_axis_tuser``, sign-extended to whole bytes.
    """

    def __init__(self, top: Softermax | Registered) -> None:
        self.top = top
        unit: Any = top.unit if isinstance(top, Registered) else top
        self.lanes, self.rows = unit.lanes, unit.rows
        slices, probabilities = top.slices.payload.shape(), top.probabilities.payload.shape()
        score, y = (Shape.cast(lanes.shape.elem_shape) for lanes in (slices["x"], probabilities["y"]))
        row = {"tid": slices["row"].shape} if "row" in dict(slices) else {}
        self.s_axis = data.StructLayout(
            {
                "tdata": data.ArrayLayout(_widened(score), self.lanes),
                "tkeep": unsigned(self.lanes * lane_bytes(score.width)),
                "tlast": 1,
                **row,
            }
        )
        exponent = {}
        if "exponent" in dict(probabilities):
            exponent["tuser"] = _widened(Shape.cast(probabilities["exponent"].shape))
        self.m_axis = data.StructLayout(
            {
                "tdata": data.ArrayLayout(_widened(y), self.lanes),
                "tkeep": unsigned(self.lanes * lane_bytes(y.width)),
                "tlast": 1,
                **row,
                **exponent,
            }
        )
        super().__init__(
            {
                "aclk": In(1),
                "aresetn": In(1),
                **{f"s_axis_{name}": In(field.width) for name, field in self.s_axis},
                "s_axis_tvalid": In(1),
                "s_axis_tready": Out(1),
                **{f"m_axis_{name}": Out(field.width) for name, field in self.m_axis},
                "m_axis_tvalid": Out(1),
                "m_axis_tready": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = sync = ClockDomain("sync")
        m.d.comb += [sync.clk.eq(self.aclk), sync.rst.eq(~self.aresetn)]
        m.submodules.top = self.top
        self._in(m)
        self._out(m)
        return m

    def _in(self, m: Module) -> None:
        slices: Any = self.top.slices
        lane = len(self.s_axis_tdata) // self.lanes
        bits = len(slices.p.x[0])
        # Of every row id, whether a row is open: if not, its next slice is a first one.
        opened = Array(Signal(name=f"open_{row}") for row in range(self.rows))
        row = self.s_axis_tid if self.rows > 1 else 0
        is_open = Signal()
        m.d.comb += [
            is_open.eq(opened[row]),
            *(slices.p.x[i].eq(self.s_axis_tdata[i * lane : i * lane + bits]) for i in range(self.lanes)),
            slices.p.mask.eq(Cat(self.s_axis_tkeep[i * lane // BYTE] for i in range(self.lanes))),
            slices.p.first.eq(~is_open),
            slices.p.last.eq(self.s_axis_tlast),
            slices.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(slices.ready),
        ]
        if self.rows > 1:
            m.d.comb += slices.p.row.eq(self.s_axis_tid)
        with m.If(self.s_axis_tvalid & self.s_axis_tready):
            m.d.sync += opened[row].eq(~self.s_axis_tlast)

    def _out(self, m: Module) -> None:
        out: Any = self.top.probabilities
        lane = len(self.m_axis_tdata) // self.lanes
        m.d.comb += [
            *(self.m_axis_tdata[i * lane : (i + 1) * lane].eq(out.p.y[i]) for i in range(self.lanes)),
            self.m_axis_tkeep.eq(~0),
            self.m_axis_tlast.eq(out.p.last),
            self.m_axis_tvalid.eq(out.valid),
            out.ready.eq(self.m_axis_tready),
        ]
        if self.rows > 1:
            m.d.comb += self.m_axis_tid.eq(out.p.row)
        if "tuser" in dict(self.m_axis):
            m.d.comb += self.m_axis_tuser.eq(out.p.exponent)
