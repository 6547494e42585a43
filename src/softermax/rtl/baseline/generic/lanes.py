"""Components side by side: one for each lane of a slice."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Mux, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.baseline.generic import divide, exponential
from softermax.rtl.baseline.generic.add import Add
from softermax.rtl.baseline.generic.model import MINUS_INFINITY
from softermax.rtl.baseline.payloads import halves


class Subtract(wiring.Component):
    """``x - maximum`` in every lane."""

    stages = Add.stages

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "x": In(halves(lanes)),
                "maximum": In(16),
                "enable": In(self.stages),
                "difference": Out(halves(lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            m.submodules[f"lane_{lane}"] = unit = Add()
            m.d.comb += [
                unit.a.eq(self.x[lane]),
                unit.b.eq(self.maximum),
                unit.subtract.eq(1),
                unit.enable.eq(self.enable),
                self.difference[lane].eq(unit.total),
            ]
        return m


class Exponential(wiring.Component):
    """``e^x`` in every lane, of -inf in those that are masked."""

    stages = exponential.Exponential.stages

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "x": In(halves(lanes)),
                "mask": In(unsigned(lanes)),
                "enable": In(self.stages),
                "result": Out(halves(lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            m.submodules[f"lane_{lane}"] = unit = exponential.Exponential()
            m.d.comb += [
                unit.x.eq(Mux(self.mask[lane], self.x[lane], Const(MINUS_INFINITY, 16))),
                unit.enable.eq(self.enable),
                self.result[lane].eq(unit.power),
            ]
        return m


class Divide(wiring.Component):
    """Every dividend over the same divisor; a lane's divider does not know that others have it too."""

    stages = divide.Divide.stages

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "dividend": In(halves(lanes)),
                "divisor": In(16),
                "enable": In(self.stages),
                "quotient": Out(halves(lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        for lane in range(self._lanes):
            m.submodules[f"lane_{lane}"] = unit = divide.Divide()
            m.d.comb += [
                unit.a.eq(self.dividend[lane]),
                unit.b.eq(self.divisor),
                unit.enable.eq(self.enable),
                self.quotient[lane].eq(unit.quotient),
            ]
        return m
