"""What a part of a unit may depend on beyond its terms: numbers that near specs have nearly the same of.

Only fields that reach the part, and for an energy how much of it changes: what few specs tell apart must not be many numbers.
"""

from __future__ import annotations

import math

from softermax.search.activity import Activity
from softermax.search.terms import (
    NUMERATORS,
    POWER_TABLE,
    POWERS,
    PRODUCTS,
    RECIPROCAL,
    REDUCTIONS,
    WEIGHTED_POWERS,
    lanes_of,
    rows_spec,
)
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

_APART = 3.0
"""How many bits a choice counts as."""


def features(kind: str, spec: AnySpec, active: Activity | None) -> list[float]:
    """Of a part of this kind; ``active`` for its energy, None for its area."""
    s, lanes = rows_spec(spec), math.log2(lanes_of(spec))
    found = [float(value) for value in _fields(kind, spec, s)]
    if kind != RECIPROCAL or active is not None:
        found.append(lanes)
    if active is not None:
        found += [1.5 * math.log(rate + 0.05) for rate in _rates(kind, active)]
    return found


def _fields(kind: str, spec: AnySpec, s: SoftermaxSpec) -> list[float]:
    powsum = spec.powsum
    extra = s.max.integer - s.input.integer
    word = spec.weight.fraction + 1 if isinstance(spec, DeferredSpec) else s.unnormed.fraction + 1
    if kind in (POWERS, WEIGHTED_POWERS, POWER_TABLE):
        own = [
            s.input.integer, s.input.fraction, extra, s.unnormed.fraction, *_pieces(pow2_table(s)), *_way(s.unnormed_rounding),
            _levels(spec, s),
        ]  # fmt: skip
        if kind == WEIGHTED_POWERS:
            # An unnormed word is a weight of which nothing was dropped.
            dropped, integer = s.unnormed.fraction + 1 - word, 1
            if isinstance(spec, DeferredSpec):
                integer = spec.weight.integer
            own += [2 * integer, word, dropped, _APART * (dropped == 0)]
        return own
    if kind in REDUCTIONS:
        way = "truncate" if isinstance(spec, DeferredSpec) else s.powsum_rounding
        return [word, s.max.integer, powsum.integer, powsum.fraction, *_way(way)]
    if kind == RECIPROCAL:
        return [powsum.integer, powsum.fraction, spec.reciprocal.fraction, *_pieces(reciprocal_table(spec))]
    if kind in (NUMERATORS, PRODUCTS):
        own = [
            s.unnormed.fraction, s.reciprocal.fraction, 2 * s.output.integer, s.output.fraction, powsum.integer,
            _APART * (s.output_mode == "fixed"), *_way(s.output_rounding),
        ]  # fmt: skip
        if kind == NUMERATORS:
            return [*own, s.max.integer]
        return [*own, s.input.integer, s.input.fraction, extra, s.product.fraction - s.output.fraction]
    return [s.input.integer, s.input.fraction, extra, 2 * (s.max_rounding == "ceil")]


def _levels(spec: AnySpec, s: SoftermaxSpec) -> float:
    """About how many gates lie one after the other from a score's fraction to the sum of lanes. Where a cycle is too short for
    them, synthesis is asked for more speed, and gates grow."""
    table, bits = pow2_table(s), s.unnormed.fraction + 1
    found = float(min(table.index_bits, table.used_bits))
    if table.uses_m:
        found += 2 * _adders(table.rest_bits + 1) + math.log2(table.shift + bits)
    found += min(s.max.integer, bits.bit_length())
    if s.unnormed_rounding != "truncate":
        found += math.log2(bits) + (s.unnormed_rounding == "half-even") * 3
    if isinstance(spec, DeferredSpec):
        dropped = s.unnormed.fraction - spec.weight.fraction
        found += (dropped > 0) * math.log2(spec.weight.fraction + 1) + (spec.weight.integer == 0)
    return found + 2 * min(3, _adders(lanes_of(spec)))


def _adders(words: int) -> int:
    """Levels of full adders that leave two words."""
    levels = 0
    while words > 2:
        words -= words // 3
        levels += 1
    return levels


def _rates(kind: str, active: Activity) -> list[float]:
    if kind in (NUMERATORS, PRODUCTS):
        other = active.unnormed if kind == NUMERATORS else active.score
        return [active.live, active.numerator, active.product, active.output, other]
    if kind in (POWERS, WEIGHTED_POWERS, POWER_TABLE):
        return [active.score, active.power, active.distance, active.unnormed]
    if kind in REDUCTIONS:
        return [active.word]
    return [active.score]


def _pieces(table: PiecewiseTable) -> list[float]:
    return [min(table.index_bits, table.used_bits), table.rest_bits]


def _way(rounding: str) -> list[float]:
    return [_APART * (rounding == way) for way in ("half-up", "half-even")]
