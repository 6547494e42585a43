"""Registers of a pipeline that moves as a whole: what is behind and how each is enabled.

A register takes what is in front of it when that is valid and the pipeline moves; all registers of a
stage share the enable, so that synthesis can stop their clock.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value


def register(m: Module, value: Value, enable: Value, name: str) -> Signal:
    """``value`` behind a register that is not reset."""
    behind = Signal(len(value), reset_less=True, name=name)
    with m.If(enable):
        m.d.sync += behind.eq(value)
    return behind


def follow(m: Module, value: Value, enables: list[Signal], name: str) -> list[Signal]:
    """``value`` behind each of the registers that the enables belong to."""
    behind: list[Signal] = []
    for stage, enable in enumerate(enables):
        behind.append(register(m, behind[-1] if behind else value, enable, f"{name}_{stage}"))
    return behind


def stages(
    m: Module, valid: Value, advance: Value, count: int, name: str
) -> tuple[list[Signal], list[Signal]]:
    """For each of ``count`` stages: whether there is something behind its registers, and their enable."""
    valids: list[Signal] = []
    enables: list[Signal] = []
    for stage in range(count):
        before = valids[-1] if valids else valid
        behind, enable = Signal(name=f"{name}_valid_{stage}"), Signal(name=f"{name}_enable_{stage}")
        m.d.comb += enable.eq(before & advance)
        with m.If(advance):
            m.d.sync += behind.eq(before)
        valids.append(behind)
        enables.append(enable)
    return valids, enables
