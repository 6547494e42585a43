"""One pass over a row for designs whose exponentials are powers of two: running max, exponents, their sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from softermax.rtl.arithmetic.columns import addends, sum_of
from softermax.rtl.int_max import flip_sign
from softermax.rtl.pipeline import Elastic, follow, register
from softermax.rtl.rivals.parts import LONGEST
from softermax.rtl.rivals.parts.payloads import INT8, check_lanes, slice_layout, words_layout
from softermax.rtl.rivals.parts.row_max import RowMax

_ROWS_OF_ADDERS = 5
"""After the codes, in the same stage; one more where the stage begins with codes."""


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
    every slice leave in ``kept``, with the running max that they refer to: they wait for the end of the row instead of
    scores. A masked lane has the largest code.

    stage 1   the row's max with this slice                             | scores, the row's max
    stage 2   the code of every lane                                    | codes, if they leave
    stage 3   the powers of all lanes added up                          | the slice's sum in a few words
    stage 4   added to the row's sum, which is shifted                  | row's sum

    Codes that do not leave have no register: stages 2 and 3 are one.
    """

    def __init__(self, code: Code, lanes: int, keeps: int = 0, score: Shape = INT8) -> None:
        self.lanes = check_lanes(lanes)
        self.code = code
        self._keeps = keeps
        self._score = score
        self.latency = 2
        """Cycles from a slice to its codes."""
        self.sum_latency = 4 if keeps else 3
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
        numbers = (2, 3, 4) if self._keeps else (2, 3)
        pipeline, into_sum, last_stage = Elastic(numbers), Signal(), numbers[-1]
        into = pipeline.into
        # A row's sum is its own output register: it stays until it is taken.
        m.d.comb += into_sum.eq(pipeline.valid[last_stage] & (~finished.valid | finished.ready))
        takes = {}
        if self._keeps:
            # Codes leave stage 3 for both sides at once.
            m.d.comb += self.kept.valid.eq(pipeline.valid[3] & pipeline.free[4])
            takes[4] = self.kept.valid & self.kept.ready
        pipeline.connect(m, slices.valid, into_sum, takes)
        m.d.comb += [
            slices.ready.eq(pipeline.free[2]),
            row_max.x.eq(slices.p.x),
            row_max.mask.eq(slices.p.mask),
            row_max.first.eq(slices.p.first),
            row_max.enable.eq(into[2]),
        ]
        first = register(m, slices.p.first, into[2], "first_2")
        lasts = dict(zip(numbers, follow(m, slices.p.last, into.values(), "last", 2), strict=True))
        with m.If(into_sum | finished.ready):
            m.d.sync += finished.valid.eq(into_sum & lasts[last_stage])

        # Stage 2.
        taken = register(m, slices.p.mask, into[2], "mask_2")
        grown = Signal(self._score.width)
        m.d.comb += grown.eq(row_max.running - row_max.before)
        by = self.code.of(m, grown, "grown")
        bits = self.code.total_bits
        # A sum shifted by all its bits is gone, and so is the sum of the row before.
        beside = Cat(by[: (bits - 1).bit_length()], first | (by >= bits))
        shift = follow(m, beside, [into[stage] for stage in numbers[1:]], "shift", 3)[-1]
        # The max of a row's last slice, or of every slice where codes refer to it.
        maximum = register(m, row_max.running, into[3] & (self._keeps > 0 or lasts[2]), "max_3")
        codes = [self._code(m, lane, into[2]) for lane in range(self.lanes)]
        if self._keeps:
            most = (1 << self._keeps) - 1
            codes = [
                register(m, Mux(taken[lane], code, most)[: self._keeps], into[3], f"code_{lane}")
                for lane, code in enumerate(codes)
            ]
            taken = register(m, taken, into[3], "mask_3")
            m.d.comb += [self.kept.p.max.eq(flip_sign(maximum)), self.kept.p.last.eq(lasts[3])]
            m.d.comb += [self.kept.p.u[lane].eq(code) for lane, code in enumerate(codes)]
            maximum = register(m, maximum, into[4] & lasts[3], "max_4")
        row_ends = into_sum & lasts[last_stage]
        m.d.comb += finished.p.max.eq(flip_sign(register(m, maximum, row_ends, "max_out")))

        # Stages 3 and 4.
        added = self._added(m, codes, taken)
        partial = [register(m, word, into[last_stage], f"partial_{i}") for i, word in enumerate(added)]
        total, shifted = Signal(bits), Signal(bits)
        row = sum_of(m, [*((word, 0) for word in partial), (shifted, 0)], 0, bits, "row")
        m.d.comb += [
            shifted.eq(Mux(shift[-1], 0, total >> shift[:-1])),
            total.eq(register(m, row, into_sum, "row_total")),
            finished.p.total.eq(total),
        ]
        return m

    def _code(self, m: Module, lane: int, into_2: Value) -> Value:
        x = register(m, flip_sign(self.slices.p.x[lane]), into_2, f"x_2_{lane}")
        distance = Signal(self._score.width, name=f"distance_{lane}")
        m.d.comb += distance.eq(self.max.running - x)
        return self.code.of(m, distance, f"lane_{lane}")

    def _added(self, m: Module, codes: list[Value], taken: Value) -> list[Value]:
        """The powers of all lanes in a few words."""
        top = self.code.top
        powers: list[tuple[Value, int]] = []
        for lane, code in enumerate(codes):
            one_hot = Signal(top + 1, name=f"power_{lane}")
            places = ((code == top - place) & taken[lane] for place in range(top + 1))
            m.d.comb += one_hot.eq(Cat(places))
            powers.append((one_hot, 0))
        rows = _ROWS_OF_ADDERS + (self._keeps > 0)
        return addends(m, powers, 0, (self.lanes << top).bit_length(), "slice", rows)
