"""Registers of a pipeline: what each stage holds, and when its registers take what is before them.

There are two kinds. In an elastic pipeline a stage takes what is offered when it is empty or passes its own on, so
that gaps close up. A rigid one moves as a whole. In both, all registers of a stage share one enable, which is set
for valid data only, so that synthesis can stop their clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amaranth.hdl import Module, Signal, Value


class Elastic:
    """Stages of an elastic pipeline by their numbers, each after the one before it."""

    def __init__(self, stages: Iterable[int]) -> None:
        numbers = list(stages)
        self.valid = {stage: Signal(name=f"valid_{stage}") for stage in numbers}
        """Whether the stage's registers hold something."""
        self.free = {stage: Signal(name=f"free_{stage}") for stage in numbers}
        """Whether they can take something."""
        self.into = {stage: Signal(name=f"into_{stage}") for stage in numbers}
        """Their enable: they take something."""

    def connect(
        self,
        m: Module,
        offered: Value,
        passed_on: Value,
        takes: Mapping[int, Value] | None = None,
        keeps: Mapping[int, Value] | None = None,
    ) -> None:
        """``offered`` tells whether something comes to the first stage, ``passed_on`` whether what the last one
        holds leaves it.

        ``takes`` says of a stage when it takes something, if not whenever it is free and the stage before is valid;
        ``keeps`` when what it takes stays, if not always.
        """
        takes, keeps = takes or {}, keeps or {}
        for stage in reversed(self.valid):
            leaves = self.into.get(stage + 1, passed_on)
            comes = self.valid.get(stage - 1, offered) & self.free[stage]
            m.d.comb += [
                self.free[stage].eq(~self.valid[stage] | leaves),
                self.into[stage].eq(takes.get(stage, comes)),
            ]
        for stage, valid in self.valid.items():
            with m.If(self.free[stage]):
                m.d.sync += valid.eq(keeps.get(stage, self.into[stage]))


def stages(
    m: Module, valid: Value, advance: Value, count: int, name: str
) -> tuple[list[Signal], list[Signal]]:
    """``count`` stages of a rigid pipeline: whether the registers of each hold something, and their enable."""
    valids: list[Signal] = []
    enables: list[Signal] = []
    for stage in range(count):
        before = valids[-1] if valids else valid
        held, enable = Signal(name=f"{name}_valid_{stage}"), Signal(name=f"{name}_enable_{stage}")
        m.d.comb += enable.eq(before & advance)
        with m.If(advance):
            m.d.sync += held.eq(before)
        valids.append(held)
        enables.append(enable)
    return valids, enables


def register(m: Module, value: Value, enable: Value, name: str) -> Signal:
    """``value`` after a register that is not reset."""
    held = Signal(value.shape(), reset_less=True, name=name)
    with m.If(enable):
        m.d.sync += held.eq(value)
    return held


def follow(m: Module, value: Value, enables: Iterable[Value], name: str, first: int = 0) -> list[Signal]:
    """``value`` after each of the registers that the enables belong to; they are numbered from ``first``."""
    held: list[Signal] = []
    for stage, enable in enumerate(enables, first):
        held.append(register(m, held[-1] if held else value, enable, f"{name}_{stage}"))
    return held
