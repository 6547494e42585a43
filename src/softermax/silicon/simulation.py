"""Gate-level simulation of a mapped netlist: zero delay, or with the delay of every arc and glitches.

64 copies of the design run at once, each with its own data. The engine (``engine.cpp``) is compiled at
first use and cached.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.cache import cache_dir, kept, key, seal, sealed
from softermax.silicon.netlist import CONSTANT_ONE, Netlist
from softermax.silicon.timing import FALL, RISE, Timing

COPIES = 64
SOURCES = ("silicon/engine.cpp",)
"""The code of the engine."""
PINS, OUTPUTS = 6, 2
TICKS_PER_NS = 2000
"""Delays are rounded to half a picosecond."""

Bits = NDArray[np.uint8]
"""(cycles, copies, bits)."""
Words = NDArray[np.uint64]


@lru_cache(maxsize=1)
def engine() -> Any:
    """The compiled engine."""
    source = Path(__file__).with_name("engine.cpp")
    flags = ["-O3", "-std=c++17", "-shared", "-fPIC"]
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append("-mpopcnt")
    content = key(flags, platform.machine(), sources=SOURCES)

    def make(partial: Path) -> None:
        compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
        compiler = next((found for name in compilers if name and (found := shutil.which(name))), None)
        if compiler is None:
            raise FileNotFoundError(
                "gate-level simulation needs a C++ compiler: install g++ or clang++, or name one with CXX"
            )
        done = subprocess.run(
            [compiler, *flags, "-x", "c++", str(source), "-o", str(partial)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise OSError(f"{compiler} cannot compile the simulator: {done.stderr.strip()[:400]}")
        seal(partial)

    library = cache_dir("silicon", "engine") / f"engine-{content}.so"
    return kept(library, make, lambda path: ctypes.CDLL(str(sealed(path))))


class _Design(ctypes.Structure):
    _fields_ = (
        ("nets", ctypes.c_int64),
        ("cells", ctypes.c_int64),
        ("pins", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("delays", ctypes.c_void_p),
        ("stored", ctypes.c_int64),
        ("data_pins", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("domain", ctypes.c_void_p),
        ("gates", ctypes.c_void_p),
        ("q", ctypes.c_void_p),
        ("inverted", ctypes.c_void_p),
        ("q_delays", ctypes.c_void_p),
        ("domains", ctypes.c_int64),
        ("domain_net", ctypes.c_void_p),
        ("out_offset", ctypes.c_void_p),
        ("in_offset", ctypes.c_void_p),
        ("state_offset", ctypes.c_void_p),
        ("fan_start", ctypes.c_void_p),
        ("fan_cell", ctypes.c_void_p),
        ("fan_pin", ctypes.c_void_p),
    )


class _Run(ctypes.Structure):
    _fields_ = (
        ("cycles", ctypes.c_int64),
        ("counted_from", ctypes.c_int64),
        ("period", ctypes.c_int64),
        ("live", ctypes.c_uint64),
        ("clock", ctypes.c_uint64),
        ("in_bits", ctypes.c_int64),
        ("out_bits", ctypes.c_int64),
        ("in_nets", ctypes.c_void_p),
        ("out_nets", ctypes.c_void_p),
        ("in_words", ctypes.c_void_p),
        ("out_words", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("toggles", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
        ("last_event", ctypes.c_int64),
    )


@dataclass
class Activity:
    """What happened in the cycles that were counted, over all copies together."""

    netlist: Netlist
    copies: int
    cycles: int
    toggles: NDArray[np.uint64]
    """(nets, 2): rising and falling transitions."""
    cells: NDArray[np.int64]
    """Index of each cell in the netlist, in the order of the offsets below."""
    out_offset: NDArray[np.int64]
    in_offset: NDArray[np.int64]
    state_offset: NDArray[np.int64]
    counters: NDArray[np.uint32]
    outputs: dict[str, Bits]
    """(cycles, copies, bits) of every output at the end of each cycle, of all cycles."""
    values: Words
    """Of every net at the end, copy r in bit r."""
    last_event_ns: float
    """With delays: when in a cycle the last net changed."""


class Simulator:
    """A netlist made ready. ``timing`` gives the delays; ``delays`` replaces them, by output net, in
    ticks (rise, fall), for comparison with other simulators."""

    def __init__(
        self,
        netlist: Netlist,
        timing: Timing | None = None,
        delays: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        self.netlist = netlist
        self.timed = timing is not None or delays is not None
        comb = [int(i) for i in netlist.order()]
        gates = _gates_in_order(netlist)
        flops = [i for i in range(netlist.cells) if netlist.cell(i).kind == "flop"]
        self.cells = np.array(comb + gates + flops, dtype=np.int64)
        self._position = {int(c): n for n, c in enumerate(self.cells)}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._fill_logic(comb)
        self._fill_stored(gates + flops, len(gates))
        self._fill_fanout(len(comb))
        self._fill_offsets()
        if timing is not None:
            self._fill_delays(timing, len(comb))
        for net, (rise, fall) in (delays or {}).items():
            self._fixed_delay(net, rise, fall, len(comb))
        self._design = _Design(
            nets=netlist.nets, cells=len(comb), stored=len(gates) + len(flops), domains=len(gates) + 1
        )
        for name, array in self._arrays.items():
            setattr(self._design, name, array.ctypes.data)

    def _fill_logic(self, comb: list[int]) -> None:
        n, netlist = len(comb), self.netlist
        pins = np.zeros(n, dtype=np.int32)
        inputs = np.zeros((n, PINS), dtype=np.int32)
        outputs = np.full((n, OUTPUTS), -1, dtype=np.int32)
        tables = np.zeros((n, OUTPUTS), dtype=np.uint64)
        for row, index in enumerate(comb):
            cell, nets = netlist.cell(index), netlist.pins[index]
            if len(cell.outputs) > OUTPUTS:
                raise ValueError(
                    f"cell {cell.name} has {len(cell.outputs)} outputs: must be at most {OUTPUTS}"
                )
            pins[row] = len(cell.inputs)
            inputs[row, : len(cell.inputs)] = [nets[p] for p in cell.inputs]
            for o, pin in enumerate(cell.outputs):
                if pin in nets:
                    outputs[row, o], tables[row, o] = nets[pin], cell.functions[pin]
        delays = np.ones((n, OUTPUTS, PINS, 2, 2), dtype=np.int32)
        self._arrays |= {
            "pins": pins,
            "inputs": inputs,
            "outputs": outputs,
            "tables": tables,
            "delays": delays,
        }

    def _fill_stored(self, stored: list[int], gate_count: int) -> None:
        n, netlist = len(stored), self.netlist
        data_pins = np.zeros(n, dtype=np.int32)
        data = np.zeros((n, PINS), dtype=np.int32)
        following = np.zeros(n, dtype=np.uint64)
        domain = np.zeros(n, dtype=np.int32)
        gates = np.full(n, -1, dtype=np.int32)
        q = np.full((n, OUTPUTS), -1, dtype=np.int32)
        inverted = np.zeros((n, OUTPUTS), dtype=np.int32)
        domain_net = np.full(gate_count + 1, -1, dtype=np.int32)
        domain_net[0] = netlist.clock
        domains = {netlist.clock: 0}
        for row, index in enumerate(stored):
            cell, nets = netlist.cell(index), netlist.pins[index]
            data_pins[row] = len(cell.inputs)
            data[row, : len(cell.inputs)] = [nets[p] for p in cell.inputs]
            following[row] = cell.next_state
            domain[row] = domains[nets[cell.clock]]
            if cell.kind == "clock-gate":
                net = nets[cell.outputs[0]]
                domains[net] = gates[row] = row + 1
                domain_net[row + 1] = net
                continue
            kept = 1 << (len(cell.state_pins) - 1)
            for o, pin in enumerate(cell.outputs):
                if pin in nets:
                    # The stored value is the last state pin: with all others low it shows in one bit.
                    q[row, o] = nets[pin]
                    inverted[row, o] = not cell.functions[pin] >> kept & 1
        self._arrays |= {
            "data_pins": data_pins,
            "data": data,
            "next": following,
            "domain": domain,
            "gates": gates,
            "q": q,
            "inverted": inverted,
            "q_delays": np.ones((n, OUTPUTS, 2), dtype=np.int32),
            "domain_net": domain_net,
        }

    def _fill_fanout(self, comb: int) -> None:
        nets: list[int] = []
        cells: list[int] = []
        pins: list[int] = []
        for position, index in enumerate(self.cells):
            cell, connected = self.netlist.cell(int(index)), self.netlist.pins[int(index)]
            for p, pin in enumerate(cell.inputs):
                nets.append(connected[pin])
                cells.append(position)
                pins.append(p)
        order = np.argsort(np.array(nets, dtype=np.int64), kind="stable")
        counts = np.bincount(np.array(nets, dtype=np.int64), minlength=self.netlist.nets)
        self._arrays |= {
            "fan_start": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "fan_cell": np.array(cells, dtype=np.int32)[order],
            "fan_pin": np.array(pins, dtype=np.int32)[order],
        }

    def _fill_offsets(self) -> None:
        size = 0
        offsets = np.full((3, len(self.cells)), -1, dtype=np.int64)
        for position, index in enumerate(self.cells):
            cell = self.netlist.cell(int(index))
            states, pins = 1 << len(cell.state_pins), len(cell.capacitance)
            offsets[0, position] = size
            size += len(cell.outputs) * pins * 2 * states
            if any(not arc.related for arc in cell.power):
                offsets[1, position] = size
                size += pins * states
            offsets[2, position] = size
            size += states
        self._counter_size = size
        self._arrays |= {
            "out_offset": offsets[0].copy(),
            "in_offset": offsets[1].copy(),
            "state_offset": offsets[2].copy(),
        }

    def _fill_delays(self, timing: Timing, comb: int) -> None:
        """The slowest arc of each pair of edges; pairs that no arc describes take the output's slowest."""
        arcs, netlist = timing.arcs, self.netlist
        delays, q_delays = self._arrays["delays"], self._arrays["q_delays"]
        delays[:], q_delays[:] = 0, 0
        ticks = np.maximum(np.rint(arcs.delay * TICKS_PER_NS), 1).astype(np.int32)
        for n in range(len(arcs.delay)):
            index = int(arcs.cell[n])
            cell, position = netlist.cell(index), self._position[index]
            o = cell.outputs.index(arcs.output[n])
            if position < comb:
                p = cell.inputs.index(arcs.pin[n])
                at: tuple[int, ...] = (position, o, p, int(arcs.source_edge[n]), int(arcs.target_edge[n]))
                delays[at] = max(delays[at], ticks[n])
            else:
                at = (position - comb, o, int(arcs.target_edge[n]))
                q_delays[at] = max(q_delays[at], ticks[n])
        slowest = delays.max(axis=(2, 3), keepdims=True)
        np.copyto(delays, np.broadcast_to(slowest, delays.shape), where=delays == 0)
        np.maximum(delays, 1, out=delays)
        np.maximum(q_delays, 1, out=q_delays)

    def _fixed_delay(self, net: int, rise: int, fall: int, comb: int) -> None:
        for name, table in (("outputs", "delays"), ("q", "q_delays")):
            for row, o in np.argwhere(self._arrays[name] == net):
                self._arrays[table][row, o, ..., RISE] = max(rise, 1)
                self._arrays[table][row, o, ..., FALL] = max(fall, 1)

    def run(
        self,
        stimulus: Mapping[str, Bits],
        clock_ns: float | None = None,
        counted_from: int = 0,
        ticks: int | None = None,
        clock_runs: bool = True,
    ) -> Activity:
        """Apply a word to every input in every cycle: (cycles, copies, bits), up to 64 copies.

        With a period (``clock_ns``, or ``ticks``) delays are simulated, without one they are zero.
        Inputs that are not given stay 0. Cycles before ``counted_from`` are not counted.
        """
        netlist = self.netlist
        given = [name for name in netlist.inputs if name in stimulus]
        unknown = sorted(set(stimulus) - set(given))
        if unknown:
            raise ValueError(
                f"{netlist.name} has no input {unknown[0]}: inputs are {', '.join(netlist.inputs)}"
            )
        if not given:
            raise ValueError(f"{netlist.name}: no stimulus given")
        cycles, copies = next(iter(stimulus.values())).shape[:2]
        if not 1 <= copies <= COPIES:
            raise ValueError(f"{copies} copies: must be 1 to {COPIES}")
        for name in given:
            wanted = (cycles, copies, len(netlist.inputs[name]))
            if stimulus[name].shape != wanted:
                raise ValueError(f"stimulus of {name} has shape {stimulus[name].shape}, expected {wanted}")
        period = ticks or (round(clock_ns * TICKS_PER_NS) if clock_ns else 0)
        if period and not self.timed:
            raise ValueError("a simulation with delays needs a Simulator made with timing")
        nets = [net for name in given for net in netlist.inputs[name]]
        words = np.concatenate([_pack(stimulus[name]) for name in given], axis=1)
        keep = np.array([net > CONSTANT_ONE for net in nets])
        in_nets = np.array(nets, dtype=np.int32)[keep]
        in_words = np.ascontiguousarray(words[:, keep])
        out_nets = np.array([net for bits in netlist.outputs.values() for net in bits], dtype=np.int32)
        out_words = np.zeros((cycles, len(out_nets)), dtype=np.uint64)
        values = np.zeros(netlist.nets, dtype=np.uint64)
        values[CONSTANT_ONE] = np.uint64(0xFFFFFFFFFFFFFFFF)
        for index in range(netlist.cells):
            cell = netlist.cell(index)
            if cell.kind == "tie":
                for pin, net in netlist.pins[index].items():
                    values[net] = np.uint64(0xFFFFFFFFFFFFFFFF if cell.functions[pin] & 1 else 0)
        toggles = np.zeros((netlist.nets, 2), dtype=np.uint64)
        counters = np.zeros(self._counter_size, dtype=np.uint32)
        run = _Run(
            cycles=cycles,
            counted_from=counted_from,
            period=period,
            live=(1 << copies) - 1,
            clock=(1 << COPIES) - 1 if clock_runs else 0,
            in_bits=len(in_nets),
            out_bits=len(out_nets),
            in_nets=in_nets.ctypes.data,
            out_nets=out_nets.ctypes.data,
            in_words=in_words.ctypes.data,
            out_words=out_words.ctypes.data,
            values=values.ctypes.data,
            toggles=toggles.ctypes.data,
            counters=counters.ctypes.data,
            last_event=0,
        )
        engine().simulate(ctypes.byref(self._design), ctypes.byref(run))
        outputs: dict[str, Bits] = {}
        position = 0
        for name, bits in netlist.outputs.items():
            outputs[name] = _unpack(out_words[:, position : position + len(bits)], copies)
            position += len(bits)
        return Activity(
            netlist,
            copies,
            cycles - counted_from,
            toggles,
            self.cells,
            self._arrays["out_offset"],
            self._arrays["in_offset"],
            self._arrays["state_offset"],
            counters,
            outputs,
            values,
            run.last_event / TICKS_PER_NS,
        )


def _gates_in_order(netlist: Netlist) -> list[int]:
    """Clock gates, each after the one that drives its clock."""
    waiting = [i for i in range(netlist.cells) if netlist.cell(i).kind == "clock-gate"]
    known, done = {netlist.clock}, []
    while waiting:
        ready = [i for i in waiting if netlist.pins[i][netlist.cell(i).clock] in known]
        done += ready
        known |= {netlist.pins[i][netlist.cell(i).outputs[0]] for i in ready}
        waiting = [i for i in waiting if i not in set(ready)]
    return done


def _pack(bits: Bits) -> Words:
    """(cycles, copies, bits) of 0 and 1 to words (cycles, bits), copy r in bit r."""
    padded = np.zeros((bits.shape[0], bits.shape[2], COPIES), dtype=np.uint8)
    padded[:, :, : bits.shape[1]] = np.swapaxes(bits, 1, 2)
    return np.packbits(padded, axis=2, bitorder="little").view("<u8")[:, :, 0].astype(np.uint64)


def _unpack(words: Words, copies: int) -> Bits:
    raw = np.ascontiguousarray(words.astype("<u8"))[:, :, None].view(np.uint8)
    bits = np.unpackbits(raw, axis=2, bitorder="little")[:, :, :copies]
    return np.ascontiguousarray(np.swapaxes(bits, 1, 2))
