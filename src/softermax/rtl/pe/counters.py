"""How often a tile used each of its memories, counted in the hardware."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Signal, unsigned
from amaranth.lib import data

from softermax.rtl.pe.config import Softmax
from softermax.rtl.pe.processing_element import BUFFERS, ProcessingElement

COUNT_BITS = 32
COUNTED = tuple(f"{name}_{port}" for name in BUFFERS for port in ("reads", "writes"))
STORES: dict[Softmax, tuple[str, ...]] = {
    "softermax": ("scores_writes", "scores_reads"),
    "deferred": ("weights_writes", "weights_reads"),
    "two-pass": ("scores_writes", "scores_max_reads", "scores_reads", "unnormed_writes", "unnormed_reads"),
    "online": ("unnormed_writes", "maxima_reads", "unnormed_reads"),
}
"""Accesses to the global buffer, a slice each; of maxima, a max each."""


def counts_layout(softmax: Softmax) -> data.StructLayout:
    """How often each port was used, in cycles in which it was, and all cycles."""
    names = (*COUNTED, *STORES[softmax], "cycles")
    return data.StructLayout({name: unsigned(COUNT_BITS) for name in names})


def show_counts(
    m: Module, counts: Any, softmax: Softmax, processing: ProcessingElement, stores: list[Any], row_ends: Any
) -> None:
    """Counters, offered after every row: the last ones are those of the whole run."""
    named = zip((*COUNTED, *STORES[softmax]), (*processing.accesses, *stores), strict=True)
    for name, access in (dict(named) | {"cycles": Const(1)}).items():
        counter = Signal(COUNT_BITS, name=f"count_{name}")
        with m.If(access):
            m.d.sync += counter.eq(counter + 1)
        m.d.comb += getattr(counts.p, name).eq(counter)
    with m.If(row_ends):
        m.d.sync += counts.valid.eq(1)
    with m.Elif(counts.ready):
        m.d.sync += counts.valid.eq(0)


def row_ends(probabilities: Any) -> Any:
    return probabilities.valid & probabilities.ready & probabilities.p.last
