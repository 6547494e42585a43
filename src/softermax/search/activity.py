"""How often bits of a spec's units change, and what that makes of the terms of an energy.

`Activity` counts changes on a few rows of recorded attention, the rows that units were measured with, by the golden model's
own words. An energy has the terms of its area (`softermax.search.terms`), each times how often it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import DeferredTrace, Output, Trace
from softermax.search.terms import (
    NUMERATORS,
    POWER_TABLE,
    POWERS,
    PRODUCTS,
    REDUCTIONS,
    WEIGHTED_POWERS,
    Terms,
    area_terms,
    lanes_of,
    powers_of,
    rows_spec,
    shifts_left,
    stages_of,
)
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

_GROUP = 4
"""Lanes of a Normalization unit that stand still together."""


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
    stages = min(s.max.integer, stages_of(s.unnormed.fraction + 1))
    unseen = _unseen(spec)
    cut = unseen if s.unnormed_rounding == "truncate" else 0
    distance = (trace.running_max[..., None] - integer) & ((1 << stages) - 1)
    always = Activity(
        _changes(raw & ((1 << s.input.bits) - 1)),
        _changes(fraction),
        _changes(np.array(powers_of(s))[fraction] >> cut),
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
    live = shift < shifts_left(s)
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
        stages = min(s.max.integer, stages_of(bits))
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
