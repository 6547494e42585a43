"""Payloads of the streams of a processing element."""

from __future__ import annotations

import enum

from amaranth.hdl import signed, unsigned
from amaranth.lib import data
from amaranth.utils import ceil_log2

from softermax.rtl.pe.config import ACCUMULATOR_BITS, MAX_SHIFT, OPERAND_BITS, PEConfig


class Kind(enum.IntEnum):
    """What a command asks for."""

    INPUT = 0
    """Write a vector, the first of ``data``, into the input buffer."""
    WEIGHTS = 1
    """Write ``data`` into the weight buffer, lane after lane."""
    RUN = 2
    """Compute scores of the queries in the input buffer with the keys in the weight buffer."""


MAX_CHUNKS = 64
SHIFT_BITS = MAX_SHIFT.bit_length()


def command_layout(config: PEConfig) -> data.StructLayout:
    """Commands are done one after the other. Operands are words of sign and magnitude (`attention_run.sign_magnitude`).

    A run goes over ``groups`` groups of as many keys as there are lanes, with ``chunks`` vectors per
    key. Of the last group only ``keys`` take part. Where a row's keys do not fit the weight buffer, it
    takes several runs: ``first`` marks the run that begins the rows, ``last`` the one that ends them.
    """
    return data.StructLayout(
        {
            "kind": unsigned(2),
            "address": unsigned(ceil_log2(max(config.vectors, config.tiles))),
            "data": data.ArrayLayout(unsigned(OPERAND_BITS), config.lanes * config.vector_size),
            "queries": unsigned(config.rows.bit_length()),
            "groups": unsigned(config.tiles.bit_length()),
            "chunks": unsigned(MAX_CHUNKS.bit_length()),
            "keys": unsigned(config.lanes.bit_length()),
            "first": 1,
            "last": 1,
            "mantissa": unsigned(config.scale_bits),
            "shift": unsigned(SHIFT_BITS),
        }
    )


def row_bits(config: PEConfig) -> int:
    return int(ceil_log2(config.rows))


def accumulators(config: PEConfig) -> data.ArrayLayout:
    return data.ArrayLayout(signed(ACCUMULATOR_BITS), config.lanes)


def scores_layout(config: PEConfig) -> data.StructLayout:
    """Finished accumulators of one query, with the scale of their run."""
    return data.StructLayout(
        {
            "acc": accumulators(config),
            "mask": unsigned(config.lanes),
            "row": unsigned(row_bits(config)),
            "first": 1,
            "last": 1,
            "ends_tile": 1,
            "mantissa": unsigned(config.scale_bits),
            "shift": unsigned(SHIFT_BITS),
        }
    )
