"""Attention operands as commands for a processing element, and what comes back as probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.fixedpoint import IntArray
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.pe.payloads import MAX_CHUNKS, Kind
from softermax.rtl.simulation import Simulation

Operand = NDArray[np.int8]


def sign_magnitude(operand: Operand | IntArray) -> IntArray:
    """The words that the PE takes: sign and magnitude; the sign alone stands for -128."""
    value = operand.astype(np.int64)
    return np.where(value < 0, 128 | (-value & 127), value)


@dataclass(frozen=True)
class Tiling:
    """How queries and keys are cut: tiles of queries, and within each, runs of keys that fit the weight buffer."""

    queries: int
    """A tile's, as many as the collector and the input buffer hold."""
    groups: int
    """A run's, as many as the weight buffer holds."""

    @classmethod
    def of(cls, config: PEConfig, size: int, queries: int, keys: int) -> Tiling:
        chunks = config.chunks(size)
        most_queries, most_groups = config.vectors // chunks, config.tiles // chunks
        if chunks > MAX_CHUNKS or not most_queries or not most_groups:
            raise ValueError(f"head size {size}: its {chunks} vectors do not fit the buffers of this PE")
        return cls(min(config.rows, most_queries, queries), min(most_groups, -(-keys // config.lanes)))


def commands(
    q: Operand, k: Operand, config: PEConfig, factor: float, tiling: Tiling | None = None
) -> dict[str, IntArray]:
    """Commands that compute the scores of queries (queries, size) with keys (keys, size), all of them.

    A score's word is its integer times ``factor``, rounded (A1).
    """
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or not q.size or not k.size:
        raise ValueError(
            f"q {q.shape} and k {k.shape}: must be (queries, size) and (keys, size), neither empty"
        )
    scale = config.split(factor)
    size, (lanes, vector) = q.shape[1], (config.lanes, config.vector_size)
    chunks = config.chunks(size)
    tiling = tiling or Tiling.of(config, size, len(q), len(k))
    groups = -(-len(k) // lanes)
    # Zeros fill up vectors and the last group; they add nothing to a product.
    vectors = np.zeros((len(q), chunks * vector), dtype=np.int64)
    vectors[:, :size] = sign_magnitude(q)
    weights = np.zeros((groups * lanes, chunks * vector), dtype=np.int64)
    weights[: len(k), :size] = sign_magnitude(k)
    tiles = weights.reshape(groups, lanes, chunks, vector).transpose(0, 2, 1, 3).reshape(groups * chunks, -1)

    rows: list[tuple[int, int, IntArray, dict[str, int]]] = []
    loaded = -1
    for start in range(0, len(q), tiling.queries):
        some = vectors[start : start + tiling.queries].reshape(-1, vector)
        for address, words in enumerate(some):
            rows.append((Kind.INPUT, address, words, {}))
        for begin in range(0, groups, tiling.groups):
            end = min(begin + tiling.groups, groups)
            if loaded != begin:  # all keys in the weight buffer stay for the next tile
                for address, words in enumerate(tiles[begin * chunks : end * chunks]):
                    rows.append((Kind.WEIGHTS, address, words, {}))
                loaded = begin
            run = {
                "queries": len(some) // chunks,
                "groups": end - begin,
                "chunks": chunks,
                "keys": len(k) - (groups - 1) * lanes if end == groups else lanes,
                "first": int(begin == 0),
                "last": int(end == groups),
                "mantissa": scale.mantissa,
                "shift": scale.shift,
            }
            rows.append((Kind.RUN, 0, np.zeros(0, dtype=np.int64), run))
    data = np.zeros((len(rows), lanes * vector), dtype=np.int64)
    for at, (_, _, words, _) in enumerate(rows):
        data[at, : len(words)] = words
    names = ("queries", "groups", "chunks", "keys", "first", "last", "mantissa", "shift")
    fields = {name: np.array([run.get(name, 0) for _, _, _, run in rows], dtype=np.int64) for name in names}
    return {
        "kind": np.array([kind for kind, _, _, _ in rows], dtype=np.int64),
        "address": np.array([address for _, address, _, _ in rows], dtype=np.int64),
        "data": data,
        **fields,
    }


@dataclass(frozen=True)
class Outcome:
    """What a tile computed and how often it used its memories."""

    words: IntArray
    """(queries, keys) of every PE, one after the other."""
    exponent: IntArray | None
    """(queries), row-scaled output only (A7)."""
    counts: dict[str, int]


def run(
    simulation: Simulation,
    q: list[Operand],
    k: list[Operand],
    config: PEConfig,
    factor: float,
    stall: float = 0.0,
) -> list[Outcome]:
    """Run each PE of a simulated tile on its own queries and keys."""
    pes = range(len(q))
    inputs = {f"commands_{pe}": commands(q[pe], k[pe], config, factor) for pe in pes}
    slices = [-(-len(keys) // config.lanes) for keys in k]
    expected = {
        "probabilities": sum(len(q[pe]) * slices[pe] for pe in pes),
        "counts": sum(len(queries) for queries in q),
    }
    held_up = {port.name: stall for port in simulation.ports if port.name != "counts"}
    out = simulation.run(inputs, expected, stall=held_up)
    fields, counts = out["probabilities"].fields, out["counts"].fields
    last = {name: int(values[-1]) for name, values in counts.items()}
    pe_of = fields["row"] // config.rows if len(q) > 1 else np.zeros(len(fields["y"]), dtype=np.int64)
    outcomes = []
    for pe in pes:
        mine = pe_of == pe
        words = fields["y"][mine].reshape(len(q[pe]), slices[pe] * config.lanes)[:, : len(k[pe])]
        exponent = fields["exponent"][mine][:: slices[pe]] if "exponent" in fields else None
        outcomes.append(Outcome(words, exponent, last if pe == 0 else {}))
    return outcomes


@dataclass(frozen=True)
class DeferredOutcome:
    """Attention's outputs with deferred normalisation (A8)."""

    products: IntArray
    """(queries, columns), accumulator times reciprocal."""
    exponent: IntArray
    powsum: IntArray
    """(queries), as the PE's unit found it."""
    counts: dict[str, int]


def run_deferred(
    simulation: Simulation,
    q: Operand,
    k: Operand,
    v: Operand,
    config: PEConfig,
    factor: float,
    stall: float = 0.0,
) -> DeferredOutcome:
    """Run a simulated `DeferredTile` on queries, keys and values (keys, columns)."""
    slices = -(-len(k) // config.lanes)
    values = np.zeros((slices * config.lanes, v.shape[1]), dtype=np.int64)
    values[: len(v)] = v
    inputs = {
        "commands_0": commands(q, k, config, factor),
        "values": {"v": np.tile(values.reshape(slices, -1), (len(q), 1))},
    }
    expected = dict.fromkeys(("outputs", "finished", "counts"), len(q))
    held_up = {port.name: stall for port in simulation.ports if port.name != "counts"}
    out = simulation.run(inputs, expected, stall=held_up)
    outputs, counts = out["outputs"].fields, out["counts"].fields
    last = {name: int(values[-1]) for name, values in counts.items()}
    return DeferredOutcome(outputs["o"], outputs["exponent"], out["finished"].fields["powsum"], last)
