"""What a spec's units are made of, counted: the terms that `silicon_model` fits costs to.

Bits of registers, adders and comparators, shifters (bits times stages), multipliers (bits times bits) and table entries, by part
of a unit as `softermax.rtl` has them. A term is per lane, or, where its name begins with ``row``, per row of lanes.

What an area is made of is that alone; an energy also depends on how often bits change (`softermax.search.activity`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from softermax import golden
from softermax.fixedpoint import shift_right
from softermax.search.logic import VARIABLE, ZERO, Rounded, bits_of, decisions, rounded_shift, shifter
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

UNNORMED, NORMALIZATION, WEIGHTS = "unnormed", "normalization", "weights"
RECIPROCAL = "reciprocal"
POWERS, WEIGHTED_POWERS, POWER_TABLE = "power of two", "weighted powers", "power table"
REDUCTIONS = ("reduction", "row reduction")
NUMERATORS, PRODUCTS = "numerators", "products"
"""Kinds of parts."""
_TABLE_BITS = 7
"""As in `softermax.rtl.power_of_two`: of k and f together, for which a table is smaller than a shifter."""

Terms = dict[str, float]


def rows_spec(spec: AnySpec) -> SoftermaxSpec:
    return spec.scores if isinstance(spec, DeferredSpec) else spec


def lanes_of(spec: AnySpec) -> int:
    width = rows_spec(spec).slice_width
    if width is None:
        raise ValueError(
            "slice_width = None: area and energy are of hardware, which takes so many elements per cycle"
        )
    return width


def stages_of(most: int) -> int:
    """Of a shifter by up to so many places."""
    return max(most, 1).bit_length()


def _table(table: PiecewiseTable, bits: int) -> Terms:
    """A piecewise table: its entries, the multiplier of its slopes, and what it comes to as one table of all its arguments."""
    index = min(table.index_bits, table.used_bits)
    used = range(0, 1 << table.index_bits, 1 << max(table.index_bits - table.used_bits, 0))
    slopes = [abs(table.m_lut[i]) for i in used] if table.uses_m else [0]
    slope = max(slopes).bit_length()
    rest = table.rest_bits if table.uses_m else 0
    width = table.shift + bits
    return {
        "entries": decisions([table.c_lut[i] for i in used], width),
        "slope entries": decisions(slopes, slope) if index and rest else 0.0,
        "slope product": float(slope * rest),
        "slope sum": float(rest > 0) * max(width, slope),
        "clipped": float(_clips(table) * bits),
    }


def _clips(table: PiecewiseTable) -> int:
    """Of the two ends of a table's range, those that its lines leave: each takes a comparison and a choice."""
    end = (1 << table.rest_bits) - 1 if table.uses_m else 0
    ends = [
        (m * rest + c) >> table.shift
        for m, c in zip(table.m_lut, table.c_lut, strict=True)
        for rest in (0, end)
    ]
    return (min(ends) < table.low) + (max(ends) > table.high)


def _of_rounding(prefix: str, rounding: str, bits: float) -> Terms:
    return {f"{prefix} half-{way}": bits * (rounding == f"half-{way}") for way in ("up", "even")}


def _int_max(s: SoftermaxSpec) -> Terms:
    rounds = s.max_rounding == "ceil" and s.input.fraction > 0
    key = s.max.integer + rounds
    return {
        "key": key,
        "fraction": s.input.fraction * rounds,
        "odd": key % 2,
        "lane": 1.0,
        "row max": s.max.integer,
        "row": 1.0,
    }


@lru_cache(maxsize=4096)
def powers_of(s: SoftermaxSpec) -> tuple[int, ...]:
    """2^f as the table has it, for every f."""
    return tuple(int(power) for power in pow2_table(s)(np.arange(1 << s.input.fraction)))


def _collapsed(s: SoftermaxSpec, stages: int, cut: int) -> float:
    """Words of all f and k as one table, where that is small enough for a mapper to find."""
    if s.input.fraction + stages > _TABLE_BITS + 1:
        return float("inf")
    powers = np.array(powers_of(s))
    words = [shift_right(powers, k, s.unnormed_rounding) >> cut for k in range(1 << stages)]
    return decisions([int(word) for row in words for word in row], s.unnormed.fraction + 1 - cut)


def _shifted(s: SoftermaxSpec, stages: int, cut: int, unseen: int) -> Terms:
    """2^f to the right by k: as a shifter, and as what a mapper can make of it at most."""
    bits = s.unnormed.fraction + 1
    powers = [power >> cut for power in powers_of(s)]
    shift = rounded_shift(bits_of(powers, bits - cut), stages, s.unnormed_rounding)
    table = pow2_table(s)
    plain = shift.shift.size + shift.incremented + decisions(powers, bits - cut)
    return {
        "shifter": shift.shift.size,
        "incremented": float(shift.incremented),
        "collected": float(shift.collected),
        "collapsed": min(plain, _collapsed(s, stages, unseen)),
        "powers": decisions(powers, bits - cut),
        **(_table(table, bits) if table.uses_m else dict.fromkeys(_table(table, bits), 0.0)),
    }


def _power_of_two(s: SoftermaxSpec, word: int) -> Terms:
    bits, f = s.unnormed.fraction + 1, s.input.fraction
    vanishes = bits + (s.unnormed_rounding != "truncate")
    stages = min(s.max.integer, (vanishes - 1).bit_length())
    # Of a word that is truncated and then rounded once more, what lies below the half unit is never built.
    unseen = max(bits - word - 1, 0)  # as in `softermax.search.activity`
    cut = unseen if s.unnormed_rounding == "truncate" else 0
    return {
        "lane": 1.0,
        "score": s.input.bits + 1.0,
        "difference": float(s.max.integer),
        "shift": float(f + stages),
        "word": float(bits - cut),
        **_shifted(s, stages, cut, unseen),
        "weight": float(word != bits) * word,
        "unseen": float(unseen - cut),
    }


def _power_table(s: SoftermaxSpec) -> Terms:
    bits, f = s.unnormed.fraction + 1, s.input.fraction
    powers = np.array(powers_of(s))
    most = min(bits + 1, 1 << s.max.integer)
    words = np.array([shift_right(powers, k, s.unnormed_rounding) for k in range(most)])
    words = words[words.any(1)]
    stages = (len(words) - 1).bit_length()
    set_bits = words[:, :, None] >> np.arange(bits) & 1
    some, every = set_bits.any(1), set_bits.all(1)
    small = f + stages <= _TABLE_BITS
    chosen = [int(word) for row in words for word in row]
    shifted = _shifted(s, stages, 0, 0)
    return {
        "lane": 1.0,
        "score": s.input.bits + 1.0,
        "difference": float(stages),
        "upper": float(s.max.integer - stages),
        "wires": float(small * len(words)),
        "terms": float(small * every.sum()),
        "picked": float(small * (some & ~every).sum()),
        "columns": float(small) * _columns(chosen, 1 << f, bits),
        **{name: (not small) * value for name, value in shifted.items()},
        "as a table": small * shifted["collapsed"],
    }


def _columns(words: Sequence[int], entries: int, bits: int) -> float:
    """Functions of f alone that bits of a table of f and k are made of."""
    rows = [words[at : at + entries] for at in range(0, len(words), entries)]
    joined = [sum(row[f] << (bits * n) for n, row in enumerate(rows)) for f in range(entries)]
    return decisions(joined, bits * len(rows))


def _reduction(s: SoftermaxSpec, word: int, powsum_bits: int, dropped: int) -> Terms:
    lanes = s.slice_width or 1
    total = word + lanes.bit_length() - 1
    stages = min(s.max.integer, (powsum_bits - 1).bit_length())
    return {
        "word": float(word),
        "lane": 1.0,
        "row": 1.0,
        "row sum": float(powsum_bits),
        "row shifter": shifter((VARIABLE,) * powsum_bits, 0, stages).size,
        "row total": float(total),
        "row dropped": float(max(dropped, 0)),
        **_of_rounding("row", s.powsum_rounding, float(powsum_bits if dropped else 0)),
    }


def reciprocal_terms(spec: AnySpec) -> Terms:
    bits = spec.powsum.bits
    table = _table(reciprocal_table(spec), spec.reciprocal.fraction + 1)
    stages = (bits - 1).bit_length()
    return {
        "row": 1.0,
        "row sum": float(bits),
        "row shifter": shifter((VARIABLE,) * bits, 0, stages).size,
        "row word": float(spec.reciprocal.fraction),
        "row used": float(reciprocal_table(spec).used_bits),
        **{f"row {name}": value for name, value in table.items()},
    }


def _numerators(s: SoftermaxSpec) -> Terms:
    bits, factor, out = s.unnormed.fraction + 1, s.reciprocal.fraction, s.output.bits
    fixed, rounding = s.output_mode == "fixed", s.output_rounding
    drop = s.unnormed.fraction + factor - s.output.fraction - fixed
    joined = not fixed and rounding == "half-up"
    below = {"truncate": 0, "half-up": 0 if joined else min(1, drop), "half-even": drop}[rounding]
    kept = max(bits + factor - drop + below, 1)
    digits = factor // 2
    stages = stages_of(s.powsum.integer)
    shift = Rounded(shifter((), 0, 0), 0, 0)
    if fixed and rounding == "half-even":
        stages = max(stages, below.bit_length()) + 1
        shift = rounded_shift((VARIABLE,) * kept, stages, rounding)
    elif fixed:
        shift = Rounded(shifter((VARIABLE,) * kept, 0, stages), 0, 0)
    numerator = shifter((VARIABLE,) * bits, 0, min(s.max.integer, (bits - 1).bit_length()))
    if not fixed and not below:
        kept = min(kept, out + 1)
    adds = (fixed or not joined) and rounding != "truncate"
    return {
        "lane": 1.0,
        "numerator": float(bits),
        "numerator shifter": numerator.size,
        "digits": float((bits + 1) * digits),
        "top digit": float(bits + 1),
        "added": float((bits + 2) * max(digits - 1, 0)),
        "sum": float(bits + factor),
        "low": float(max(drop - below, 0)),
        "factor": float(factor),
        "kept": float(kept),
        "shifter": shift.shift.size,
        "collected": float(shift.collected if fixed else below),
        "output": float(out),
        "incremented": float(adds * out),
        "row": 1.0,
        "row max": float(s.max.integer),
        "row factor": float(factor),
    }


def shifts_left(s: SoftermaxSpec) -> int:
    """Shifts that leave something of the largest row product."""
    largest = int(golden.row_products(1 << s.reciprocal.fraction, s).max())
    below, found = s.product.fraction - s.output.fraction, 0
    while int(shift_right(largest, below + found, s.output_rounding)):
        found += 1
    return max(found, 1)


def _products(s: SoftermaxSpec) -> Terms:
    f, product, rounding = s.input.fraction, s.product.bits, s.output_rounding
    powers, entries = powers_of(s), 1 << s.input.fraction
    # A power that ends in zeros makes a product that does: half of a table may be wires.
    zeros = [
        max(s.product.fraction - s.reciprocal.fraction - s.unnormed.fraction + (p & -p).bit_length() - 1, 0)
        for p in powers
    ]
    ones = sum(power.bit_count() for power in powers)
    shifts = (shifts_left(s) - 1).bit_length()
    below = s.product.fraction - s.output.fraction
    cut = max(below - 1, 0) if rounding == "half-up" else 0
    varying = [sum(bit >= zero for zero in zeros) for bit in range(cut, product)]
    word = tuple(VARIABLE if count else ZERO for count in varying)
    if rounding == "half-up":
        shift = Rounded(shifter(word, 0, shifts), s.output.bits, 0)
    else:
        stages = (((1 << shifts) - 1) + below).bit_length()
        shift = rounded_shift(word, stages, rounding)
    most = s.max_high - (s.input.low >> f) + s.powsum.integer
    picked = float(sum(max(count - 1, 0) + 0.5 * (0 < count < entries) for count in varying))
    return {
        "lane": 1.0,
        "base": float(most.bit_length()),
        "score": float(s.input.integer),
        "shift": float(f + shifts),
        "picked": picked,
        "picked half-even": (rounding == "half-even") * picked,
        "shifter": shift.shift.size,
        "shifter half-even": (rounding == "half-even") * shift.shift.size,
        "shifter truncate": (rounding == "truncate") * shift.shift.size,
        "collected": float(shift.collected),
        "output": float(s.output.bits),
        "incremented": float((rounding != "truncate") * s.output.bits),
        "row": 1.0,
        "row max": float(s.max.integer),
        "row products": float(sum(product - zero for zero in zeros)),
        "row sums": float(max(ones - entries, 0) * (s.reciprocal.fraction + 1)),
        "row rounding": float((entries - 1) * (s.unnormed.fraction + s.reciprocal.fraction)),
    }


def area_terms(spec: AnySpec, unit: str) -> dict[str, Terms]:
    """The parts of a unit, by kind of part: parts of one kind have the same costs, whatever unit they are in."""
    s = rows_spec(spec)
    bits = s.unnormed.fraction + 1
    if unit == NORMALIZATION:
        assert isinstance(spec, SoftermaxSpec)
        products = s.normalization == "row-products"
        lanes = {PRODUCTS: _products(s)} if products else {NUMERATORS: _numerators(s)}
        return {RECIPROCAL: reciprocal_terms(s), **lanes}
    if unit == UNNORMED and s.normalization == "row-products":
        return {
            "running max": _int_max(s),
            POWER_TABLE: _power_table(s),
            "row reduction": _reduction(s, bits, s.powsum.bits, s.unnormed.fraction - s.powsum.fraction),
            "sum control": {"lane": 1.0, "row": 1.0, "max": s.max.integer, "score": s.input.bits / 1.0},
        }
    word = spec.weight.fraction + 1 if isinstance(spec, DeferredSpec) else bits
    powsum = spec.powsum if isinstance(spec, DeferredSpec) else s.powsum
    powers = _power_of_two(s, word)
    powers["saturated"] = float(isinstance(spec, DeferredSpec) and not spec.weight.integer) * word
    return {
        "int max": _int_max(s),
        WEIGHTED_POWERS if isinstance(spec, DeferredSpec) else POWERS: powers,
        "reduction": _reduction(s, word, powsum.bits, word - 1 - powsum.fraction),
        "control": {"lane": 1.0, "row": 1.0, "max": s.max.integer, "score": s.input.bits / 1.0},
    }
