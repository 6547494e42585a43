"""The words of a spec as hardware shapes, and the payloads of the streams between the units.

A *slice* is what a unit handles in a cycle: ``spec.slice_width`` lanes. Rows are told apart by a row
id; a unit built for one row has no such field.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Shape, signed, unsigned
from amaranth.lib import data
from amaranth.utils import ceil_log2

from softermax.fixedpoint import QFormat
from softermax.rtl.sizes import check_buildable
from softermax.spec import DeferredSpec, SoftermaxSpec

VALUE_BITS = 8
"""Of the elements of V."""


def word(q: QFormat) -> Shape:
    return signed(q.bits) if q.signed else unsigned(q.bits)


def integer_max(spec: SoftermaxSpec) -> Shape:
    """The running max is an integer: only the integer bits of its word are wires."""
    return signed(spec.max.integer)


def unnormed_bits(spec: SoftermaxSpec) -> int:
    """Bits that an unnormed word can set: 2^t lies below 2."""
    return spec.unnormed.fraction + 1


def lanes_of(q: QFormat, lanes: int) -> data.ArrayLayout:
    return data.ArrayLayout(word(q), lanes)


def row_id(rows: int) -> dict[str, Any]:
    """The field that names a row, where there is more than one."""
    return {"row": unsigned(ceil_log2(rows))} if rows > 1 else {}


def slice_layout(spec: SoftermaxSpec, rows: int) -> data.StructLayout:
    """A slice of scores: raw words, which lanes take part, and where in its row the slice stands."""
    lanes = check_buildable(spec)
    return data.StructLayout(
        {"x": lanes_of(spec.input, lanes), "mask": unsigned(lanes), **row_id(rows), "first": 1, "last": 1}
    )


def unnormed_layout(spec: SoftermaxSpec, rows: int) -> data.StructLayout:
    """A slice of unnormed words and the running max that they refer to; in a row's last slice this
    is the row's max."""
    lanes = check_buildable(spec)
    return data.StructLayout(
        {"u": lanes_of(spec.unnormed, lanes), "max": integer_max(spec), **row_id(rows), "last": 1}
    )


def sum_layout(spec: SoftermaxSpec, rows: int) -> data.StructLayout:
    """The PowSum of a finished row."""
    return data.StructLayout({"powsum": word(spec.powsum), **row_id(rows)})


def finished_row_layout(spec: SoftermaxSpec, rows: int = 1) -> data.StructLayout:
    """What Normalization must know of a row before its first slice."""
    return data.StructLayout({"max": integer_max(spec), "powsum": word(spec.powsum), **row_id(rows)})


def numerator_layout(spec: SoftermaxSpec, lanes: int) -> data.StructLayout:
    """A slice of a finished row on its way into Normalization."""
    return data.StructLayout({"u": lanes_of(spec.unnormed, lanes), "max": integer_max(spec), "last": 1})


def scores_layout(spec: SoftermaxSpec, lanes: int) -> data.StructLayout:
    """A slice of a finished row on its way into Normalization with row products (A10)."""
    return data.StructLayout({"x": lanes_of(spec.input, lanes), "mask": unsigned(lanes), "last": 1})


def output_layout(spec: SoftermaxSpec, lanes: int, rows: int = 1) -> data.StructLayout:
    """A slice of probabilities; row-scaled ones with the row's exponent beside them (A7)."""
    fields: dict[str, Any] = {"y": lanes_of(spec.output, lanes), **row_id(rows), "last": 1}
    if spec.output_mode == "row-scaled":
        fields["exponent"] = signed(exponent_bits(spec))
    return data.StructLayout(fields)


def exponent_bits(spec: SoftermaxSpec) -> int:
    """Bits of ``e - Fd``, which runs from -Fd to the integer bits of PowSum less one."""
    return max(spec.powsum.fraction.bit_length(), (spec.powsum.integer - 1).bit_length()) + 1


def weighted_layout(spec: SoftermaxSpec, columns: int) -> data.StructLayout:
    """A slice of unnormed words, the running max that they refer to, and the values of every lane."""
    lanes = check_buildable(spec)
    values = data.ArrayLayout(data.ArrayLayout(signed(VALUE_BITS), columns), lanes)
    return data.StructLayout(
        {"u": lanes_of(spec.unnormed, lanes), "max": integer_max(spec), "last": 1, "v": values}
    )


def attended_layout(spec: DeferredSpec, columns: int, accumulator_bits: int) -> data.StructLayout:
    """A row's outputs, each accumulator times reciprocal, and the power of two that divides them."""
    product = signed(accumulator_bits + spec.reciprocal.fraction + 2)
    largest_exponent = spec.reciprocal.fraction + spec.powsum.bits - 1
    return data.StructLayout(
        {"o": data.ArrayLayout(product, columns), "exponent": unsigned(largest_exponent.bit_length())}
    )
