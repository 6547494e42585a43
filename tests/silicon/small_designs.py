"""Small designs to check the meter with, and netlists written by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Elaboratable, Module, Signal

from softermax.silicon.library import Library
from softermax.silicon.netlist import Netlist, read


def pdk_root() -> str | None:
    """The folder with ASAP7's files, or none."""
    shared = Path(__file__).parents[3] / "shared" / "pdk"
    return os.environ.get("SOFTERMAX_PDK_ROOT") or (str(shared) if shared.is_dir() else None)


def hand_made(
    library: Library, cells: list[tuple[str, dict[str, str]]], inputs: str, outputs: str
) -> Netlist:
    """A netlist written by hand: (cell type, net of each pin), ports by name, nets named by letters."""
    numbers: dict[str, int] = {}

    def bit(net: str) -> int:
        return numbers.setdefault(net, len(numbers) + 2)

    module: dict[str, Any] = {"ports": {}, "cells": {}, "netnames": {}}
    for direction, names in (("input", inputs), ("output", outputs)):
        for name in names.split():
            module["ports"][name] = {"direction": direction, "bits": [bit(name)]}
    for i, (kind, pins) in enumerate(cells):
        connections = {pin: [bit(net)] for pin, net in pins.items()}
        module["cells"][f"u{i}"] = {"type": kind, "attributes": {}, "connections": connections}
    module["netnames"] = {name: {"bits": [number], "hide_name": 0} for name, number in numbers.items()}
    # Through text, as a file would come.
    return read(json.loads(json.dumps({"modules": {"hand": module}})), "hand", library)


class Accumulate(Elaboratable):
    """A sum of products behind an enable: a multiplier's glitches, and registers that can be gated."""

    def __init__(self, bits: int = 5) -> None:
        self.a, self.b = Signal(bits, name="a"), Signal(bits, name="b")
        self.enable = Signal()
        self.total = Signal(2 * bits + 2)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.multiply = multiply = Module()
        product = Signal(2 * len(self.a))
        a = Signal.like(self.a, reset_less=True)
        b = Signal.like(self.b, reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b)]
        multiply.d.comb += product.eq(a * b)
        total = Signal.like(self.total, reset_less=True)
        with m.If(self.enable):
            m.d.sync += total.eq(total + product)
        m.d.comb += self.total.eq(total)
        return m


class Shift(Elaboratable):
    """A shift register: no logic, so no glitches."""

    def __init__(self, length: int = 8) -> None:
        self.x, self.y = Signal(name="x"), Signal(name="y")
        self.length = length

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        line = Signal(self.length, reset_less=True)
        m.d.sync += line.eq((line << 1) | self.x)
        m.d.comb += self.y.eq(line[-1])
        return m


def random_bits(cycles: int, copies: int, seed: int = 0, **widths: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, 2, (cycles, copies, w)).astype(np.uint8) for name, w in widths.items()}


def numbers_of(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Bits (..., bits), the least significant one first, as unsigned numbers."""
    return (bits.astype(np.int64) << np.arange(bits.shape[-1])).sum(axis=-1)
