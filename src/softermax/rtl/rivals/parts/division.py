"""A constant over a row's sum: one divider that all lanes share, a few bits of the quotient per cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, unsigned
from amaranth.lib import data

from softermax.rtl.pipeline import register
from softermax.rtl.rivals.parts.row_normalization import RowUnit


class Division(RowUnit):
    """``dividend // total`` for totals of at least ``least``, by trial subtraction, ``per_cycle`` bits per cycle, one or two.

    Two bits at once are a digit of 0 to 3: what it is shows as the divisor, its double and its triple are subtracted side by side. The
    triple takes a cycle of its own. The quotient's bits push the dividend's out of one register: of these only the lower
    ones are there to start with, the others stand in the remainder. What of a row is needed beside the quotient goes along.
    """

    def __init__(
        self,
        dividend: int,
        finished: data.StructLayout,
        least: int,
        per_cycle: int = 1,
        beside: tuple[str, ...] = (),
        more: dict[str, Shape] | None = None,
    ) -> None:
        self._dividend = dividend
        self._per_cycle = per_cycle
        self._beside = beside
        self._divisor_bits = finished["total"].width
        needed = (dividend // least).bit_length()
        self.quotient_bits = needed
        digits = -(-needed // per_cycle)
        self._padded = digits * per_cycle
        kept = {name: finished[name].shape for name in beside}
        factor = data.StructLayout({"quotient": unsigned(needed), **kept, **(more or {})})
        super().__init__(finished, factor, digits + per_cycle - 1)

    def _divisor(self, m: Module) -> Value:
        """What is divided by, before its register."""
        total: Value = self.finished.total
        return total

    def _subtracted(self, value: Value, multiple: Value) -> Value:
        return value - multiple

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        take, working = self.start, Signal()
        divisor = register(m, self._divisor(m), take, "divisor")
        m.d.comb += working.eq(self.working)
        multiples: list[Value] = [divisor]
        if self._per_cycle == 2:
            first_cycle = self.step == 0
            m.d.comb += working.eq(self.working & ~first_cycle)
            triple = register(m, divisor + (divisor << 1), self.working & first_cycle, "triple")
            multiples += [divisor << 1, triple]
        for name in self._beside:
            m.d.comb += self.factor[name].eq(register(m, self.finished[name], take, f"{name}_kept"))
        # Above its last bits the dividend is smaller than any divisor: it is the first remainder.
        bits = self._padded
        remainder = Signal(self._divisor_bits, reset_less=True)
        quotient = Signal(bits, reset_less=True)
        first, low = self._dividend >> bits, self._dividend & ((1 << bits) - 1)
        shifted = Cat(quotient[bits - self._per_cycle :], remainder)
        left: Value = shifted
        fits: list[Value] = []
        for multiple in multiples:
            difference = Signal(len(shifted) + 1, name=f"difference_{len(fits)}")
            m.d.comb += difference.eq(self._subtracted(shifted, multiple))
            fits.append(~difference[-1])
            left = Mux(fits[-1], difference, left)
        # The larger multiples fit only where the smaller ones do.
        digit = fits[0] if self._per_cycle == 1 else Cat(fits[0] & ~fits[1] | fits[2], fits[1])
        with m.If(take):
            m.d.sync += [remainder.eq(Const(first)), quotient.eq(Const(low))]
        with m.Elif(working):
            m.d.sync += [remainder.eq(left), quotient.eq(Cat(digit, quotient))]
        m.d.comb += self.factor.quotient.eq(quotient)
        return m


class Reciprocal(Division):
    """The reciprocal of a row's sum in ``bits`` bits, whatever its size: ``2^(bits + p) // total``, where p is the position of the
    sum's leading one; at most all ones. ``one`` is how far p is above that of ``least``, a power of two.

    The sum is shifted until its leading one stands at the top: the dividend is a constant. With ``select`` a subtraction's upper half
    is there for either borrow of the lower one, which then only selects.
    """

    def __init__(
        self, finished: data.StructLayout, bits: int, least: int, per_cycle: int = 1, select: bool = False
    ) -> None:
        self._select = select
        top = finished["total"].width - 1
        self._lowest = least.bit_length() - 1
        # One less than the power of two: what would be a bit more is then all ones, and nothing else changes.
        dividend = (1 << (top + bits)) - 1
        one = unsigned((top - self._lowest).bit_length())
        super().__init__(dividend, finished, 1 << top, per_cycle, more={"one": one})

    def _subtracted(self, value: Value, multiple: Value) -> Value:
        if not self._select:
            return super()._subtracted(value, multiple)
        half = len(value) // 2
        lower = value[:half] - multiple[:half]
        upper = value[half:] - multiple[half:]
        borrowed = value[half:] - multiple[half:] - 1
        return Cat(lower[:half], Mux(lower[half], borrowed, upper))

    def _divisor(self, m: Module) -> Value:
        total, lowest = self.finished.total, self._lowest
        one = Signal(self.factor.shape()["one"].shape)
        found: Value = Const(0, len(one))
        for place in range(lowest + 1, len(total)):
            found = Mux(total[place], place - lowest, found)
        m.d.comb += [one.eq(found), self.factor.one.eq(register(m, one, self.start, "one_kept"))]
        normal = Signal(len(total))
        m.d.comb += normal.eq(total << (len(total) - 1 - lowest - one)[: len(one)])
        return normal
