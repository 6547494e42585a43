"""Payloads of streams and wires as bits, by their layout: how vectors travel to and from a simulated unit.

A driver of RTL takes rows of 32-bit words (`pack`, `unpack`), a gate-level simulation single bits (`bits_of`, `fields_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray

Words: TypeAlias = NDArray[np.uint32]
Bits: TypeAlias = NDArray[np.uint8]

CHUNK = 32


def words_of(layout: data.Layout) -> int:
    return max(1, -(-int(layout.size) // CHUNK))


def pack(layout: data.StructLayout, fields: Mapping[str, Any]) -> Words:
    """One row of words for each element of the fields' first axis. Arrays have lanes as second axis;
    a field of one bit per lane may be given as a boolean array of lanes."""
    values = {name: np.asarray(fields[name]) for name, _ in layout}
    count = len(next(iter(values.values())))
    packed = np.zeros((count, words_of(layout)), dtype=np.uint64)
    for name, field in layout:
        value = values[name]
        if value.ndim == 2 and not isinstance(field.shape, data.ArrayLayout):
            places = [(field.offset + lane, 1, value[:, lane]) for lane in range(value.shape[1])]
        elif isinstance(field.shape, data.ArrayLayout):
            places = [(offset, width, value[:, i]) for i, (offset, width, _) in enumerate(_leaves(field))]
        else:
            places = [(field.offset, field.width, value)]
        for offset, width, column in places:
            chunk, shift = divmod(offset, CHUNK)
            done = 0
            while done < width:
                taken = min(CHUNK - shift, width - done)
                # Beyond 64 bits there is nothing but the sign.
                piece = (column.astype(np.int64) >> min(done, 63)) & ((1 << taken) - 1)
                packed[:, chunk] |= piece.astype(np.uint64) << np.uint64(shift)
                chunk, shift, done = chunk + 1, 0, done + taken
    return packed.astype(np.uint32)


def unpack(layout: data.StructLayout, words: Words) -> dict[str, IntArray]:
    """The fields again, signed where their shape is."""
    wide = words.astype(np.uint64)
    out: dict[str, IntArray] = {}
    for name, field in layout:
        columns = []
        for offset, width, signed in _leaves(field):
            chunk, shift = divmod(offset, CHUNK)
            width = min(width, 64)
            bits = wide[:, chunk] >> np.uint64(shift)
            for further in range(1, -(-(shift + width) // CHUNK)):
                bits |= wide[:, chunk + further] << np.uint64(CHUNK * further - shift)
            # To the top and back down: the sign comes with it.
            value = (bits << np.uint64(64 - width)).astype(np.int64) >> (64 - width)
            columns.append(value if signed or width == 64 else value & ((1 << width) - 1))
        out[name] = np.stack(columns, axis=1) if isinstance(field.shape, data.ArrayLayout) else columns[0]
    return out


def bits_of(layout: data.StructLayout, fields: Mapping[str, Any]) -> Bits:
    """What `pack` gives as bits (elements, size of the layout), the least significant one first."""
    raw = pack(layout, fields).astype("<u4").view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little")[:, : layout.size]


def fields_of(layout: data.StructLayout, bits: Bits) -> dict[str, IntArray]:
    """The fields of bits (elements, size of the layout)."""
    padded = np.zeros((len(bits), CHUNK * words_of(layout)), dtype=np.uint8)
    padded[:, : layout.size] = bits
    return unpack(layout, np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.uint32))


def _leaves(field: data.Field) -> Iterator[tuple[int, int, bool]]:
    """Offset, width and sign of a field's words; arrays of arrays are taken as one."""
    if isinstance(field.shape, data.ArrayLayout):
        for _, element in field.shape:
            yield from _leaves(data.Field(element.shape, field.offset + element.offset))
    else:
        yield field.offset, field.width, bool(Shape.cast(field.shape).signed)
