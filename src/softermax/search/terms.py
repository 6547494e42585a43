"""What a spec's units are made of, counted: the terms that `silicon_model` fits costs to.

Bits of registers, adders and comparators, shifters (bits times stages), multipliers (bits times bits) and table entries, by part
of a unit as `softermax.rtl` has them. A term is per lane, or, where its name begins with ``row``, per row of lanes.

What an area is made of is that alone. An energy also depends on how often bits change: `Activity` counts that on a few rows of
recorded attention, the rows that units were measured with, by the golden model's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray, shift_right
from softermax.golden import DeferredTrace, Output, Trace
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
_GROUP = 4
"""Lanes of a Normalization unit that stand still together."""

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


def _stages(most: int) -> int:
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
def _powers(s: SoftermaxSpec) -> tuple[int, ...]:
    """2^f as the table has it, for every f."""
    return tuple(int(power) for power in pow2_table(s)(np.arange(1 << s.input.fraction)))


def _collapsed(s: SoftermaxSpec, stages: int, cut: int) -> float:
    """Words of all f and k as one table, where that is small enough for a mapper to find."""
    if s.input.fraction + stages > _TABLE_BITS + 1:
        return float("inf")
    powers = np.array(_powers(s))
    words = [shift_right(powers, k, s.unnormed_rounding) >> cut for k in range(1 << stages)]
    return decisions([int(word) for row in words for word in row], s.unnormed.fraction + 1 - cut)


def _shifted(s: SoftermaxSpec, stages: int, cut: int, unseen: int) -> Terms:
    """2^f to the right by k: as a shifter, and as what a mapper can make of it at most."""
    bits = s.unnormed.fraction + 1
    powers = [power >> cut for power in _powers(s)]
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
    unseen = max(bits - word - 1, 0)  # as in `_unseen`
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
    powers = np.array(_powers(s))
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
    stages = _stages(s.powsum.integer)
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


def _shifts_left(s: SoftermaxSpec) -> int:
    """Shifts that leave something of the largest row product."""
    largest = int(golden.row_products(1 << s.reciprocal.fraction, s).max())
    below, found = s.product.fraction - s.output.fraction, 0
    while int(shift_right(largest, below + found, s.output_rounding)):
        found += 1
    return max(found, 1)


def _products(s: SoftermaxSpec) -> Terms:
    f, product, rounding = s.input.fraction, s.product.bits, s.output_rounding
    powers, entries = _powers(s), 1 << s.input.fraction
    # A power that ends in zeros makes a product that does: half of a table may be wires.
    zeros = [
        max(s.product.fraction - s.reciprocal.fraction - s.unnormed.fraction + (p & -p).bit_length() - 1, 0)
        for p in powers
    ]
    ones = sum(power.bit_count() for power in powers)
    shifts = (_shifts_left(s) - 1).bit_length()
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


@dataclass(frozen=True)
class Activity:
    """Bits that change from one slice to the next, mean per score, and shares of scores. Where registers stand still, so does
    what hangs on them."""

    score: float
    fraction: float
    """Of the score's bits, those of its fraction."""
    power: float
    """2^f, before it is shifted."""
    distance: float
    """What it is shifted by."""
    unnormed: float
    word: float
    """Unnormed words, or weights."""
    numerator: float = 0.0
    """With row products: the products that elements take."""
    product: float = 0.0
    """Numerators times the reciprocal; with row products: what a product is shifted by."""
    output: float = 0.0
    live: float = 0.0
    """Scores that move on: of which some output bit is not zero, or a neighbour's."""


@lru_cache(maxsize=1)
def _scores() -> NDArray[np.float32]:
    with as_file(files("softermax.search").joinpath("scores.npy")) as path:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)


def _unseen(spec: AnySpec) -> int:
    """Bits of an unnormed word that no weight depends on but by a carry."""
    if not isinstance(spec, DeferredSpec):
        return 0
    return max(spec.scores.unnormed.fraction - spec.weight.fraction - 1, 0)


def activity(spec: AnySpec) -> Activity:
    """Of the units of a spec that work on the rows that netlists were measured with."""
    s, lanes, scores = rows_spec(spec), lanes_of(spec), _scores()
    missing = -scores.shape[1] % lanes
    mask = np.pad(np.ones(scores.shape, np.bool_), ((0, 0), (0, missing)))
    scores = np.pad(scores, ((0, 0), (0, missing)))
    raw = golden.quantize(scores, s, mask).reshape(len(scores), -1, lanes)
    found = spec.run(scores, mask, trace=True)
    trace = found.trace
    assert trace is not None
    fraction = raw & ((1 << s.input.fraction) - 1)
    integer = raw >> s.input.fraction
    stages = min(s.max.integer, _stages(s.unnormed.fraction + 1))
    unseen = _unseen(spec)
    cut = unseen if s.unnormed_rounding == "truncate" else 0
    distance = (trace.running_max[..., None] - integer) & ((1 << stages) - 1)
    always = Activity(
        _changes(raw & ((1 << s.input.bits) - 1)),
        _changes(fraction),
        _changes(np.array(_powers(s))[fraction] >> cut),
        _changes(distance),
        _changes(trace.unnormed >> unseen),
        _changes(trace.weight if isinstance(trace, DeferredTrace) else trace.unnormed),
    )
    if not isinstance(found, Output):
        return always
    assert isinstance(trace, Trace)
    words = found.words.reshape(raw.shape)
    if s.normalization == "row-products":
        return replace(always, **_of_products(s, trace, integer, fraction, words))
    return replace(always, **_of_numerators(s, trace, words))


def _of_products(
    s: SoftermaxSpec, trace: Trace, integer: IntArray, fraction: IntArray, words: IntArray
) -> dict[str, float]:
    base = trace.running_max[:, -1]
    if s.output_mode == "fixed":
        base = base + trace.leading_one - s.powsum.fraction
    shift = base[:, None, None] - integer
    live = shift < _shifts_left(s)
    taken = _held(fraction, live)
    rows = np.arange(len(words))[:, None, None]
    return {
        "numerator": _changes(trace.products[rows, taken]),
        "product": _changes(_held(shift, live)),
        "output": _changes(words),
        "live": float(live.mean()),
    }


def _of_numerators(s: SoftermaxSpec, trace: Trace, words: IntArray) -> dict[str, float]:
    numerator, lanes = trace.numerator, words.shape[-1]
    # What cannot reach half a unit of the output, whatever the reciprocal, does not move, nor does its group.
    fixed, rounds = s.output_mode == "fixed", s.output_rounding != "truncate"
    lowest = s.unnormed.fraction - s.output.fraction - fixed - rounds
    counts = np.pad(numerator >> max(lowest, 0) != 0, ((0, 0), (0, 0), (0, -lanes % _GROUP)))
    groups = counts.reshape(*counts.shape[:2], -1, _GROUP).any(-1)
    moves = np.repeat(groups, _GROUP, axis=-1)[..., :lanes]
    held = _held(numerator, moves)
    return {
        "numerator": _changes(held),
        "product": _changes(held * trace.reciprocal[:, None, None]),
        "output": _changes(words),
        "live": float(moves.mean()),
    }


def _held(words: IntArray, moves: NDArray[np.bool_]) -> IntArray:
    """What registers hold that take a word only where it moves."""
    found = np.where(moves, words, 0)
    for at in range(1, words.shape[1]):
        found[:, at] = np.where(moves[:, at], words[:, at], found[:, at - 1])
    return found


def _changes(words: IntArray) -> float:
    return float(np.bitwise_count(words[:, 1:] ^ words[:, :-1]).mean()) if words.shape[1] > 1 else 0.0


def energy_terms(spec: AnySpec, unit: str, active: Activity) -> dict[str, Terms]:
    """The parts of `area_terms` with each term times how often it changes; registers and what is a row's also as they are."""
    return {kind: _active(kind, terms, spec, active) for kind, terms in area_terms(spec, unit).items()}


def _active(kind: str, terms: Terms, spec: AnySpec, active: Activity) -> Terms:
    s = rows_spec(spec)
    bits = s.unnormed.fraction + 1
    of_score = active.score / s.input.bits
    always = {name: value for name, value in terms.items() if name == "lane" or name.startswith("row")}
    if kind in ("int max", "running max"):
        return always | _rated(terms, {"": of_score}, _but(terms, always)) | {"changes": active.score}
    if kind in (POWERS, WEIGHTED_POWERS, POWER_TABLE):
        stages = min(s.max.integer, _stages(bits))
        unseen = _unseen(spec)
        cut = unseen if s.unnormed_rounding == "truncate" else 0
        rates = {
            "by power": active.power / (bits - cut),
            "by distance": active.distance / max(stages, 1),
            "by word": active.unnormed / (bits - unseen),
        }
        logic = _but(terms, (*always, "score", "shift", "difference", "upper", "wires"))
        return (
            always
            | {name: terms[name] for name in ("score", "shift") if name in terms}
            | {"score changes": active.score, "distance changes": active.distance + active.fraction}
            | {"word changes": active.unnormed}
            | _rated(terms, {"": of_score}, ("difference", "upper", "wires"))
            | _rated(terms, rates, logic)
        )
    if kind in REDUCTIONS:
        more = {"word changes": active.word, "tree changes": active.word * lanes_of(spec).bit_length()}
        return always | _rated(terms, {"": active.word / terms["word"]}, _but(terms, always)) | more
    if kind == NUMERATORS:
        width = bits + s.reciprocal.fraction
        moving = {"by numerator": active.numerator / bits, "by product": active.product / width}
        before = ("numerator", "numerator shifter")
        late = ("output", "incremented", "collected")
        return (
            always
            | {
                "clock": active.live * (bits + terms["kept"]),
                "output changes": active.output,
                "live": active.live,
            }
            | {"numerator changes": active.numerator, "product changes": active.product}
            | _rated(terms, {"by word": active.unnormed / bits, "": active.numerator / bits}, before)
            | _rated(terms, {"": active.output / s.output.bits}, late)
            | _rated(terms, moving, _but(terms, (*always, *before, *late)))
        )
    if kind == PRODUCTS:
        before = ("base", "score")
        rates = {
            "by product": active.numerator / s.product.bits,
            "by shift": active.product / max(terms["shift"] - s.input.fraction, 1.0),
            "by output": active.output / s.output.bits,
        }
        return (
            always
            | {"clock": active.live * terms["shift"], "live": active.live, "score changes": active.score}
            | {
                "product changes": active.numerator,
                "shift changes": active.product,
                "output changes": active.output,
            }
            | _rated(terms, {"": of_score}, before)
            | _rated(terms, rates, _but(terms, (*always, *before, "shift")))
        )
    return terms


def _but(terms: Terms, names: Iterable[str]) -> list[str]:
    return [name for name in terms if name not in set(names)]


def _rated(terms: Terms, rates: Mapping[str, float], names: Iterable[str]) -> Terms:
    """Terms times each of several rates."""
    return {
        f"{name} {how}".strip(): terms[name] * rate
        for name in names
        if name in terms
        for how, rate in rates.items()
    }
