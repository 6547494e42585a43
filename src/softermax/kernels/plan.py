"""What the native core takes of a spec: tables and numbers, made from the golden model's own."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from softermax import golden
from softermax.fixedpoint import saturate, shift_right
from softermax.kernels.core import native
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, reciprocal_table

STEPS = 64
"""Raw steps below 4m + 3 within which an unnormed word of 16 bits is not zero."""

ROUNDINGS = {"half-even": 0, "half-up": 1, "truncate": 2}
MAX_TABLE_BITS = 16


@lru_cache(maxsize=256)
def refusal(spec: SoftermaxSpec) -> str | None:
    """Why the native core does not take a spec, or None where it does."""
    checks = [
        (
            spec.input.integer == 6 and spec.input.fraction == 2,
            f"input is {spec.input}; the core takes Q(6,2)",
        ),
        (spec.max.integer == 6, f"max is {spec.max}; the core takes 6 integer bits"),
        (spec.unnormed.integer == 1, f"unnormed is {spec.unnormed}; the core takes 1 integer bit"),
        (spec.unnormed.fraction <= 15, f"unnormed is {spec.unnormed}; the core takes up to 15 fraction bits"),
        (
            spec.unnormed_rounding == "truncate",
            f"unnormed_rounding is {spec.unnormed_rounding}; the core truncates",
        ),
        (
            spec.powsum_rounding != "half-even",
            "powsum_rounding is half-even; the core rounds up or truncates",
        ),
        (
            spec.output_rounding != "half-even",
            "output_rounding is half-even; the core rounds up or truncates",
        ),
        (
            spec.reciprocal.fraction <= 15,
            f"reciprocal is {spec.reciprocal}; the core takes up to 15 fraction bits",
        ),
        (
            reciprocal_table(spec).used_bits <= MAX_TABLE_BITS,
            f"reciprocal_segments = {spec.reciprocal_segments} makes too long a table",
        ),
        (spec.output.bits <= 8, f"output is {spec.output}; the core takes up to 8 bits"),
    ]
    return next((reason for holds, reason in checks if not holds), None)


def supports(spec: SoftermaxSpec) -> bool:
    """Whether the native core computes this spec; else PyTorch does."""
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
    shift = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
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
    u = unnormed_steps(spec.scores)
    w = saturate(shift_right(u, spec.scores.unnormed.fraction - spec.weight.fraction, "half-up"), spec.weight)
    return {
        "weight": [int(one) for one in w],
        "powsum_bits": spec.powsum.bits,
        "powsum_high": spec.powsum.high,
        "reciprocal": whole_table(table),
        "reciprocal_bits": table.used_bits,
        "reciprocal_fraction": spec.reciprocal.fraction,
    }


@lru_cache(maxsize=256)
def _native_spec(spec: SoftermaxSpec) -> Any:
    reason = refusal(spec)
    if reason is not None:
        raise ValueError(f"the native core does not take this spec: {reason}")
    return native.Spec(**native_arguments(spec))


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


@lru_cache(maxsize=64)
def native_deferred(spec: DeferredSpec) -> Any:
    return native.Deferred(**deferred_arguments(spec))


def deferred_refusal(spec: DeferredSpec) -> str | None:
    """Why the native core does not take deferred normalisation with this spec, or None where it does."""
    width = spec.scores.slice_width
    checks = [
        (spec.weight.bits <= 8, f"weight is {spec.weight}; the core takes up to 8 bits"),
        (width is None or width % 4 == 0, f"slice_width = {width}; the core takes multiples of 4"),
        (
            spec.reciprocal.fraction <= 15,
            f"reciprocal is {spec.reciprocal}; the core takes up to 15 fraction bits",
        ),
        (
            reciprocal_table(spec).used_bits <= MAX_TABLE_BITS,
            f"reciprocal_segments = {spec.reciprocal_segments} makes too long a table",
        ),
    ]
    return refusal(spec.scores) or next((reason for holds, reason in checks if not holds), None)
