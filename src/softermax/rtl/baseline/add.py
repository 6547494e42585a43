"""Half-precision sums of numbers that are not negative, rounded to nearest even."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from softermax.rtl.arithmetic.shifter import shift_right_sticky
from softermax.rtl.pipeline import register


@dataclass(frozen=True)
class RawSum:
    """A sum before it is rounded: what an adder of two stages keeps between them."""

    places: Value  # 12 bits: a carry, the leading place, ten below it
    guard: Value
    sticky: Value
    exponent: Value

    def registered(self, m: Module, enable: Value, name: str) -> RawSum:
        """The same after a register."""
        kept = register(m, Cat(self.places, self.guard, self.sticky, self.exponent), enable, name)
        return RawSum(kept[:12], kept[12], kept[13], kept[14:])


def align_and_add(m: Module, a: Value, b: Value, name: str) -> RawSum:
    """First half of a sum. Numbers are exponent and ten bits of fraction, without a sign; their exponent may
    have fewer than five bits. Neither is negative, so there is nothing to cancel and to normalise but
    a carry, and of two equal exponents either may be the larger. No operand is subnormal."""

    def signal(bits: int, what: str) -> Signal:
        return Signal(bits, name=f"{name}_{what}")

    bits = max(len(a), len(b)) - 10
    apart, apart_swapped = signal(bits + 1, "apart"), signal(bits + 1, "apart_swapped")
    swap, by, exponent = signal(1, "swap"), signal(bits, "by"), signal(bits, "exponent")
    larger, smaller = signal(11, "larger"), signal(11, "smaller")
    a_significand, b_significand = (Cat(v[:10], v[10:].any()) for v in (a, b))
    m.d.comb += [
        apart.eq(a[10:] - b[10:]),
        apart_swapped.eq(b[10:] - a[10:]),
        swap.eq(apart[-1]),
        larger.eq(Mux(swap, b_significand, a_significand)),
        smaller.eq(Mux(swap, a_significand, b_significand)),
        by.eq(Mux(swap, apart_swapped, apart)),
        exponent.eq(Mux(swap, b[10:], a[10:])),
    ]
    aligned, sticky = shift_right_sticky(m, Cat(Const(0, 1), smaller), by, f"{name}_aligned")
    places = signal(12, "places")
    m.d.comb += places.eq(larger + aligned[1:])
    return RawSum(places, aligned[0], sticky, exponent)


def round_sum(m: Module, raw: RawSum, bits: int, name: str) -> Signal:
    """Second half of a sum: one place down after a carry, rounded; ``bits`` of exponent and fraction."""
    carry = raw.places[11]
    kept = Signal(10, name=f"{name}_kept")
    up = Signal(name=f"{name}_up")
    total = Signal(bits, name=name)
    m.d.comb += [
        kept.eq(Mux(carry, raw.places[1:11], raw.places[:10])),
        up.eq(
            Mux(
                carry,
                raw.places[0] & (raw.guard | raw.sticky | raw.places[1]),
                raw.guard & (raw.sticky | raw.places[0]),
            )
        ),
        # A fraction that rounds up to two carries into the exponent.
        total.eq(Cat(kept, raw.exponent) + Cat(up, Const(0, 9), carry)),
    ]
    return total
