"""What a search may choose: every field of a spec as a declared dimension.

A point has a value per dimension. Words are drawn by their integer and fraction bits; a word that must not be shorter than
another is drawn by what it has more (``max_extra``, ``product_extra``), the rest is left to the spec's own validation: what it
refuses is no point of the space. Not drawn, for it changes nothing:

- fraction bits of ``max``, which is an integer in every body; integer bits of ``unnormed``, ``reciprocal`` and ``product``, whose
  values lie below two: one;
- a deferred spec's PowSum fraction, which is its weight's; of its scores PowSum, reciprocal, output and product, which it does not use.

``slice_width`` is what the hardware takes per cycle, so it is the searcher's to give; with several widths it is drawn like the rest.
``None``, the whole row, has no hardware and is not in the space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from softermax.fixedpoint import QFormat
from softermax.spec import CHOICES, AnySpec, DeferredSpec, SoftermaxSpec

Value: TypeAlias = int | str
Point: TypeAlias = dict[str, Value]
Kind: TypeAlias = Literal["rows", "deferred"]
KINDS: tuple[Kind, ...] = ("rows", "deferred")


@dataclass(frozen=True)
class Dimension:
    """One choice of a point."""

    name: str
    values: tuple[Value, ...]
    meaning: str

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers, of which near ones do nearly the same."""
        return isinstance(self.values[0], int)


def _bits(name: str, low: int, high: int, meaning: str) -> Dimension:
    return Dimension(name, tuple(range(low, high + 1)), meaning)


def _choice(name: str, meaning: str) -> Dimension:
    return Dimension(name, CHOICES[name], meaning)


SCORES = (
    _bits("input_integer", 4, 8, "integer bits of the input word (A1): its range"),
    _bits("input_fraction", 0, 4, "its fraction bits: how fine scores are told apart"),
    _bits("max_extra", 0, 1, "integer bits that the max (A2) has more than the input"),
    _bits("unnormed_fraction", 5, 16, "fraction bits of 2^(x - max) (A3)"),
    Dimension("pow2_segments", (1, 2, 4, 8, 16), "pieces of the table of 2^x"),
    _choice("input_rounding", "A1, where scores are made: no part of the units"),
    _choice("max_rounding", "A2"),
    _choice("unnormed_rounding", "A3"),
    _choice("base", "A9: `fold` scales scores by log2(e) where they are made"),
)
"""What both kinds of spec have."""

ROWS = (
    _bits(
        "powsum_integer",
        4,
        16,
        "integer bits of PowSum (A4): rows that are longer than 2 to this power may saturate",
    ),
    _bits("powsum_fraction", 1, 10, "its fraction bits"),
    _bits("reciprocal_fraction", 4, 12, "fraction bits of the reciprocal (A5)"),
    Dimension("reciprocal_segments", (1, 2, 4, 8, 16, 32), "pieces of the table of 1/x"),
    _bits("output_integer", 0, 1, "integer bits of the output word"),
    _bits("output_fraction", 5, 12, "its fraction bits"),
    _bits("product_extra", 0, 6, "fraction bits that a row product (A10) has more than the output"),
    _choice("powsum_rounding", "A4"),
    _choice("output_rounding", "A5"),
    _choice("output_mode", "A7: `row-scaled` has an exponent per row"),
    _choice("normalization", "`numerator` (A5) or `row-products` (A10)"),
)
"""What a SoftermaxSpec has beside."""

DEFERRED = (
    _bits("weight_integer", 0, 1, "integer bits of the weight that enters P·V (A8)"),
    _bits("weight_fraction", 4, 12, "its fraction bits"),
    _bits("deferred_powsum_integer", 4, 16, "integer bits of the sum of weights"),
    _bits("deferred_reciprocal_fraction", 4, 16, "fraction bits of its reciprocal"),
    Dimension("deferred_reciprocal_segments", (1, 2, 4, 8, 16, 32), "pieces of the table of 1/x"),
)
"""What a DeferredSpec has beside."""

_WORDS = {
    "input": ("input_integer", "input_fraction"),
    "powsum": ("powsum_integer", "powsum_fraction"),
    "output": ("output_integer", "output_fraction"),
    "weight": ("weight_integer", "weight_fraction"),
}
"""Words that are held as a whole."""


@dataclass(frozen=True)
class Space:
    """The points of one kind of spec."""

    dimensions: tuple[Dimension, ...]
    kind: Kind = "rows"

    @classmethod
    def of(
        cls, kind: str = "rows", widths: Sequence[int] = (16,), fixed: Mapping[str, str] | None = None
    ) -> Space:
        """The space of a kind at some widths, with some fields held: ``{"output": "Q(1,7)", "base": "fold"}``."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r}: must be {' or '.join(KINDS)}")
        lanes = Dimension("slice_width", tuple(dict.fromkeys(widths)), "elements per cycle")
        own = ROWS if kind == "rows" else DEFERRED
        held = _held(fixed or {}, [d.name for d in (*SCORES, *own)])
        dimensions = [
            Dimension(d.name, (_typed(d, held[d.name]),), d.meaning) if d.name in held else d
            for d in (*SCORES, *own, lanes)
        ]
        return cls(tuple(dimensions), "rows" if kind == "rows" else "deferred")

    def spec(self, point: Mapping[str, Value]) -> AnySpec:
        """The spec of a point; what its validation refuses raises ValueError."""
        p = dict(point)
        scores = {
            "input": QFormat(_int(p, "input_integer"), _int(p, "input_fraction")),
            "max": QFormat(_int(p, "input_integer") + _int(p, "max_extra"), _int(p, "input_fraction")),
            "unnormed": QFormat(1, _int(p, "unnormed_fraction")),
            **{name: p[name] for name in ("slice_width", "pow2_segments", *_CHOSEN_SCORES)},
        }
        if self.kind == "deferred":
            # The scores' own words that A8 does not use must only be permitted.
            unused = {"powsum": QFormat(10, 1), "normalization": "numerator"}
            fraction = _int(p, "weight_fraction")
            return DeferredSpec(
                SoftermaxSpec(**scores | unused),  # type: ignore[arg-type]
                QFormat(_int(p, "weight_integer"), fraction),
                QFormat(_int(p, "deferred_powsum_integer"), fraction),
                QFormat(1, _int(p, "deferred_reciprocal_fraction")),
                _int(p, "deferred_reciprocal_segments"),
            )
        output = QFormat(_int(p, "output_integer"), _int(p, "output_fraction"))
        return SoftermaxSpec(
            **scores  # type: ignore[arg-type]
            | {
                "powsum": QFormat(_int(p, "powsum_integer"), _int(p, "powsum_fraction")),
                "reciprocal": QFormat(1, _int(p, "reciprocal_fraction")),
                "reciprocal_segments": p["reciprocal_segments"],
                "output": output,
                "product": QFormat(1, output.fraction + _int(p, "product_extra")),
            }
            | {name: p[name] for name in _CHOSEN_ROWS}
        )

    def point(self, spec: AnySpec) -> Point | None:
        """Where a spec lies; None for one outside. Words that a spec does not use are not compared."""
        if isinstance(spec, DeferredSpec) != (self.kind == "deferred"):
            return None
        rows = spec.scores if isinstance(spec, DeferredSpec) else spec
        found: Point = {
            "input_integer": rows.input.integer,
            "input_fraction": rows.input.fraction,
            "max_extra": rows.max.integer - rows.input.integer,
            "unnormed_fraction": rows.unnormed.fraction,
            "slice_width": rows.slice_width or 0,
            "pow2_segments": rows.pow2_segments,
            **{name: getattr(rows, name) for name in _CHOSEN_SCORES},
        }
        if isinstance(spec, DeferredSpec):
            found |= {
                "weight_integer": spec.weight.integer,
                "weight_fraction": spec.weight.fraction,
                "deferred_powsum_integer": spec.powsum.integer,
                "deferred_reciprocal_fraction": spec.reciprocal.fraction,
                "deferred_reciprocal_segments": spec.reciprocal_segments,
            }
        else:
            found |= {
                "powsum_integer": spec.powsum.integer,
                "powsum_fraction": spec.powsum.fraction,
                "reciprocal_fraction": spec.reciprocal.fraction,
                "reciprocal_segments": spec.reciprocal_segments,
                "output_integer": spec.output.integer,
                "output_fraction": spec.output.fraction,
                "product_extra": spec.product.fraction - spec.output.fraction,
                **{name: getattr(spec, name) for name in _CHOSEN_ROWS},
            }
            products = next(d.values for d in self.dimensions if d.name == "product_extra")
            if spec.normalization == "numerator" and found["product_extra"] not in products:
                found["product_extra"] = products[0]  # not used, so any will do
        inside = all(found[d.name] in d.values for d in self.dimensions)
        return {d.name: found[d.name] for d in self.dimensions} if inside else None

    def draw(self, rng: np.random.Generator) -> AnySpec:
        """A spec drawn evenly from the space: refused ones are drawn again."""
        for _ in range(1000):
            try:
                return self.spec({d.name: d.values[rng.integers(len(d.values))] for d in self.dimensions})
            except ValueError:
                continue
        raise ValueError("the space has no spec that its own validation permits: hold fewer fields")

    def described(self) -> list[dict[str, str]]:
        """A row per dimension, for tables."""
        return [
            {"dimension": d.name, "values": _shown(d.values), "what it is": d.meaning}
            for d in self.dimensions
        ]


_CHOSEN_SCORES = tuple(d.name for d in SCORES if d.name in CHOICES)
_CHOSEN_ROWS = tuple(d.name for d in ROWS if d.name in CHOICES)


def _int(point: Mapping[str, Value], name: str) -> int:
    return int(point[name])


def _shown(values: Sequence[Value]) -> str:
    if len(values) > 3 and isinstance(values[0], int) and values == tuple(range(values[0], values[-1] + 1)):  # type: ignore[operator]
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))


def _held(fixed: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Values by dimension; a word gives those of its bits."""
    known = list(names)
    held: dict[str, str] = {}
    for name, value in fixed.items():
        parts = _WORDS.get(name, (name,))
        if not set(parts) <= set(known):
            words = [word for word, bits in _WORDS.items() if set(bits) <= set(known)]
            raise ValueError(f"fixed field {name!r}: must be one of {', '.join((*words, *known))}")
        if len(parts) == 1:
            held[name] = value
        else:
            word = QFormat.parse(value)
            held |= {parts[0]: str(word.integer), parts[1]: str(word.fraction)}
    return held


def _typed(dimension: Dimension, value: str) -> Value:
    if not dimension.ordered:
        if value not in dimension.values:
            raise ValueError(f"{dimension.name} = {value}: must be {' or '.join(map(str, dimension.values))}")
        return value
    if not value.isdecimal():
        raise ValueError(f"{dimension.name} = {value}: must be a number")
    return int(value)
