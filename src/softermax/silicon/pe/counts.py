"""How often a PE uses its memories: counted in the RTL's simulation, tile by tile, then composed.

The order of accesses depends on how many words each memory has and on the job's tiling, not on how wide a
word is. So the counts come from a twin of the PE with the same depths and one lane of one element,
which runs the same RTL schedule; `tests/silicon/test_pe_counts.py` holds it against a PE with more lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from softermax.rtl.pe import attention_run
from softermax.rtl.pe.attention_run import Tiling
from softermax.rtl.pe.attention_tile import AttentionTile
from softermax.rtl.pe.baseline_tiles import BaselineTile, OnlineTile
from softermax.rtl.pe.config import ACCUMULATOR_BITS, PEConfig, Softmax
from softermax.rtl.pe.deferred_tile import DeferredTile
from softermax.rtl.simulation import Simulation
from softermax.spec import DeferredSpec, SoftermaxSpec

HEAD_SIZE = 64
"""Elements of a head's vectors, as in the paper's BERT."""
_DEPTH = 128
"""Slices per row in the twin: as many as the longest run of keys has groups."""


@dataclass(frozen=True)
class Workload:
    """Q·K^T and softmax of one head."""

    sequence: int
    head_size: int = HEAD_SIZE


def twin(config: PEConfig) -> PEConfig:
    """One lane of one element, with as many words in each memory."""
    return PEConfig(
        1, 1, config.vectors, config.tiles, config.rows * ACCUMULATOR_BITS // 8, config.scale_bits
    )


@lru_cache(maxsize=8)
def simulation(config: PEConfig, softmax: Softmax, depth: int = _DEPTH) -> Simulation:
    small = twin(config)
    spec = SoftermaxSpec(slice_width=1)
    if softmax == "softermax":
        return Simulation(AttentionTile(small, spec, depth))
    if softmax == "deferred":
        return Simulation(DeferredTile(small, DeferredSpec(scores=spec), depth, columns=1))
    return Simulation(BaselineTile(small, depth) if softmax == "two-pass" else OnlineTile(small, depth))


def simulated(
    config: PEConfig, softmax: Softmax, queries: int, groups: int, chunks: int, depth: int = _DEPTH
) -> dict[str, int]:
    """Counts of a job of so many queries and groups of keys, all of it simulated."""
    small = twin(config)
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-128, 128, (n, chunks)).astype(np.int8) for n in (queries, groups))
    factor = small.nearest(2.0**-8)
    made = simulation(config, softmax, depth)
    if softmax == "deferred":
        counts = attention_run.run_deferred(made, q, k, k[:, :1], small, factor).counts
    else:
        counts = attention_run.run(made, [q], [k], small, factor)[0].counts
    # What comes out goes to the global buffer: a slice of probabilities, or the weights themselves.
    return counts | {"probabilities_writes": queries * groups}


def composed(config: PEConfig, softmax: Softmax, workload: Workload) -> dict[str, int]:
    """Counts of a whole head: those of its tiles' runs, each simulated once, added up.

    Where a head's keys need several loads of the weight buffer, every tile of queries makes all of them,
    one run per load. A run takes the same accesses wherever in a row it stands.
    """
    sequence, chunks = workload.sequence, config.chunks(workload.head_size)
    tiling = Tiling.of(config, workload.head_size, sequence, sequence)
    groups = -(-sequence // config.lanes)
    runs = [min(tiling.groups, groups - begin) for begin in range(0, groups, tiling.groups)]
    tiles = [min(tiling.queries, sequence - begin) for begin in range(0, sequence, tiling.queries)]
    total: dict[str, int] = {}
    for queries in tiles:
        for at, run in enumerate(runs):
            counts = dict(_tile(config, softmax, queries, run, chunks))
            if at:  # the tile's queries are in the input buffer already
                counts["input_buffer_writes"] = 0
            for name, value in counts.items():
                total[name] = total.get(name, 0) + value
    if len(runs) == 1:  # all keys stay in the weight buffer
        total["weight_buffer_writes"] = runs[0] * chunks
    # Tiles overlap: a tile's rows are normalised while the next one is computed. What is left is a cycle
    # for each step and each word loaded, and the last tile's rows.
    loads = total["input_buffer_writes"] + total["weight_buffer_writes"]
    total["cycles"] = total["input_buffer_reads"] + loads + tiles[-1] * groups
    return total


@lru_cache(maxsize=64)
def _tile(
    config: PEConfig, softmax: Softmax, queries: int, groups: int, chunks: int
) -> tuple[tuple[str, int], ...]:
    return tuple(simulated(config, softmax, queries, groups, chunks).items())
