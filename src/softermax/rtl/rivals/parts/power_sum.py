"""One pass over a row for designs whose exponentials are powers of two: running max, exponents, their sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.columns import addends, sum_of
from softermax.rtl.int_max import flip_sign
from softermax.rtl.pipeline import Elastic, follow, register
from softermax.rtl.rivals.parts import LONGEST
from softermax.rtl.rivals.parts.payloads import INT8, check_lanes, slice_layout, words_layout
from softermax.rtl.rivals.parts.row_max import RowMax

_ROWS_OF_ADDERS = 5
"""After the exponents, in the same stage."""


@dataclass(frozen=True)
class Code(ABC):
    """How a design makes an exponent of a distance: exp is ``2^(top - code)`` while that is an integer, 0 beyond."""

    top: int

    @abstractmethod
    def of(self, m: Module, distance: Value, name: str) -> Value:
        """The code of an unsigned distance, without a register."""

    @property
    def total_bits(self) -> int:
        return int((LONGEST << self.top).bit_length())


def finished_layout(score: Shape, code: Code) -> data.StructLayout:
    """What is known of a row that ended."""
    return data.StructLayout({"max": score, "total": unsigned(code.total_bits)})


class PowerSum(wiring.Component):
    """Slices of scores in; max and sum of each row that ends in ``finished``, ``sum_latency`` cycles after its last slice.

    The sum is renormalised with every slice: shifted by the code of what the max grew by. With ``keeps`` bits the codes of
    every slice leave in ``kept``, with the running max that they refer to: 4-bit codes wait for the end of the row instead
    of scores. A masked lane has the largest code.

    stage 1   the row's max with this slice                             | scores, the row's max
    stage 2   codes; the powers of all lanes added up                   | the slice's sum in a few words, codes
    stage 3   added to the row's sum, which is shifted                  | row's sum
    """

    def __init__(self, code: Code, lanes: int, keeps: int = 0, score: Shape = INT8) -> None:
        self.lanes = check_lanes(lanes)
        self.code = code
        self._keeps = keeps
        self._score = score
        self.latency = 2
        """Cycles from a slice to its codes."""
        self.sum_latency = 3
        members: dict[str, Any] = {
            "slices": In(stream.Signature(slice_layout(score, lanes))),
            "finished": Out(stream.Signature(finished_layout(score, code))),
        }
        if keeps:
            layout = words_layout(unsigned(keeps), lanes, {"max": score})
            members["kept"] = Out(stream.Signature(layout))
        super().__init__(members)
        self.max = RowMax(score, lanes)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.max = row_max = self.max
        slices, finished = self.slices, self.finished
        pipeline, into_sum, passes = Elastic((2, 3)), Signal(), Signal()
        into = pipeline.into
        # A row's sum is its own output register: it stays until it is taken.
        m.d.comb += passes.eq(~finished.valid | finished.ready)
        if self._keeps:
            m.d.comb += [
                self.kept.valid.eq(pipeline.valid[3] & passes),
                into_sum.eq(self.kept.valid & self.kept.ready),
            ]
        else:
            m.d.comb += into_sum.eq(pipeline.valid[3] & passes)
        pipeline.connect(m, slices.valid, into_sum)
        m.d.comb += [
            slices.ready.eq(pipeline.free[2]),
            row_max.x.eq(slices.p.x),
            row_max.mask.eq(slices.p.mask),
            row_max.first.eq(slices.p.first),
            row_max.enable.eq(into[2]),
        ]
        first_2 = register(m, slices.p.first, into[2], "first_2")
        lasts = follow(m, slices.p.last, into.values(), "last", 2)

        with m.If(into_sum | finished.ready):
            m.d.sync += finished.valid.eq(into_sum & lasts[-1])
        mask_2 = register(m, slices.p.mask, into[2], "mask_2")
        codes = []
        for lane in range(self.lanes):
            x = register(m, flip_sign(slices.p.x[lane]), into[2], f"x_2_{lane}")
            distance = Signal(self._score.width, name=f"distance_{lane}")
            m.d.comb += distance.eq(row_max.running - x)
            codes.append(self.code.of(m, distance, f"lane_{lane}"))
        self._sum(m, codes, mask_2, first_2, into[3], into_sum)
        # Of a row's last slice, or of every one where codes refer to it.
        max_3 = register(m, row_max.running, into[3] & (self._keeps > 0 or lasts[0]), "max_3")
        m.d.comb += finished.p.max.eq(flip_sign(register(m, max_3, into_sum & lasts[-1], "max_out")))
        if self._keeps:
            m.d.comb += [self.kept.p.max.eq(flip_sign(max_3)), self.kept.p.last.eq(lasts[-1])]
            for lane, code in enumerate(codes):
                word = Mux(mask_2[lane], code, (1 << self._keeps) - 1)
                m.d.comb += self.kept.p.u[lane].eq(register(m, word[: self._keeps], into[3], f"code_{lane}"))
        return m

    def _sum(
        self, m: Module, codes: list[Value], mask: Value, first: Value, into_3: Value, into_sum: Value
    ) -> None:
        top, bits = self.code.top, self.code.total_bits
        powers: list[tuple[Value, int]] = []
        for lane, code in enumerate(codes):
            one_hot = Signal(top + 1, name=f"power_{lane}")
            m.d.comb += one_hot.eq(Cat((code == top - place) & mask[lane] for place in range(top + 1)))
            powers.append((one_hot, 0))
        slice_bits = (self.lanes << top).bit_length()
        added = addends(m, powers, 0, slice_bits, "slice", _ROWS_OF_ADDERS)
        partial = [register(m, word, into_3, f"partial_{i}") for i, word in enumerate(added)]
        grown = Signal(self._score.width)
        m.d.comb += grown.eq(self.max.running - self.max.before)
        by = self.code.of(m, grown, "grown")
        # A sum shifted by all its bits is gone, and so is the sum of the row before.
        gone = register(m, first | (by >= bits), into_3, "gone")
        shift = register(m, by[: (bits - 1).bit_length()], into_3, "shift")
        total, shifted = Signal(bits), Signal(bits)
        m.d.comb += [
            shifted.eq(Mux(gone, Const(0, bits), total >> shift)),
            total.eq(
                register(
                    m,
                    sum_of(m, [*((word, 0) for word in partial), (shifted, 0)], 0, bits, "row"),
                    into_sum,
                    "row_total",
                )
            ),
            self.finished.p.total.eq(total),
        ]
