"""Fast simulation of any component with streams: Verilator's C++ compiled once, then run on files.

The driver is C++ as well: it offers the vectors of every input stream, takes what every output
stream gives, and stalls either at random, without Python in the loop. Programs are cached by the
content of the design and of the driver.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth.lib import data, stream, wiring
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.rtl.convert import to_verilog
from softermax.rtl.packing import Words, pack, unpack, words_of
from softermax.rtl.verilator import program

TOP = "dut"
_GIVE_UP = 20_000
"""Cycles without a transfer after which the design counts as stuck."""


class Stuck(RuntimeError):
    """No transfer happened for a long time although some were still due."""


@dataclass(frozen=True)
class Port:
    """A stream of a component."""

    name: str
    is_input: bool
    layout: data.StructLayout


@dataclass(frozen=True)
class Transfers:
    """What went through one stream: the fields, and the cycle of each transfer."""

    fields: dict[str, IntArray]
    cycles: NDArray[np.int64]


def ports_of(component: wiring.Component) -> list[Port]:
    """The streams of a component, in the order of its signature."""
    found = []
    for name, member in component.signature.members.items():
        if member.is_signature and isinstance(member.signature, stream.Signature):
            layout = getattr(component, name).payload.shape()
            found.append(Port(name, member.flow == wiring.In, layout))
    return found


class Simulation:
    """A component's compiled simulation."""

    def __init__(self, component: wiring.Component) -> None:
        self.ports = ports_of(component)
        verilog = self.design(component)
        self._program = program(
            {f"{TOP}.v": verilog, "driver.cpp": _driver(self.ports)},
            ["-O3", "--no-timing", "--x-assign", "fast", "--top-module", TOP],
        )

    def design(self, component: wiring.Component) -> str:
        """The Verilog that is simulated, its module called `TOP`. A subclass may add streams of its own to ``ports``."""
        return to_verilog(component, TOP)

    def run(
        self,
        inputs: Mapping[str, Mapping[str, IntArray]],
        expected: Mapping[str, int],
        stall: float | Mapping[str, float] = 0.0,
        seed: int = 0,
    ) -> dict[str, Transfers]:
        """Drive every input stream with its fields until every output stream gave as many transfers
        as expected of it, and then some cycles more, which must bring no further one.

        ``stall`` is the share of the cycles in which a stream is held up by its outer side. The
        result also has the input streams' cycles.
        """
        with tempfile.TemporaryDirectory(prefix="softermax-") as name:
            folder = Path(name)
            arguments = [str(seed)]
            for port in self.ports:
                share = stall if isinstance(stall, float) else stall.get(port.name, 0.0)
                count = expected.get(port.name, 0)
                if port.is_input:
                    words = pack(port.layout, inputs[port.name])
                    words.astype("<u4").tofile(folder / f"{port.name}.in")
                    count = len(words)
                arguments += [str(count), str(min(int(share * 2**32), 2**32 - 1))]
            done = subprocess.run(
                [self._program, *arguments], cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode == 3:
                raise Stuck(done.stderr.strip())
            if done.returncode != 0:
                raise RuntimeError(f"simulation failed: {done.stderr.strip()}")
            return {port.name: self._transfers(port, folder) for port in self.ports}

    @staticmethod
    def _transfers(port: Port, folder: Path) -> Transfers:
        cycles = np.fromfile(folder / f"{port.name}.cycles", dtype="<i8").astype(np.int64)
        if port.is_input:
            return Transfers({}, cycles)
        words: Words = np.fromfile(folder / f"{port.name}.out", dtype="<u4").reshape(
            -1, words_of(port.layout)
        )
        return Transfers(unpack(port.layout, words), cycles)


def _driver(ports: list[Port]) -> str:
    """The program around the design: one entry per stream, the rest is the same for all."""
    entries = []
    for index, port in enumerate(ports):
        # Verilator spells a double underscore as its code.
        payload, valid, ready = (f"top.{port.name}___05F{part}" for part in ("payload", "valid", "ready"))
        entries.append(
            _STREAM.format(
                index=index,
                name=port.name,
                words=words_of(port.layout),
                payload=payload,
                valid=valid,
                ready=ready,
                kind="Source" if port.is_input else "Sink",
                present=_OFFER.format(index=index, payload=payload, valid=valid)
                if port.is_input
                else f"{ready} = s{index}.open();",
            )
        )
    names = [f"s{index}" for index in range(len(ports))]
    return _PROGRAM.format(
        streams="\n".join(f"  {e.split('@@')[0].strip()}" for e in entries),
        present="\n".join(f"    {e.split('@@')[1].strip()}" for e in entries),
        sample="\n".join(f"    {e.split('@@')[2].strip()}" for e in entries),
        done=" && ".join(f"{name}.done()" for name in names),
        tell="\n".join(f"      {name}.tell();" for name in names),
        overrun=" || ".join(f"{name}.overrun" for name in names),
        finish="\n".join(f"  {name}.finish();" for name in names),
        give_up=_GIVE_UP,
        top=TOP,
    )


_STREAM = """
{kind} s{index}("{name}", {words}, argv + 2 + 2 * {index}, seed + {index});
@@
{present}
@@
moved |= s{index}.step({valid} && {ready}, words_of({payload}).data(), cycle);
"""

_OFFER = """{valid} = s{index}.open();
    if ({valid}) assign({payload}, s{index}.now());"""

_PROGRAM = """
#include "V{top}.h"
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static std::vector<uint32_t> load(const std::string &path) {{
  std::vector<uint32_t> words;
  FILE *file = fopen(path.c_str(), "rb");
  if (!file) {{ fprintf(stderr, "cannot read %s\\n", path.c_str()); exit(1); }}
  fseek(file, 0, SEEK_END);
  words.resize(ftell(file) / 4);
  rewind(file);
  if (fread(words.data(), 4, words.size(), file) != words.size()) exit(1);
  fclose(file);
  return words;
}}

// Ports of up to 64 bits are integers, wider ones arrays of words.
template <class T> std::enable_if_t<std::is_integral_v<T>> assign(T &port, const uint32_t *from) {{
  port = sizeof(T) > 4 ? T(from[0] | uint64_t(from[1]) << 32) : T(from[0]);
}}
template <size_t N> void assign(VlWide<N> &port, const uint32_t *from) {{ std::copy_n(from, N, port.data()); }}
template <class T> std::enable_if_t<std::is_integral_v<T>, std::array<uint32_t, 2>> words_of(T port) {{
  return {{uint32_t(port), uint32_t(uint64_t(port) >> 32)}};
}}
template <size_t N> std::array<uint32_t, N> words_of(const VlWide<N> &port) {{
  std::array<uint32_t, N> words;
  std::copy_n(port.data(), N, words.begin());
  return words;
}}

struct Stream {{
  std::string name; size_t words, count, given = 0; uint64_t random, stall; bool overrun = false;
  std::vector<int64_t> cycles;
  Stream(const char *name, size_t words, char **argv, uint64_t seed)
      : name(name), words(words), count(strtoull(argv[0], 0, 10)),
        random(seed * 0x9E3779B97F4A7C15ull + 1), stall(strtoull(argv[1], 0, 10)) {{}}
  bool held_up() {{
    random ^= random << 13; random ^= random >> 7; random ^= random << 17;
    return (random >> 32) < stall;
  }}
  bool done() const {{ return given == count; }}
  void tell() const {{ fprintf(stderr, " %s %zu/%zu", name.c_str(), given, count); }}
  void save(const char *ending, const void *from, size_t bytes) {{
    FILE *file = fopen((name + ending).c_str(), "wb");
    if (!file || fwrite(from, 1, bytes, file) != bytes || fclose(file)) exit(1);
  }}
  void finish() {{ save(".cycles", cycles.data(), cycles.size() * 8); }}
}};

// Once offered, a payload stays until it is taken.
struct Source : Stream {{
  std::vector<uint32_t> data; bool offered = false;
  Source(const char *name, size_t words, char **argv, uint64_t seed)
      : Stream(name, words, argv, seed), data(load(std::string(name) + ".in")) {{}}
  bool open() {{ return offered = given < count && (offered || !held_up()); }}
  const uint32_t *now() const {{ return &data[given * words]; }}
  bool step(bool moved, const uint32_t *, int64_t cycle) {{
    if (moved) {{ given++; offered = false; cycles.push_back(cycle); }}
    return moved;
  }}
}};

struct Sink : Stream {{
  std::vector<uint32_t> data;
  using Stream::Stream;
  bool open() {{ return !held_up(); }}
  bool step(bool moved, const uint32_t *payload, int64_t cycle) {{
    if (moved) {{
      overrun |= given == count;
      given++; data.insert(data.end(), payload, payload + words); cycles.push_back(cycle);
    }}
    return moved;
  }}
  void finish() {{ save(".out", data.data(), data.size() * 4); Stream::finish(); }}
}};

int main(int argc, char **argv) {{
  uint64_t seed = strtoull(argv[1], 0, 10) * 64 + 1;
  V{top} top;
{streams}
  top.rst = 1;
  for (int i = 0; i < 4; i++) {{ top.clk = i & 1; top.eval(); }}
  top.rst = 0;
  int64_t idle = 0, after = 0;
  for (int64_t cycle = 0; after < 64; cycle++) {{
{present}
    top.clk = 0;
    top.eval();
    bool moved = false;
{sample}
    top.clk = 1;
    top.eval();
    idle = moved ? 0 : idle + 1;
    after = {done} ? after + 1 : 0;
    if ({overrun}) {{
      fprintf(stderr, "more transfers than expected:");
{tell}
      return 1;
    }}
    if (idle > {give_up}) {{
      fprintf(stderr, "no transfer in %lld cycles:", (long long)idle);
{tell}
      return 3;
    }}
  }}
{finish}
  return 0;
}}
"""
