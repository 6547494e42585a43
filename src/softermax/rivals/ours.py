"""Softermax behind the rivals' interface: every preset, folded to base e, and each with deferred normalisation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from softermax import golden
from softermax.rivals.designs.arrays import Array
from softermax.rivals.designs.interface import About, Needs, Rival
from softermax.spec import DEFERRED, PRESETS, AnySpec, DeferredSpec, SoftermaxSpec, get_spec


def _about(spec: AnySpec) -> About:
    """What hardware of a spec has; with deferred normalisation no row waits for its sum."""
    rows = spec.scores if isinstance(spec, DeferredSpec) else spec
    return About(
        title="Softermax",
        sources=("Stevens et al., Softermax, DAC 2021", "docs/arithmetic.md"),
        confidence="definition",
        needs=Needs(
            second_pass=not isinstance(spec, DeferredSpec),
            divider=False,
            multipliers=1 if isinstance(spec, DeferredSpec) else 2,
            table=rows.pow2_segments,
        ),
        kind="ours",
    )


@dataclass(frozen=True)
class Ours(Rival):
    """A spec, by the golden model. NumPy only: PyTorch has Softermax's own operators."""

    spec: AnySpec = dataclasses.field(kw_only=True)

    @property
    def _rows(self) -> SoftermaxSpec:
        return self.spec.scores if isinstance(self.spec, DeferredSpec) else self.spec

    @property
    def gives(self) -> str:
        if isinstance(self.spec, DeferredSpec):
            return f"u{self.spec.weight.bits} unnormed, divided after P·V"
        exponent = " and an exponent per row" if self.spec.output_mode == "row-scaled" else ""
        return f"u{self.spec.output.bits}{exponent}"

    def calibrated(self, scores: Array, mask: Array | None = None) -> Ours:
        return dataclasses.replace(self, scale=1 / self._rows.input_scale)

    def quantize(self, scores: Array) -> Array:
        return golden.quantize(scores, self._rows)

    def words(self, raw: Array, mask: Array | None = None) -> Array:
        return self._run(raw, mask).words

    def probabilities(self, raw: Array, mask: Array | None = None) -> Array:
        return self._run(raw, mask).value

    def _run(self, raw: Array, mask: Array | None) -> golden.Output | golden.DeferredOutput:
        if isinstance(self.spec, DeferredSpec):
            return golden.deferred(raw, self.spec, mask)
        return golden.softermax(raw, self.spec, mask)


def our_designs() -> list[Ours]:
    """All presets, folded: they are held against the softmax of base e."""
    names = [preset + "+fold" + option for preset in PRESETS for option in ("", DEFERRED)]
    specs = {name: get_spec(name) for name in names}
    return [Ours(name, _about(spec), spec=spec) for name, spec in specs.items()]
