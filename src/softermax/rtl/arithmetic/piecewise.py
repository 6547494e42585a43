"""A linear piece-wise table (``softermax.tables``) as logic."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value, signed, unsigned

from softermax.rtl.arithmetic.carry_save import carry_save
from softermax.tables import PiecewiseTable


def lookup(m: Module, table: PiecewiseTable, fraction: Value, name: str) -> Signal:
    """The table's value at ``fraction``, which has the table's argument bits."""
    used = fraction[table.argument_bits - table.used_bits :]
    index = Signal(unsigned(table.index_bits), name=f"{name}_index")
    # With fewer bits than segments need, the bits that are not there are zeros.
    m.d.comb += index.eq(used[table.rest_bits :] << max(table.index_bits - table.used_bits, 0))
    line = _line(m, table, index, used[: table.rest_bits], name)
    result = Signal(unsigned(table.high.bit_length()), name=name)
    lowest, highest = _extremes(table)
    if table.low <= lowest and highest <= table.high:
        m.d.comb += result.eq(line)
        return result
    clipped = Mux(line < table.low, table.low, Mux(line > table.high, table.high, line))
    m.d.comb += result.eq(clipped)
    return result


def _line(m: Module, table: PiecewiseTable, index: Signal, rest: Value, name: str) -> Signal:
    """The value before it is clipped."""
    lowest, highest = _extremes(table)
    shape = (
        signed(max(highest.bit_length(), (-lowest).bit_length()) + 1)
        if lowest < 0
        else unsigned(highest.bit_length())
    )
    line = Signal(shape, name=f"{name}_line")
    slopes, offsets = list(table.m_lut), list(table.c_lut)
    if not table.uses_m:
        m.d.comb += line.eq(_entry(offsets, index))
        return line
    if all(slope <= 0 for slope in slopes):
        # Falling: counted from the segment's end, the line rises, and nothing is negative.
        end = (1 << table.rest_bits) - 1
        offsets = [c + slope * end for c, slope in zip(offsets, slopes, strict=True)]
        slopes, rest = [-slope for slope in slopes], ~rest
    if min(slopes) < 0 or min(offsets) < 0:
        m.d.comb += line.eq((_entry(slopes, index) * rest + _entry(offsets, index)) >> table.shift)
        return line
    slope = Signal(unsigned(max(slopes).bit_length()), name=f"{name}_slope")
    m.d.comb += slope.eq(_entry(slopes, index))
    rows = [Mux(bit, slope << position, 0) for position, bit in enumerate(rest)]
    bits = (max(slopes) * ((1 << table.rest_bits) - 1) + max(offsets)).bit_length()
    total = Signal(unsigned(bits), name=f"{name}_total")
    m.d.comb += total.eq(sum(carry_save(m, [*rows, _entry(offsets, index)], bits, f"{name}_rows")))
    m.d.comb += line.eq(total >> table.shift)
    return line


def _entry(entries: list[int], index: Signal) -> Value:
    bits = max(max(entry.bit_length() for entry in entries), 1)
    shape = signed(bits + 1) if min(entries) < 0 else unsigned(bits)
    return Array(Const(entry, shape) for entry in entries)[index]


def _extremes(table: PiecewiseTable) -> tuple[int, int]:
    """The lowest and the highest value of the lines: at the ends of the segments, for lines are monotonic."""
    end = (1 << table.rest_bits) - 1
    values = [
        (m * rest + c) >> table.shift
        for m, c in zip(table.m_lut, table.c_lut, strict=True)
        for rest in (0, end if table.uses_m else 0)
    ]
    return min(values), max(values)
