"""What the native core takes of a spec: tables and numbers, made from the golden model's own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from softermax import golden
from softermax.kernels.core import native
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

STEPS = 64
"""Raw steps below 4m + 3 within which a truncated unnormed word of 16 bits, or a rounded one of 15, is not zero."""

ROUNDINGS = {"half-even": 0, "half-up": 1, "truncate": 2}
MAX_TABLE_BITS = 16
MAX_HEAD = 256
MAX_KEYS = 65536
"""Keys whose products with 8-bit weights surely fit the core's accumulators of 32 bits."""
MAX_FACTOR = 256.0
"""Beyond it an integer score could leave the 32-bit range before it is saturated."""

Checks = list[tuple[bool, str]]


@lru_cache(maxsize=256)
def refusal(spec: AnySpec) -> str | None:
    """Why the native core does not take a spec, or None where it does.

    With a `SoftermaxSpec` it computes rows and attention, with a `DeferredSpec` attention only.
    """
    if isinstance(spec, DeferredSpec):
        checks = _score_checks(spec.scores) + _deferred_checks(spec)
    else:
        checks = _score_checks(spec) + _normalization_checks(spec)
    return next((reason for holds, reason in checks if not holds), None)


def attention_refusal(spec: AnySpec, keys: int, size: int, scale: float) -> str | None:
    """Why the native core does not compute attention over ``keys`` keys with heads of ``size``, or None where it does."""
    checks = [
        (size <= MAX_HEAD, f"a head is {size} wide; the core takes up to {MAX_HEAD}"),
        (keys <= MAX_KEYS, f"there are {keys} keys; the core takes up to {MAX_KEYS}"),
        (
            abs(score_factor(spec, scale)) <= MAX_FACTOR,
            f"scale = {scale} makes an integer score more than {MAX_FACTOR:g} raw units",
        ),
    ]
    return refusal(spec) or next((reason for holds, reason in checks if not holds), None)


def score_factor(spec: AnySpec, scale: float) -> float:
    """What an integer score is multiplied by to be an input word, rounded once to single precision."""
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    return float(np.float32(scale * scores.input_scale))


def _score_checks(spec: SoftermaxSpec) -> Checks:
    return [
        (
            spec.input.integer == 6 and spec.input.fraction == 2,
            f"input is {spec.input}; the core takes Q(6,2)",
        ),
        (spec.max.integer == 6, f"max is {spec.max}; the core takes 6 integer bits"),
        (spec.unnormed.integer == 1, f"unnormed is {spec.unnormed}; the core takes 1 integer bit"),
        (spec.unnormed.fraction <= 15, f"unnormed is {spec.unnormed}; the core takes up to 15 fraction bits"),
        (
            spec.unnormed_rounding == "truncate" or spec.unnormed.fraction <= 14,
            f"unnormed_rounding is {spec.unnormed_rounding}; with {spec.unnormed} the core truncates",
        ),
    ]


def _normalization_checks(spec: SoftermaxSpec) -> Checks:
    return [
        (
            spec.normalization == "row-products" or spec.unnormed_rounding == "truncate",
            f"unnormed_rounding is {spec.unnormed_rounding}; the core truncates what numerators are made of",
        ),
        (
            spec.powsum_rounding != "half-even",
            "powsum_rounding is half-even; the core rounds up or truncates",
        ),
        (
            spec.output_rounding != "half-even",
            "output_rounding is half-even; the core rounds up or truncates",
        ),
        *_reciprocal_checks(spec),
        (spec.output.bits <= 8, f"output is {spec.output}; the core takes up to 8 bits"),
    ]


def _deferred_checks(spec: DeferredSpec) -> Checks:
    width = spec.scores.slice_width
    return [
        (spec.weight.bits <= 8, f"weight is {spec.weight}; the core takes up to 8 bits"),
        (width is None or width % 4 == 0, f"slice_width = {width}; the core takes multiples of 4"),
        *_reciprocal_checks(spec),
    ]


def _reciprocal_checks(spec: AnySpec) -> Checks:
    return [
        (
            spec.reciprocal.fraction <= 15,
            f"reciprocal is {spec.reciprocal}; the core takes up to 15 fraction bits",
        ),
        (
            reciprocal_table(spec).used_bits <= MAX_TABLE_BITS,
            f"reciprocal_segments = {spec.reciprocal_segments} makes too long a table",
        ),
    ]


def supports(spec: AnySpec) -> bool:
    """Whether the native core computes this spec; else PyTorch or the golden model does."""
    return refusal(spec) is None


def unnormed_steps(spec: SoftermaxSpec) -> np.ndarray[Any, np.dtype[np.int64]]:
    """u by raw steps below 4m + 3, the highest that a score can lie (A3)."""
    return golden.power_of_two(3 - np.arange(STEPS), 0, spec)


def whole_table(table: PiecewiseTable) -> list[int]:
    """A table evaluated for every argument that makes a difference."""
    used = np.arange(1 << table.used_bits, dtype=np.int64)
    return [int(v) for v in table(used << (table.argument_bits - table.used_bits))]


def native_arguments(spec: SoftermaxSpec) -> dict[str, Any]:
    """What the C ABI's smx_spec holds, in its order."""
    table = reciprocal_table(spec)
    sum_shift = spec.unnormed.fraction - spec.powsum.fraction
    row_scaled = spec.output_mode == "row-scaled"
    made_of = spec.unnormed.fraction + spec.reciprocal.fraction
    row_products = spec.normalization == "row-products"
    shift = (spec.product.fraction if row_products else made_of) - spec.output.fraction
    return {
        "unnormed": [int(u) for u in unnormed_steps(spec)],
        "reciprocal": whole_table(table),
        "reciprocal_bits": table.used_bits,
        "max_ceil": spec.max_rounding == "ceil",
        "slice_width": spec.slice_width or 0,
        "sum_shift": sum_shift,
        "sum_bias": (1 << sum_shift) >> 1 if spec.powsum_rounding == "half-up" else 0,
        "powsum_bits": spec.powsum.bits,
        "powsum_fraction": spec.powsum.fraction,
        "powsum_high": spec.powsum.high,
        "row_products": row_products,
        "powers": [int(p) for p in pow2_table(spec)(np.arange(4))],
        "product_shift": made_of - spec.product.fraction if row_products else 0,
        "product_high": spec.product.high,
        "output_shift": shift if row_scaled else shift - spec.powsum.fraction,
        "row_scaled": row_scaled,
        "output_half_up": spec.output_rounding == "half-up",
        "output_high": spec.output.high,
        "output_fraction": spec.output.fraction,
        "input_scale": float(np.float32(spec.input_scale)),
        "input_rounding": ROUNDINGS[spec.input_rounding],
    }


def deferred_arguments(spec: DeferredSpec) -> dict[str, Any]:
    """What the C ABI's smx_attention holds of A8."""
    table = reciprocal_table(spec)
    return {
        "weight": [int(w) for w in golden.weights(unnormed_steps(spec.scores), spec)],
        "powsum_bits": spec.powsum.bits,
        "powsum_high": spec.powsum.high,
        "reciprocal": whole_table(table),
        "reciprocal_bits": table.used_bits,
        "reciprocal_fraction": spec.reciprocal.fraction,
    }


@lru_cache(maxsize=256)
def _native_spec(spec: SoftermaxSpec) -> Any:
    if not isinstance(spec, SoftermaxSpec):
        raise TypeError(
            f"rows are normalised element by element: spec must be a SoftermaxSpec, got {type(spec).__name__}; "
            "attention takes a DeferredSpec too"
        )
    _require(refusal(spec))
    return native.Spec(**native_arguments(spec))


def _require(reason: str | None) -> None:
    if reason is not None:
        raise ValueError(f"the native core does not take this spec: {reason}")


_recent: dict[int, tuple[SoftermaxSpec, Any]] = {}
"""The core's objects by identity: hashing a spec's many fields would take longer than a small batch of rows."""


def native_spec(spec: SoftermaxSpec) -> Any:
    """The core's own object for a spec that it supports."""
    found = _recent.get(id(spec))
    if found is not None and found[0] is spec:
        return found[1]
    made = _native_spec(spec)
    if len(_recent) >= 256:
        _recent.clear()
    _recent[id(spec)] = spec, made
    return made


def native_attention(spec: AnySpec) -> tuple[Any, Any]:
    """The core's own objects for attention: those of the scores and, for a `DeferredSpec`, of A8, else None."""
    return _native_deferred(spec) if isinstance(spec, DeferredSpec) else (native_spec(spec), None)


@lru_cache(maxsize=64)
def _native_deferred(spec: DeferredSpec) -> tuple[Any, Any]:
    _require(refusal(spec))
    # A8 uses nothing of the scores' own normalisation: whatever that is, the core gets one that it takes.
    scores = spec.scores.replace(
        powsum=(10, min(6, spec.scores.unnormed.fraction)), powsum_rounding="half-up", reciprocal=(1, 7),
        reciprocal_segments=4, output=(1, 7), output_rounding="half-up", output_mode="fixed",
        normalization="row-products", product=(1, 7),
    )  # fmt: skip
    return native_spec(scores), native.Deferred(**deferred_arguments(spec))
