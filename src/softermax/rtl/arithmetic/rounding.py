"""Right shifts with rounding and saturation, as `softermax.fixedpoint` computes them."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Value

from softermax.fixedpoint import Rounding


def shift_right(value: Value, by: Value | int, rounding: Rounding) -> Value:
    """An unsigned value over ``2**by``, rounded to an integer."""
    if rounding == "truncate" or (isinstance(by, int) and by == 0):
        return value >> by
    if rounding == "half-up":
        # One bit after the point survives the shift and is added back.
        shifted = Cat(Const(0, 1), value) >> by
        return shifted[1:] + shifted[0]
    dropped = by if isinstance(by, int) else (1 << len(by)) - 1
    shifted = Cat(Const(0, dropped), value) >> by
    kept, half, below = shifted[dropped:], shifted[dropped - 1 : dropped], shifted[: max(dropped - 1, 0)]
    return kept + (half.any() & (below.any() | kept[0]))


def shift_right_signed(value: Value, by: Value) -> Value:
    """A signed value over ``2**by``, rounded half up."""
    kept = Cat(Const(0, 1), value).as_signed() >> by
    return (kept + 1) >> 1


def saturate(value: Value, bits: int) -> Value:
    """An unsigned value, or all ones where it needs more than ``bits`` bits."""
    if len(value) <= bits:
        return value
    return Mux(value[bits:].any(), Const((1 << bits) - 1, bits), value[:bits])
