"""What a spec's units are made of, counted: the terms that `silicon_model` fits costs to.

Bits of registers, adders and comparators, shifters (bits times stages), multipliers (bits times bits) and table entries, by part
of a unit as `softermax.rtl` has them. A term is per lane, or, where its name begins with ``row``, per row of lanes.

What an area is made of is that alone. An energy also depends on how often bits change: `Activity` counts that on a few rows of
recorded attention, the rows that units were measured with, by the golden model's own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray, shift_right
from softermax.golden import DeferredOutput, DeferredTrace, Trace
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

UNNORMED, NORMALIZATION, WEIGHTS = "unnormed", "normalization", "weights"
RECIPROCAL = "reciprocal"
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
    """A piecewise table: its entries, and the multiplier of its slopes."""
    index = min(table.index_bits, table.used_bits)
    slope = max((abs(m).bit_length() for m in table.m_lut), default=0) if table.uses_m else 0
    return {
        "entries": bits * ((1 << index) - 1.0),
        "slope entries": slope * ((1 << index) - 1.0) if table.uses_m else 0.0,
        "slope product": float(slope * table.rest_bits),
        "slope": float(slope > 0) * (bits + 4),
    }


def _of_rounding(prefix: str, rounding: str, bits: float) -> Terms:
    return {f"{prefix} half-{way}": bits * (rounding == f"half-{way}") for way in ("up", "even")}


def _int_max(s: SoftermaxSpec) -> Terms:
    rounds = s.max_rounding == "ceil" and s.input.fraction > 0
    key = s.max.integer + rounds
    return {
        "key": key,
        "fraction": s.input.fraction * rounds,
        "lane": 1.0,
        "row max": s.max.integer,
        "row": 1.0,
    }


def _power_of_two(s: SoftermaxSpec, word: int) -> Terms:
    bits, f = s.unnormed.fraction + 1, s.input.fraction
    stages = min(s.max.integer, _stages(bits))
    terms: Terms = {
        "lane": 1.0,
        "score": s.input.bits + 1.0,
        "difference": float(s.max.integer),
        "shift": float(f + stages),
        "shifter": float(bits * stages),
        **_table(pow2_table(s), bits),
        **_of_rounding("word", s.unnormed_rounding, bits),
        "weight": float(word != bits) * word,
    }
    return terms


def _power_table(s: SoftermaxSpec) -> Terms:
    bits, f = s.unnormed.fraction + 1, s.input.fraction
    powers = pow2_table(s)(np.arange(1 << f))
    most = min(bits + 1, 1 << s.max.integer)
    words = np.array([shift_right(powers, k, s.unnormed_rounding) for k in range(most)])
    words = words[words.any(1)]
    stages = _stages(len(words) - 1)
    set_bits = words[:, :, None] >> np.arange(bits) & 1
    some, every = set_bits.any(1), set_bits.all(1)
    small = f + stages <= _TABLE_BITS
    table = {} if small else _table(pow2_table(s), bits)
    return {
        "lane": 1.0,
        "score": s.input.bits + 1.0,
        "difference": float(stages),
        "upper": float(s.max.integer - stages),
        "wires": float(small * len(words)),
        "terms": float(small * every.sum()),
        "picked": float(small * (some & ~every).sum() * f),
        "shifter": float((not small) * bits * stages),
        **{name: table.get(name, 0.0) for name in _table(pow2_table(s), bits)},
        **_of_rounding("word", s.unnormed_rounding, float(not small) * bits),
    }


def _reduction(s: SoftermaxSpec, word: int, powsum_bits: int, dropped: int) -> Terms:
    lanes = s.slice_width or 1
    total = word + lanes.bit_length() - 1
    return {
        "word": float(word),
        "lane": 1.0,
        "row sum": float(powsum_bits),
        "row shifter": float(powsum_bits * min(s.max.integer, _stages(powsum_bits))),
        "row total": float(total),
        **_of_rounding("row", s.powsum_rounding, float(powsum_bits if dropped else 0)),
    }


def reciprocal_terms(spec: AnySpec) -> Terms:
    bits = spec.powsum.bits
    table = _table(reciprocal_table(spec), spec.reciprocal.fraction)
    return {
        "row": 1.0,
        "row sum": float(bits),
        "row shifter": float(bits * _stages(bits)),
        "row word": float(spec.reciprocal.fraction),
        **{f"row {name}": value for name, value in table.items()},
    }


def _numerators(s: SoftermaxSpec) -> Terms:
    bits, factor, out = s.unnormed.fraction + 1, s.reciprocal.fraction, s.output.bits
    fixed = s.output_mode == "fixed"
    dropped = s.unnormed.fraction + factor - s.output.fraction - fixed
    kept = max(bits + factor - dropped, 1)
    below = dropped if s.output_rounding == "half-even" else min(1, dropped)
    return {
        "lane": 1.0,
        "numerator": float(bits),
        "numerator shifter": float(bits * min(s.max.integer, _stages(bits))),
        "product": float(bits * factor),
        "digits": float(bits * (factor // 2 + 1)),
        "factor": float(factor),
        "kept": float(min(kept, out + 1) if not fixed else kept),
        "below": float(max(below, 0)) * fixed,
        "shifter": float(fixed * (kept + max(below, 0)) * _stages(s.powsum.integer)),
        "output": float(out),
        **_of_rounding("output", s.output_rounding, out),
        "row": 1.0,
        "row max": float(s.max.integer),
    }


def _products(s: SoftermaxSpec) -> Terms:
    f, product = s.input.fraction, s.product.bits
    powers = pow2_table(s)(np.arange(1 << f))
    ones = sum(int(power).bit_count() for power in powers)
    stages = _stages(s.output.fraction + 1)
    below = s.product.fraction - s.output.fraction
    wide = s.output.fraction + 1 + (below if s.output_rounding == "half-even" else min(below, 1))
    base = s.max.integer + (s.output_mode == "fixed") * 1.0
    return {
        "lane": 1.0,
        "base": base,
        "shift": float(f + stages),
        "picked": float(wide * ((1 << f) - 1)),
        "shifter": float(wide * stages),
        "output": float(s.output.bits),
        **_of_rounding("output", s.output_rounding, s.output.bits),
        "row": 1.0,
        "row max": float(s.max.integer),
        "row products": float((1 << f) * product),
        "row sums": float(max(ones - (1 << f), 0) * (s.reciprocal.fraction + 1)),
        "row rounding": float((1 << f) * (s.unnormed.fraction + s.reciprocal.fraction)),
    }


def area_terms(spec: AnySpec, unit: str) -> dict[str, Terms]:
    """The parts of a unit, by kind of part: parts of one kind have the same costs, whatever unit they are in."""
    s = rows_spec(spec)
    bits = s.unnormed.fraction + 1
    if unit == NORMALIZATION:
        assert isinstance(spec, SoftermaxSpec)
        lanes = (
            ("products", _products(s))
            if s.normalization == "row-products"
            else ("numerators", _numerators(s))
        )
        return {RECIPROCAL: reciprocal_terms(s), lanes[0]: lanes[1]}
    if unit == UNNORMED and s.normalization == "row-products":
        return {
            "running max": _int_max(s),
            "power table": _power_table(s),
            "row reduction": _reduction(s, bits, s.powsum.bits, s.unnormed.fraction - s.powsum.fraction),
            "sum control": {"lane": 1.0, "row": 1.0, "max": s.max.integer, "score": s.input.bits / 1.0},
        }
    word = spec.weight.fraction + 1 if isinstance(spec, DeferredSpec) else bits
    powsum = spec.powsum if isinstance(spec, DeferredSpec) else s.powsum
    return {
        "int max": _int_max(s),
        "power of two": _power_of_two(s, word),
        "reduction": _reduction(s, word, powsum.bits, word - 1 - powsum.fraction),
        "control": {"lane": 1.0, "row": 1.0, "max": s.max.integer, "score": s.input.bits / 1.0},
    }


@dataclass(frozen=True)
class Activity:
    """Bits that change from one slice to the next, mean per score, and shares of scores."""

    score: float
    fraction: float
    """Of the score's bits, those of its fraction."""
    unnormed: float
    word: float
    """Unnormed words, or weights."""
    numerator: float
    output: float
    live: float
    """Scores whose output is not zero."""
    groups: float
    """Groups of lanes of which some numerator counts."""


@lru_cache(maxsize=1)
def _scores() -> NDArray[np.float32]:
    with as_file(files("softermax.search").joinpath("scores.npy")) as path:
        return np.asarray(np.load(path, allow_pickle=False), dtype=np.float32)


def activity(spec: AnySpec) -> Activity:
    """Of the units of a spec that work on the rows that netlists were measured with."""
    s, lanes, scores = rows_spec(spec), lanes_of(spec), _scores()
    missing = -scores.shape[1] % lanes
    mask = np.pad(np.ones(scores.shape, np.bool_), ((0, 0), (0, missing)))
    scores = np.pad(scores, ((0, 0), (0, missing)))
    raw = golden.quantize(scores, s, mask).reshape(len(scores), -1, lanes)
    found = spec.run(scores, mask, trace=True)
    score = _changes(raw & ((1 << s.input.bits) - 1))
    fraction = _changes(raw & ((1 << s.input.fraction) - 1))
    if isinstance(found, DeferredOutput):
        assert isinstance(found.trace, DeferredTrace)
        unnormed, word = _changes(found.trace.unnormed), _changes(found.trace.weight)
        return Activity(score, fraction, unnormed, word, 0.0, 0.0, 0.0, 0.0)
    assert isinstance(found.trace, Trace)
    words = found.words.reshape(raw.shape)
    unnormed = _changes(found.trace.unnormed)
    live = float((words != 0).mean())
    if s.normalization == "row-products":
        return Activity(score, fraction, unnormed, unnormed, 0.0, _changes(words), live, live)
    numerator = found.trace.numerator
    # What cannot reach half a unit of the output, whatever the reciprocal, does not move.
    lowest = s.unnormed.fraction - s.output.fraction - (s.output_mode == "fixed") - 1
    counts = np.pad(numerator >> max(lowest, 0) != 0, ((0, 0), (0, 0), (0, -lanes % _GROUP)))
    groups = float(counts.reshape(*counts.shape[:2], -1, _GROUP).any(-1).mean())
    return Activity(score, fraction, unnormed, unnormed, _changes(numerator), _changes(words), live, groups)


def _changes(words: IntArray) -> float:
    return float(np.bitwise_count(words[:, 1:] ^ words[:, :-1]).mean()) if words.shape[1] > 1 else 0.0


def energy_terms(spec: AnySpec, unit: str, active: Activity) -> dict[str, Terms]:
    """The parts of `area_terms` with each term times how often it changes; registers and what is a row's also as they are."""
    return {kind: _active(kind, terms, spec, active) for kind, terms in area_terms(spec, unit).items()}


def _active(kind: str, terms: Terms, spec: AnySpec, active: Activity) -> Terms:
    s = rows_spec(spec)
    bits = s.unnormed.fraction + 1
    of_score, of_word = active.score / s.input.bits, active.unnormed / bits
    always = {name: value for name, value in terms.items() if name == "lane" or name.startswith("row")}
    rest = {name: value for name, value in terms.items() if name not in always}
    if kind in ("int max", "running max"):
        return always | _times(rest, of_score)
    if kind in ("power of two", "power table"):
        clocked = {name: rest.pop(name) for name in ("score", "shift") if name in rest}
        before: Terms = {
            name: rest.pop(name) * of_score for name in ("difference", "upper", "wires") if name in rest
        }
        more = {
            "score changes": active.score,
            "word changes": active.unnormed,
            "shifter, scores": terms["shifter"] * of_score,
            "slope product, scores": terms["slope product"] * of_score,
        }
        return always | clocked | before | _times(rest, of_word) | more
    if kind in ("reduction", "row reduction"):
        lanes = lanes_of(spec)
        more = {"word changes": active.word, "tree changes": active.word * lanes.bit_length()}
        return always | _times(rest, of_word) | more
    if kind == "numerators":
        changes = active.numerator / bits
        before = {
            name: rest.pop(name) * changes for name in ("product", "digits", "numerator", "numerator shifter")
        }
        more = {
            "numerator clock": active.groups * bits,
            "output changes": active.output,
            "product, groups": terms["product"] * active.groups,
            "kept changes": terms["kept"] * changes,
            "shifter changes": terms["shifter"] * changes,
        }
        return always | before | _times(rest, active.groups) | more
    if kind == "products":
        of_output = active.output / s.output.bits
        base = {"base": rest.pop("base") * of_score}
        more = {
            "output changes": active.output,
            "picked changes": terms["picked"] * of_output,
            "shifter changes": terms["shifter"] * of_output,
        }
        return always | base | _times(rest, active.live) | more
    return terms


def _times(terms: Terms, factor: float) -> Terms:
    return {name: value * factor for name, value in terms.items()}
