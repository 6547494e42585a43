"""Right shifts stage by stage, with what falls off."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value


def shift_right_sticky(m: Module, value: Value, by: Value, name: str) -> tuple[Value, Value]:
    """``value >> by`` and whether any one was shifted out. The longest shift comes first: it leaves the
    fewest bits for the others."""
    sticky: Value = Const(0, 1)
    for level in reversed(range(len(by))):
        step = min(1 << level, len(value))
        lost = Signal(name=f"{name}_lost_{step}")
        shifted = Signal(len(value), name=f"{name}_by_{step}")
        m.d.comb += [
            lost.eq(by[level] & value[:step].any()),
            shifted.eq(Mux(by[level], value[step:], value)),
        ]
        value, sticky = shifted, sticky | lost
    return value, sticky
