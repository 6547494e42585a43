"""SoftermaxSpec: every word, table and rounding choice of one Softermax, and its presets.

One object describes the algorithm; every body of it (golden model, PyTorch operator, native
kernel, RTL) is made from that object. ``A1`` to ``A10`` refer to ``docs/arithmetic.md``.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from softermax.files import write_text
from softermax.fixedpoint import QFormat, Rounding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from softermax.golden import DeferredOutput, Output
    from softermax.rtl.units import UnitName

T = TypeVar("T")

OutputMode: TypeAlias = Literal["fixed", "row-scaled"]
Base: TypeAlias = Literal["paper", "fold"]
Normalization: TypeAlias = Literal["numerator", "row-products"]

LOG2E = 1.4426950408889634

MAX_SEGMENTS = 4096
MAX_SLICE = 65536
MAX_PRODUCT_BITS = 4
"""A10 makes a product per value of a score's fraction: past 16 of them a multiplier per lane is the smaller one."""

_SIGNED = {
    "input": True,
    "max": True,
    "unnormed": False,
    "powsum": False,
    "reciprocal": False,
    "output": False,
    "product": False,
}
_ROUND_DOWN_OR_NEAREST = ("truncate", "half-up", "half-even")
CHOICES: dict[str, tuple[str, ...]] = {
    "input_rounding": _ROUND_DOWN_OR_NEAREST,
    "max_rounding": ("ceil", "truncate"),
    "unnormed_rounding": _ROUND_DOWN_OR_NEAREST,
    "powsum_rounding": _ROUND_DOWN_OR_NEAREST,
    "output_rounding": _ROUND_DOWN_OR_NEAREST,
    "output_mode": ("fixed", "row-scaled"),
    "base": ("paper", "fold"),
    "normalization": ("numerator", "row-products"),
}


def _refuse(name: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{name} = {value}: {allowed}")


def _word(name: str, value: object, signed: bool) -> QFormat:
    """A field's Q format, from a QFormat, ``"Q(6,2)"`` or ``(6, 2)``; the field sets the sign."""
    try:
        if isinstance(value, QFormat):
            return QFormat(value.integer, value.fraction, signed)
        if isinstance(value, str):
            return QFormat.parse(value, signed)
        if isinstance(value, (tuple, list)) and len(value) == 2:
            return QFormat(value[0], value[1], signed)
    except ValueError as error:
        raise _refuse(name, value, str(error)) from None
    raise _refuse(name, value, "a word is a QFormat, a string like 'Q(6,2)' or a pair of integers")


def _require(name: str, word: QFormat, bits: str, least: int, why: str) -> None:
    have: int = getattr(word, bits)
    if have < least:
        raise _refuse(name, word, f"needs at least {least} {bits} bits ({why})")


def _require_segments(name: str, segments: object) -> None:
    if (
        isinstance(segments, bool)
        or not isinstance(segments, int)
        or not 1 <= segments <= MAX_SEGMENTS
        or segments & (segments - 1)
    ):
        raise _refuse(name, segments, f"must be a power of two from 1 to {MAX_SEGMENTS}")


Self = TypeVar("Self", bound="_Stored")


class _Stored:
    """What both specs have: their fields as a dictionary, as JSON and as a file, and changes that are checked."""

    def replace(self: Self, **changes: Any) -> Self:
        """This spec with some fields changed, checked anew."""
        self._require_known(changes)
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self._fields()}
        return {name: v.to_dict() if isinstance(v, _Stored) else str(v) if isinstance(v, QFormat) else v
                for name, v in values.items()}  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def save(self, path: str | os.PathLike[str]) -> None:
        write_text(path, self.to_json() + "\n")

    @classmethod
    def from_dict(cls: type[Self], values: Mapping[str, Any]) -> Self:
        cls._require_known(values)
        return cls(**values)

    @classmethod
    def from_json(cls: type[Self], text: str) -> Self:
        return cls.from_dict(_parsed(text))

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        return _loaded(path, cls.from_dict)

    @classmethod
    def _fields(cls) -> list[str]:
        return [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def _require_known(cls, values: Mapping[str, Any]) -> None:
        unknown = sorted(set(values) - set(cls._fields()))
        if unknown:
            raise _refuse(
                unknown[0], values[unknown[0]], f"no such field; fields are {', '.join(cls._fields())}"
            )


def _parsed(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a spec: JSON is broken at line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("not a spec: JSON is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"not a spec: expected a JSON object, got {type(values).__name__}")
    return values


def _loaded(path: str | os.PathLike[str], make: Callable[[dict[str, Any]], T]) -> T:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(path)}: not a spec: not UTF-8 text") from None
    try:
        return make(_parsed(text))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


@dataclass(frozen=True)
class SoftermaxSpec(_Stored):
    """The formats, tables and rounding choices of one Softermax. The defaults are the paper's.

    >>> spec = SoftermaxSpec(slice_width=32)
    >>> spec.compute([2.0, 1.0, 3.0])
    array([0.2890625, 0.140625 , 0.5703125])
    >>> SoftermaxSpec(powsum="Q(10,0)")
    Traceback (most recent call last):
    ...
    ValueError: powsum = Q(10,0): needs at least 1 fraction bits (a sum of 0.5 must not vanish)
    """

    input: QFormat = QFormat(6, 2, signed=True)
    max: QFormat = QFormat(6, 2, signed=True)
    unnormed: QFormat = QFormat(1, 15)
    powsum: QFormat = QFormat(10, 6)
    reciprocal: QFormat = QFormat(1, 7)
    output: QFormat = QFormat(1, 7)
    slice_width: int | None = 16
    """Elements per slice; ``None`` takes the whole row as one slice."""
    pow2_segments: int = 4
    reciprocal_segments: int = 4
    input_rounding: Rounding = "half-even"
    """A1: float score to input word."""
    max_rounding: Rounding = "ceil"
    """A2: score to integer, before the max."""
    unnormed_rounding: Rounding = "truncate"
    """A3: the shift of 2^frac by the integer part."""
    powsum_rounding: Rounding = "half-up"
    """A4: the slice's exact sum to PowSum's fraction. Renormalising a sum always truncates."""
    output_rounding: Rounding = "half-up"
    """A5: numerator times reciprocal to the output word."""
    output_mode: OutputMode = "fixed"
    """``fixed``, or ``row-scaled`` (A7): all bits filled, one exponent per row beside them."""
    base: Base = "paper"
    """``paper``: scores go into 2^x as they are; ``fold`` (A9): scaled by log2(e) first."""
    normalization: Normalization = "numerator"
    """``numerator`` (A5): each unnormed word times the reciprocal; ``row-products`` (A10): a few products per row,
    of which an element takes one and shifts it."""
    product: QFormat = QFormat(1, 9)
    """A10: a power of two times the reciprocal. A5 does not use it."""

    def __post_init__(self) -> None:
        for name, signed in _SIGNED.items():
            object.__setattr__(self, name, _word(name, getattr(self, name), signed))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise _refuse(name, repr(getattr(self, name)), f"must be {' or '.join(allowed)}")
        width = self.slice_width
        if width is not None and (
            isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= MAX_SLICE
        ):
            raise _refuse(
                "slice_width", repr(width), f"must be None (whole row) or an integer from 1 to {MAX_SLICE}"
            )
        _require_segments("pow2_segments", self.pow2_segments)
        _require_segments("reciprocal_segments", self.reciprocal_segments)
        _require("input", self.input, "integer", 2, "a sign and at least one bit of range")
        _require(
            "max",
            self.max,
            "integer",
            self.input.integer,
            "as many as the input, or scores lie above the max",
        )
        _require("unnormed", self.unnormed, "integer", 1, "2^0 = 1 must fit")
        _require("unnormed", self.unnormed, "fraction", 1, "2^-1 must not vanish")
        _require("powsum", self.powsum, "integer", 1, "a sum of 1 must fit")
        _require("powsum", self.powsum, "fraction", 1, "a sum of 0.5 must not vanish")
        if self.powsum.fraction > self.unnormed.fraction:
            raise _refuse(
                "powsum", self.powsum, f"has at most the {self.unnormed.fraction} fraction bits of unnormed"
            )
        _require("reciprocal", self.reciprocal, "integer", 1, "1/1 must fit")
        _require("reciprocal", self.reciprocal, "fraction", 1, "1/2 must not vanish")
        _require("output", self.output, "fraction", 1, "probabilities are fractions")
        if self.normalization == "row-products":
            self._require_row_products()
        elif self.output.fraction >= self._product_bits:
            raise _refuse(
                "output",
                self.output,
                f"has at most {self._product_bits - 1} fraction bits, those of unnormed times reciprocal less one",
            )

    @property
    def _product_bits(self) -> int:
        """Fraction bits of a power of two times a reciprocal."""
        return self.unnormed.fraction + self.reciprocal.fraction

    def _require_row_products(self) -> None:
        if self.input.fraction > MAX_PRODUCT_BITS:
            raise _refuse(
                "input",
                self.input,
                f"has at most {MAX_PRODUCT_BITS} fraction bits with row products: a row has a product per fraction",
            )
        _require("product", self.product, "integer", 1, "1/1 must fit")
        _require("product", self.product, "fraction", self.output.fraction, "as many as the output")
        if self.product.fraction > self._product_bits:
            raise _refuse(
                "product",
                self.product,
                f"has at most {self._product_bits} fraction bits, those of unnormed times reciprocal",
            )

    @property
    def input_scale(self) -> float:
        """What a float score is multiplied by to become an input word (A1, A9)."""
        scale = 2.0**self.input.fraction
        return scale * LOG2E if self.base == "fold" else scale

    @property
    def max_low(self) -> int:
        """The smallest integer max: the neutral element of IntMax, and what a row starts from."""
        return -(1 << (self.max.integer - 1))

    @property
    def max_high(self) -> int:
        return (1 << (self.max.integer - 1)) - 1

    def slices(self, columns: int) -> int:
        """How many slices a row of ``columns`` scores has."""
        return -(-columns // (self.slice_width or max(columns, 1)))

    def compute(self, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
        """Softermax of float scores along the last axis, as probabilities, by the golden model.

        ``mask`` is boolean, True where an element takes part, and broadcasts against ``x``.
        """
        return self.run(x, mask).value

    def run(self, x: ArrayLike, mask: ArrayLike | None = None, trace: bool = False) -> Output:
        """Like `compute`, with the output words and, on request, every intermediate word."""
        from softermax import golden

        return golden.softermax(golden.quantize(x, self, mask), self, mask, trace=trace)

    def create(self, unit: UnitName = "top", **parameters: int) -> Any:
        """The hardware: an Amaranth component made from this spec, see `softermax.rtl.units.create`.

        Needs the extra ``hardware``. A spec that hardware cannot be made of is refused with the reason.
        """
        from softermax.extras import need

        need("amaranth", "hardware")
        from softermax.rtl.units import create

        return create(self, unit, **parameters)


@dataclass(frozen=True)
class DeferredSpec(_Stored):
    """Deferred normalisation (A8): what attention needs beside the scores' own Softermax.

    P·V accumulates unnormed weights; the row is divided once per output element. Input, max,
    unnormed word, 2^x table and slice width come from ``scores``; its reciprocal and output
    are not used.

    >>> DeferredSpec().compute([2.0, 1.0, 3.0]).round(4)
    array([0.2863, 0.1432, 0.5704])
    """

    scores: SoftermaxSpec = field(default_factory=SoftermaxSpec)
    weight: QFormat = QFormat(0, 8)
    """The unnormed value that enters P·V."""
    powsum: QFormat = QFormat(16, 8)
    reciprocal: QFormat = QFormat(1, 15)
    reciprocal_segments: int = 16

    def __post_init__(self) -> None:
        for name in ("weight", "powsum", "reciprocal"):
            object.__setattr__(self, name, _word(name, getattr(self, name), signed=False))
        if isinstance(self.scores, Mapping):
            object.__setattr__(self, "scores", SoftermaxSpec.from_dict(self.scores))
        if not isinstance(self.scores, SoftermaxSpec):
            raise _refuse("scores", repr(self.scores), "must be a SoftermaxSpec")
        _require_segments("reciprocal_segments", self.reciprocal_segments)
        _require("weight", self.weight, "fraction", 1, "2^-1 must not vanish")
        if self.weight.fraction > self.scores.unnormed.fraction:
            raise _refuse(
                "weight",
                self.weight,
                f"has at most the {self.scores.unnormed.fraction} fraction bits of unnormed",
            )
        _require("powsum", self.powsum, "integer", 1, "a sum of 1 must fit")
        if self.powsum.fraction != self.weight.fraction:
            raise _refuse(
                "powsum",
                self.powsum,
                f"adds up weights, so it has their {self.weight.fraction} fraction bits",
            )
        _require("reciprocal", self.reciprocal, "integer", 1, "1/1 must fit")
        _require("reciprocal", self.reciprocal, "fraction", 1, "1/2 must not vanish")

    @property
    def base(self) -> Base:
        return self.scores.base

    def compute(self, x: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
        """What P·V effectively multiplies values by, along the last axis, by the golden model."""
        return self.run(x, mask).value

    def run(self, x: ArrayLike, mask: ArrayLike | None = None, trace: bool = False) -> DeferredOutput:
        """Like `compute`, with the weights' words and, on request, every intermediate word."""
        from softermax import golden

        return golden.deferred(golden.quantize(x, self.scores, mask), self, mask, trace=trace)

    def create(self, unit: UnitName = "deferred", **parameters: int) -> Any:
        """The hardware: an Amaranth component made from this spec, see `softermax.rtl.units.create`."""
        from softermax.extras import need

        need("amaranth", "hardware")
        from softermax.rtl.units import create

        return create(self, unit, **parameters)


AnySpec: TypeAlias = SoftermaxSpec | DeferredSpec

DEFERRED = ":deferred"
"""After a name: the same words with deferred normalisation (A8)."""


_LEAN: dict[str, Any] = {
    "unnormed_rounding": "half-up",
    "normalization": "row-products",
    "product": QFormat(1, 8),
}
"""What the lean presets have instead of the paper's words. How short these can be is measured: ``docs/lean.md``."""

PRESETS: dict[str, SoftermaxSpec] = {
    "paper": SoftermaxSpec(),
    "paper-32": SoftermaxSpec(slice_width=32),
    "row-scaled": SoftermaxSpec(powsum=QFormat(16, 6), output=QFormat(0, 8), output_mode="row-scaled"),
    "whole-row": SoftermaxSpec(powsum=QFormat(16, 6), slice_width=None),
    "lean": SoftermaxSpec(**_LEAN, unnormed=QFormat(1, 8)),
    "lean-row-scaled": SoftermaxSpec(
        **_LEAN,
        unnormed=QFormat(1, 9),
        powsum=QFormat(16, 6),
        output=QFormat(0, 8),
        output_mode="row-scaled",
    ),
}
"""Named specs. ``paper`` is Table I; the longer-row presets widen PowSum, which would saturate
from 1024 equal scores on. The lean ones are ``paper`` and ``row-scaled`` with row products (A10) and short words."""

SPECS: dict[str, AnySpec] = {
    **PRESETS,
    **{name + DEFERRED: DeferredSpec(spec) for name, spec in PRESETS.items()},
}
"""The presets, and each of them with deferred normalisation."""


def get_spec(name: str) -> AnySpec:
    """A spec by its name: a preset, then ``+fold`` for base e (A9), then ``:deferred`` for A8; or a spec's JSON file.

    >>> get_spec("paper+fold").base
    'fold'
    >>> get_spec("paper+fold:deferred").weight
    QFormat(integer=0, fraction=8, signed=False)
    """
    rows = name.removesuffix(DEFERRED)
    if rows.endswith(".json"):
        spec = load_spec(rows)
    else:
        preset, plus, variant = rows.partition("+")
        if preset not in PRESETS or (plus and variant != "fold"):
            raise ValueError(
                f"unknown spec {name!r}: must be one of {', '.join(PRESETS)}, then +fold if wanted, then :deferred if "
                "wanted; or a .json file"
            )
        spec = PRESETS[preset].replace(base="fold") if plus else PRESETS[preset]
    if rows == name:
        return spec
    if isinstance(spec, DeferredSpec):
        raise ValueError(f"unknown spec {name!r}: {rows} is a deferred spec already")
    return DeferredSpec(scores=spec)


def get_rows_spec(name: str, what: str) -> SoftermaxSpec:
    """Like `get_spec`, for ``what`` makes sense only where every probability is normalised."""
    spec = get_spec(name)
    if not isinstance(spec, SoftermaxSpec):
        raise ValueError(f"spec {name!r}: {what} takes a spec without deferred normalisation")
    return spec


def spec_from_dict(values: Mapping[str, Any]) -> AnySpec:
    """The spec that a dictionary of its fields stands for; one with ``scores`` is a `DeferredSpec`."""
    return DeferredSpec.from_dict(values) if "scores" in values else SoftermaxSpec.from_dict(values)


def load_spec(path: str | os.PathLike[str]) -> AnySpec:
    """The spec in a JSON file, of either kind."""
    return _loaded(path, spec_from_dict)
