"""The units by name, and `create`, which makes one from a spec."""

from __future__ import annotations

from typing import Any

from softermax.rtl.deferred import DeferredTail
from softermax.rtl.names import UNIT_NAMES, UnitName
from softermax.rtl.normalization import Normalization
from softermax.rtl.sizes import check_buildable
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unit import Unit
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.spec import AnySpec, DeferredSpec

__all__ = ["UNITS", "UnitName", "create"]

UNITS: dict[str, type[Unit]] = {
    unit.name: unit for unit in (Softermax, UnnormedSoftmax, Normalization, DeferredTail)
}


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
        if spec.normalization != "numerator":
            raise ValueError(
                f"normalization = {spec.normalization!r}: the units are made of specs with numerator"
            )
    made = UNITS[unit]
    unknown = sorted(set(parameters) - set(made.options))
    if unknown:
        name = unknown[0]
        raise ValueError(f"{name} = {parameters[name]}: {unit} takes {' and '.join(made.options)}")
    return made(spec, **parameters)
