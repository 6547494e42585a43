"""The units by name, and `create`, which makes one from a spec."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from softermax.rtl.deferred import DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.softermax_top import Softermax
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.words import check_buildable
from softermax.spec import DeferredSpec, SoftermaxSpec

UnitName: TypeAlias = Literal["top", "unnormed-softmax", "normalization", "deferred"]
UNITS: tuple[str, ...] = get_args(UnitName)
_TAKES = {
    "top": {"rows", "depth"},
    "unnormed-softmax": {"rows"},
    "normalization": {"rows", "lanes"},
    "deferred": {"columns", "accumulator_bits"},
}


def create(spec: SoftermaxSpec | DeferredSpec, unit: UnitName = "top", **parameters: int) -> Any:
    """A unit of a spec, as a component. Only ``deferred`` is made of a `DeferredSpec`, or of the default one.

    ``top`` takes ``rows`` (open at a time) and ``depth`` (slices a row may have), ``unnormed-softmax``
    takes ``rows``, ``normalization`` takes ``lanes`` (the slice width unless given) and ``rows``,
    ``deferred`` (the attention tail of A8) takes ``columns`` of V, 64 unless given, and ``accumulator_bits``.
    """
    if unit not in UNITS:
        raise ValueError(f"unit = {unit!r}: must be one of {', '.join(UNITS)}")
    deferred = spec if isinstance(spec, DeferredSpec) else None
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    if deferred is not None and unit != "deferred":
        raise ValueError(f"unit = {unit!r}: a DeferredSpec makes the unit deferred; give its scores' spec")
    lanes = check_buildable(scores)
    unknown = sorted(set(parameters) - _TAKES[unit])
    if unknown:
        raise ValueError(
            f"{unknown[0]} = {parameters[unknown[0]]}: {unit} takes {' and '.join(sorted(_TAKES[unit]))}"
        )
    if unit == "top":
        return Softermax(scores, **parameters)
    if unit == "unnormed-softmax":
        return UnnormedSoftmax(scores, **parameters)
    if unit == "deferred":
        return DeferredTail(deferred or DeferredSpec(scores=scores), **{"columns": 64, **parameters})
    return Normalization(scores, parameters.get("lanes", lanes), parameters.get("rows", 1))
