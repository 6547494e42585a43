"""The Unnormed Softmax unit for deferred normalisation (A8): weights of eight bits, and their PowSum."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from softermax.fixedpoint import QFormat
from softermax.rtl.deferred import weight_of
from softermax.rtl.payloads import integer_max, lanes_of
from softermax.rtl.power_of_two import PowerOfTwo
from softermax.rtl.sizes import check_buildable
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import DeferredSpec


def _word(spec: DeferredSpec) -> QFormat:
    """A weight as an unnormed word: above its fraction stands an integer bit, which it never sets."""
    return QFormat(1, spec.weight.fraction)


class Weights(wiring.Component):
    """Power of Two, its words rounded half up and saturated to weights: with the ports of `PowerOfTwo`."""

    def __init__(self, spec: DeferredSpec, lanes: int) -> None:
        self._spec = spec
        scores = spec.scores
        super().__init__(
            {
                "x": In(lanes_of(scores.input, lanes)),
                "mask": In(lanes),
                "enable_2": In(1),
                "running_max": In(integer_max(scores)),
                "enable_3": In(1),
                "unnormed": Out(lanes_of(_word(spec), lanes)),
            }
        )
        self.power_of_two = PowerOfTwo(scores, lanes)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.power_of_two = power = self.power_of_two
        for name in ("x", "mask", "enable_2", "running_max", "enable_3"):
            m.d.comb += getattr(power, name).eq(getattr(self, name))
        for lane in range(len(self.mask)):
            m.d.comb += self.unnormed[lane].eq(weight_of(power.unnormed[lane], self._spec))
        return m


class WeightSoftmax(UnnormedSoftmax):
    """`UnnormedSoftmax` with weights for unnormed words: PowSum adds up what P·V will take, and no more."""

    def __init__(self, spec: DeferredSpec, rows: int = 1) -> None:
        words = spec.scores.replace(unnormed=_word(spec), powsum=spec.powsum)
        super().__init__(words, rows, Weights(spec, check_buildable(spec.scores)))
