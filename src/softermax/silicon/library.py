"""A standard-cell library as arrays: what cells do, and their NLDM timing, power and leakage tables.

Kept in one unit system (see the package), saved as npz; `cells` builds it from Liberty files.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Kind: TypeAlias = Literal["combinational", "flop", "clock-gate", "tie"]

MAX_INPUTS = 6
"""Cells with more inputs are left out: a truth table is one 64-bit word."""


@dataclass(frozen=True)
class TimingArc:
    """A delay (``combinational``, ``clock-to-output``) or a setup constraint; tables by index, -1 for none."""

    kind: Literal["combinational", "clock-to-output", "setup"]
    pin: str
    related: str
    sense: str
    rise: int
    fall: int
    rise_slew: int = -1
    fall_slew: int = -1


@dataclass(frozen=True)
class PowerArc:
    """Energy of a transition of ``pin``: of an output caused by ``related``, or, with no related pin,
    of an input. ``states`` is the truth table of ``when`` over the cell's state pins."""

    pin: str
    related: str
    states: int
    rise: int
    fall: int


@dataclass(frozen=True)
class Cell:
    """One cell. A state's bit ``i`` is the value of ``state_pins[i]``: data inputs, then for a flip-flop
    or a clock gate its clock and what it stores (``IQ``)."""

    name: str
    kind: Kind
    area: float
    inputs: tuple[str, ...]
    clock: str
    outputs: tuple[str, ...]
    functions: dict[str, int]
    """Truth table of each output over the state pins."""
    next_state: int
    """Of a flip-flop: what it stores next, over its data inputs. Of a clock gate: its enable."""
    capacitance: dict[str, tuple[float, float]]
    """Of each input when it rises and when it falls."""
    leakage: tuple[float, ...]
    """By state."""
    timing: tuple[TimingArc, ...]
    power: tuple[PowerArc, ...]

    @property
    def state_pins(self) -> tuple[str, ...]:
        return (*self.inputs, self.clock, "IQ") if self.clock else self.inputs


@dataclass(frozen=True)
class WireLoad:
    """Wire capacitance of a net by its fan-out: a table, then a slope."""

    name: str
    fanout: tuple[float, ...] = (0.0, 1.0)
    capacitance: tuple[float, ...] = (0.0, 0.0)
    slope: float = 0.0

    def __call__(self, fanout: NDArray[np.generic]) -> FloatArray:
        count = np.asarray(fanout, dtype=np.float64)
        inside = np.interp(count, self.fanout, self.capacitance)
        return np.asarray(inside + self.slope * np.maximum(count - self.fanout[-1], 0.0))

    def scaled(self, factor: float) -> WireLoad:
        return WireLoad(
            f"{factor:g} x {self.name}",
            self.fanout,
            tuple(factor * c for c in self.capacitance),
            factor * self.slope,
        )


class Tables:
    """Two-dimensional lookup tables of one shape, so that many are interpolated in one go."""

    def __init__(self, x: FloatArray, y: FloatArray, values: FloatArray, nx: IndexArray, ny: IndexArray):
        self.x, self.y, self.values, self.nx, self.ny = x, y, values, nx, ny

    def __len__(self) -> int:
        return len(self.x)

    def at(self, index: IndexArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """Bilinear, and beyond the axes' ends linear in the last interval, for each table of ``index``."""
        xi = np.clip((self.x[index] <= x[:, None]).sum(axis=1) - 1, 0, self.nx[index] - 2)
        yi = np.clip((self.y[index] <= y[:, None]).sum(axis=1) - 1, 0, self.ny[index] - 2)
        x0, x1 = self.x[index, xi], self.x[index, xi + 1]
        y0, y1 = self.y[index, yi], self.y[index, yi + 1]
        fx, fy = (x - x0) / (x1 - x0), (y - y0) / (y1 - y0)
        v = self.values
        low = v[index, xi, yi] * (1 - fx) + v[index, xi + 1, yi] * fx
        high = v[index, xi, yi + 1] * (1 - fx) + v[index, xi + 1, yi + 1] * fx
        return np.asarray(low * (1 - fy) + high * fy)


@dataclass(frozen=True)
class Description:
    """What a Liberty file does not say. Custom libraries give it as JSON with these fields."""

    name: str
    flop: str
    """The flip-flop that registers are mapped to."""
    clock_gate: str = ""
    """The integrated clock gate; none means no clock gating."""
    clock_gate_pins: str = ""
    """Its pins as ``enable:clock:output``, then pins to tie low (``E:CK:GCK``, ``ENA:CLK:GCLK:SE``)."""
    tie_high: str = ""
    tie_low: str = ""
    """``cell:pin`` of the constant drivers."""
    driver: str = ""
    """The cell assumed to drive inputs during mapping."""
    dont_use: tuple[str, ...] = ()
    """Shell patterns of cells that are not mapped to."""
    clock_ns: float = 1.0
    """The default clock period of the tables."""
    input_slew_ns: float = 0.02
    """Slew of inputs and of the ideal clock."""
    output_load_ff: float = 2.0
    wire_fanout: tuple[float, ...] = ()
    wire_capacitance_ff: tuple[float, ...] = ()
    wire_slope_ff: float = 0.0
    """Wire load by fan-out; without it the Liberty's default_wire_load."""

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> Description:
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"{source}: {unknown[0]}: no such field; fields are {', '.join(sorted(known))}")
        missing = [name for name in ("name", "flop") if name not in values]
        if missing:
            raise ValueError(f"{source}: {missing[0]} is missing: a description names the library and a flop")
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**made)


@dataclass
class Library:
    description: Description
    voltage: float
    cells: dict[str, Cell]
    tables: Tables
    wire: WireLoad
    content: str
    """Changes with the Liberty files, the description and the code that reads them."""
    liberty: str = ""
    """The Liberty text that synthesis reads: the usable cells of all files, without power tables."""

    @property
    def name(self) -> str:
        return self.description.name

    def cell(self, name: str) -> Cell:
        try:
            return self.cells[name]
        except KeyError:
            raise ValueError(
                f"cell {name} is not in library {self.name}: the design is not mapped to it"
            ) from None

    def save(self, path: Path) -> None:
        cells = [asdict(cell) for cell in self.cells.values()]
        text = json.dumps(
            {
                "description": asdict(self.description),
                "voltage": self.voltage,
                "wire": asdict(self.wire),
                "content": self.content,
                "cells": cells,
            }
        )
        t = self.tables
        with path.open("wb") as stream:
            np.savez(
                stream,
                text=_as_bytes(text),
                liberty=_as_bytes(self.liberty),
                x=t.x,
                y=t.y,
                values=t.values,
                nx=t.nx,
                ny=t.ny,
                allow_pickle=False,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Library:
        with np.load(path, allow_pickle=False) as data:
            text, liberty = json.loads(data["text"].tobytes()), data["liberty"].tobytes().decode()
            tables = Tables(data["x"], data["y"], data["values"], data["nx"], data["ny"])
        cells = {}
        for values in text["cells"]:
            values["timing"] = tuple(TimingArc(**arc) for arc in values["timing"])
            values["power"] = tuple(PowerArc(**arc) for arc in values["power"])
            for name in ("inputs", "outputs", "leakage"):
                values[name] = tuple(values[name])
            values["capacitance"] = {pin: (rise, fall) for pin, (rise, fall) in values["capacitance"].items()}
            cells[values["name"]] = Cell(**values)
        wire = text["wire"]
        wire["fanout"], wire["capacitance"] = tuple(wire["fanout"]), tuple(wire["capacitance"])
        description = Description.from_dict(text["description"], str(path))
        return cls(description, text["voltage"], cells, tables, WireLoad(**wire), text["content"], liberty)


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)
