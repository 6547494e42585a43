"""The units by name, and `create`, which makes one from a spec."""

from __future__ import annotations

from typing import Any

from softermax.rtl.deferred import DeferredTail
from softermax.rtl.names import UNIT_NAMES, UnitName
from softermax.rtl.normalization import Normalization
from softermax.rtl.product_normalization import ProductNormalization
from softermax.rtl.sizes import check_buildable
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unit import Unit
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.unnormed_sum import UnnormedSum
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

__all__ = ["ROW_PRODUCTS", "UNITS", "UnitName", "create", "unit_class"]

UNITS: dict[str, type[Unit]] = {
    unit.name: unit for unit in (Softermax, UnnormedSoftmax, Normalization, DeferredTail)
}

ROW_PRODUCTS: dict[str, type[Unit]] = UNITS | {
    unit.name: unit for unit in (UnnormedSum, ProductNormalization)
}
"""Those of a spec with row products (A10)."""


def unit_class(spec: AnySpec, unit: str) -> Any:
    """What is made of a spec under a unit's name."""
    row_products = isinstance(spec, SoftermaxSpec) and spec.normalization == "row-products"
    return (ROW_PRODUCTS if row_products else UNITS)[unit]


def create(spec: AnySpec, unit: UnitName, **parameters: int) -> Any:
    """A unit of a spec, as a component. A `DeferredSpec` makes the unit ``deferred``, and no other spec does.

    ``top`` takes ``rows`` (open at a time) and ``depth`` (slices that a row may have), ``unnormed-softmax``
    takes ``rows``, ``normalization`` takes ``lanes`` (the slice width unless given) and ``rows``,
    ``deferred`` (the attention tail of A8) takes ``columns`` of V, 64 unless given, and ``accumulator_bits``.
    """
    if unit not in UNITS:
        raise ValueError(f"unit = {unit!r}: must be one of {', '.join(UNIT_NAMES)}")
    if isinstance(spec, DeferredSpec):
        if unit != DeferredTail.name:
            raise ValueError(
                f"unit = {unit!r}: a spec with deferred normalisation makes the unit deferred; "
                f"{unit} is made of its scores' spec, without :deferred"
            )
        check_buildable(spec.scores)
    else:
        if unit == DeferredTail.name:
            raise ValueError(
                f"unit = {unit!r}: must have a spec with deferred normalisation, as paper:deferred or "
                "DeferredSpec(scores=spec)"
            )
        check_buildable(spec)
    made = unit_class(spec, unit)
    unknown = sorted(set(parameters) - set(made.options))
    if unknown:
        name = unknown[0]
        raise ValueError(f"{name} = {parameters[name]}: {unit} takes {' and '.join(made.options)}")
    return made(spec, **parameters)
