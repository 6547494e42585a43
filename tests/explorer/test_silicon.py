"""Specs that agree in what a unit is made of have the same unit, so its figures are theirs."""

from typing import Any

import pytest

from softermax.explorer.silicon import DEFERRED_UNITS, UNITS, made_of
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec

PAPER = SoftermaxSpec(slice_width=2)

OTHER = SoftermaxSpec(
    input="Q(5,3)", max="Q(7,1)", unnormed="Q(1,14)", powsum="Q(9,5)", reciprocal="Q(1,8)", output="Q(0,6)",
    slice_width=3, pow2_segments=2, reciprocal_segments=8, input_rounding="truncate", max_rounding="truncate",
    unnormed_rounding="half-up", powsum_rounding="truncate", output_rounding="truncate",
    output_mode="row-scaled", base="fold",
)  # type: ignore[arg-type] # fmt: skip
"""Other than `PAPER` in every field."""


def other_in(spec: AnySpec, fields: set[str]) -> AnySpec:
    """The spec with these fields changed; of deferred normalisation also what its scores' spec has of the same name."""
    new = {name: value for name, value in OTHER.to_dict().items() if name in fields}
    if not isinstance(spec, DeferredSpec):
        return spec.replace(**new)
    unused = {name: getattr(OTHER, name) for name in ("powsum", "reciprocal", "reciprocal_segments")}
    own = {name: new[name] for name in unused if name in new}
    return spec.replace(scores=spec.scores.replace(**new | unused), **own)


@pytest.mark.filterwarnings("ignore:.*created but never used")
@pytest.mark.parametrize("unit", [*UNITS, *DEFERRED_UNITS])
def test_a_unit_depends_on_its_fields_only(unit: str) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    from softermax.rtl.convert import to_rtlil
    from softermax.rtl.deferred import DeferredTail
    from softermax.rtl.normalization import Normalization
    from softermax.rtl.pe.weight_softmax import WeightSoftmax
    from softermax.rtl.unnormed_softmax import UnnormedSoftmax

    def rtlil(spec: AnySpec) -> str:
        component: Any
        if isinstance(spec, DeferredSpec):
            component = WeightSoftmax(spec) if unit == "weights" else DeferredTail(spec, 1)
        else:
            component = UnnormedSoftmax(spec) if unit == "unnormed" else Normalization(spec, 2)
        return to_rtlil(component, "unit")

    spec: AnySpec = DeferredSpec(scores=PAPER) if unit in DEFERRED_UNITS else PAPER
    others = set(OTHER.to_dict()) - set(made_of(spec, unit))
    changed = other_in(spec, others)
    assert changed != spec
    assert rtlil(changed) == rtlil(spec)
    # One of its own fields makes another unit.
    assert rtlil(other_in(spec, {"unnormed"})) != rtlil(spec)
