"""A linear piece-wise table (``softermax.tables``) as logic."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, signed, unsigned

from softermax.tables import PiecewiseTable


def lookup(m: Module, table: PiecewiseTable, fraction: Value, name: str) -> Signal:
    """The table's value at ``fraction``, which has the table's argument bits."""
    used = fraction[table.argument_bits - table.used_bits :]
    index = Signal(unsigned(table.index_bits), name=f"{name}_index")
    # With fewer bits than segments need, the bits that are not there are zeros.
    m.d.comb += index.eq(used[table.rest_bits :] << max(table.index_bits - table.used_bits, 0))
    c_shape = unsigned(max(table.c_lut).bit_length())
    c = Array(Const(entry, c_shape) for entry in table.c_lut)[index]
    result = Signal(unsigned(table.high.bit_length()), name=name)
    if not table.uses_m:
        values: set[int] = set(table.c_lut)
        if min(values) >= table.low and max(values) <= table.high:
            m.d.comb += result.eq(c)
            return result
        line: Value = c
    else:
        m_shape = signed(max(abs(entry) for entry in table.m_lut).bit_length() + 1)
        slope = Array(Const(entry, m_shape) for entry in table.m_lut)[index]
        line = (slope * used[: table.rest_bits] + c) >> table.shift
    straight = Signal(signed(len(line) + 1), name=f"{name}_line")
    m.d.comb += [
        straight.eq(line),
        result.eq(Mux(straight < table.low, table.low, Mux(straight > table.high, table.high, straight))),
    ]
    return result
