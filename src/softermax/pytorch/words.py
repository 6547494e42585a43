"""The words of the arithmetic as PyTorch tensors, without gradients.

Rows lie along the last axis, cut into slices: elements have shape (..., slices, lanes), slice words
(..., slices), row words (...). Elements are carried as floats that hold integers wherever the
spec's products fit a float's mantissa, because floats vectorise; else, like slice and row words, as 64-bit
integers. A masked lane holds a score so low that nothing of it remains.

Everything is computed with `Primitives`. ONNX has others, in `softermax.pytorch.onnx`, and the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from softermax import golden
from softermax.fixedpoint import Rounding
from softermax.pytorch.inputs import checked_finite
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

LIMB = 32
_SINGLE = 24
"""Bits of the integers that a float32 holds, all of them."""


class Primitives:
    """What PyTorch has and other runtimes may not: shifts, a float's own bits, a running maximum."""

    wide = torch.int64
    """Carries elements whose products a float32 does not hold."""
    row = torch.int64
    """Carries slice and row words."""
    compares = True
    """Whether a few values are chosen by comparisons, which vectorise, rather than looked up."""

    def any_length(self) -> bool:
        """Whether one graph is made for any number of columns."""
        return torch.compiler.is_exporting()

    def power(self, exponent: Tensor, kind: torch.dtype) -> Tensor:
        """2^exponent for small integers, exact: the bits of a float."""
        if kind == torch.float64:
            return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)
        return ((exponent.to(torch.int32) + 127) << 23).view(torch.float32)

    def entry(self, values: tuple[int, ...] | tuple[float, ...], index: Tensor, kind: torch.dtype) -> Tensor:
        """``values[index]``."""
        at = index.to(torch.int32) if index.is_floating_point() else index
        # With an axis more: an index without any would be taken for a number, which vmap has not.
        return torch.tensor(values, dtype=kind, device=index.device)[at.unsqueeze(-1)].squeeze(-1)

    def running_max(self, values: Tensor) -> Tensor:
        return values.cummax(-1).values

    def leading_one(self, d: Tensor, bits: int) -> Tensor:
        """The position of the leading one of words of ``bits`` bits, 1 or more."""
        return (d.double().view(torch.int64) >> 52) - 1023

    def finished(
        self, lanes: Tensor, unnormed: Tensor, maximum: Tensor, powsum: Tensor, spec: SoftermaxSpec
    ) -> tuple[Tensor, Tensor]:
        """Output words of slices, each lane computed, and the position of PowSum's leading one."""
        leading_one, recip = reciprocal(powsum, spec, self)
        return outputs(lanes, unnormed, maximum, leading_one, recip, spec, self), leading_one


PYTORCH = Primitives()


class Lookup(NamedTuple):
    """A `PiecewiseTable` as plain numbers, which is what the compiler takes for constants."""

    drop: int
    rest_bits: int
    index_shift: int
    m_lut: tuple[int, ...]
    c_lut: tuple[int, ...]
    shift: int
    low: int
    high: int

    @classmethod
    def of(cls, t: PiecewiseTable) -> Lookup:
        spare = max(t.index_bits - t.used_bits, 0)
        drop = t.argument_bits - t.used_bits
        return cls(drop, t.rest_bits, spare, t.m_lut, t.c_lut, t.shift, t.low, t.high)


@dataclass(frozen=True)
class Plan:
    """What a spec fixes before any score is seen, as plain numbers."""

    narrow: bool
    """Elements fit float32: one table gives 2^(x - m) for every difference there is."""
    masked: int
    """The score of a masked lane: nothing remains of it below any max."""
    first: int
    """The difference x - m, raw, of the table's first entry."""
    unnormed: tuple[float, ...]
    powers: tuple[int, ...]
    """A10: 2^f for every fraction, as unnormed words."""
    fractions: tuple[float, ...]
    """2^f for every fraction there is, where these are few enough to choose from without a look-up."""
    pow2: Lookup


@lru_cache(maxsize=64)
def _plan(spec: SoftermaxSpec) -> Plan:
    fraction = spec.input.fraction
    # v + 1/2 must be exact in float32 for v = numerator * reciprocal * 2^-shift, and so must every
    # difference of a score, a masked lane's too, and a max.
    narrow = (
        spec.input.bits <= 12
        and spec.unnormed.bits + spec.reciprocal.fraction < _SINGLE
        and spec.max.integer + fraction < _SINGLE - 1
    )
    highest = int(golden.int_max(spec.input.high, spec))
    first = spec.input.low - (highest << fraction)
    entries: tuple[float, ...] = ()
    if narrow:
        # 2^(x - m) for raw differences up to the largest below 1; before them what masked lanes get.
        differences = np.arange(first, 1 << fraction)
        entries = (0.0, *golden.power_of_two(differences, 0, spec).astype(float).tolist())
    # Even in a row without any score, whose max is the least there is and whose sum is zero, it lies below the
    # table and below the last difference of which a bit remains.
    bits = spec.unnormed.bits
    powers: tuple[int, ...] = ()
    if spec.normalization == "row-products":
        bits = max(bits, spec.product.bits + spec.powsum.fraction)
        powers = tuple(int(v) for v in pow2_table(spec)(np.arange(1 << fraction)))
    below = min(first, -(bits + 2) << fraction) - 1
    masked = (spec.max_low << fraction) + below
    few = narrow and fraction <= 2 and spec.unnormed_rounding == "truncate"
    fractions = tuple(float(v) for v in pow2_table(spec)(np.arange(1 << fraction))) if few else ()
    return Plan(narrow, masked, first, entries, powers, fractions, Lookup.of(pow2_table(spec)))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def plan(spec: SoftermaxSpec) -> Plan:
    return _plan(spec)


@lru_cache(maxsize=64)
def _reciprocal_lookup(spec: AnySpec) -> Lookup:
    return Lookup.of(reciprocal_table(spec))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def reciprocal_lookup(spec: AnySpec) -> Lookup:
    return _reciprocal_lookup(spec)


def scores_of(spec: AnySpec) -> SoftermaxSpec:
    """The spec of the words up to the unnormed ones."""
    return spec.scores if isinstance(spec, DeferredSpec) else spec


def quantize(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A1: floats that hold the raw input words. Scores of 16 bits are scaled in single precision."""
    return _unclipped(x, spec).clamp(spec.input.low, spec.input.high)


def saturates(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    """Where A1 clips: the gradient is zero there."""
    raw = _unclipped(x, spec)
    return (raw < spec.input.low) | (raw > spec.input.high)


def _unclipped(x: Tensor, spec: SoftermaxSpec) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    scaled = wide * torch.tensor(spec.input_scale, dtype=wide.dtype, device=x.device)
    rounded = round_by(scaled, spec.input_rounding)
    # Single precision does not hold the largest of the wide words.
    return rounded.double() if spec.input.bits > _SINGLE else rounded


def probabilities(
    x: Tensor, keep: Tensor | None, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """Softermax of float scores, in their own type (A1 to A9). What is masked holds a finite number."""
    # One graph for any length is made from one example, whose numbers say nothing about others.
    checked = not primitives.any_length() and checked_finite(x)
    y, leading_one = softermax(quantize(x, spec), keep, spec, primitives)
    if not y.is_floating_point():
        y = y.double()
    y = y * scale(leading_one, spec, primitives, y.dtype)
    return y.to(x.dtype) if checked else spoiled(y, x)


def spoiled(y: Tensor, x: Tensor) -> Tensor:
    """Probabilities in the type of their scores, NaN where a score is NaN or infinite."""
    return (y + (x - x)).to(x.dtype)


def softermax(
    raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> tuple[Tensor, Tensor]:
    """Output words of rows of raw input words, and the position of PowSum's leading one (A2 to A7)."""
    lanes = sliced(raw, mask, spec, primitives)
    maximum = running_max(lanes, spec, primitives)
    unnormed = power_of_two(lanes, maximum.unsqueeze(-1), spec, primitives)
    total = powsum(unnormed, maximum, spec, primitives)
    y, leading_one = primitives.finished(lanes, unnormed, maximum, total, spec)
    return y.squeeze(-2) if spec.slice_width is None else joined(y, raw.shape[-1]), leading_one


def sliced(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec, primitives: Primitives = PYTORCH) -> Tensor:
    """Raw words cut into slices; masked and padded lanes hold the score of a masked lane."""
    p = plan(spec)
    raw = raw.to(torch.float32 if p.narrow else primitives.wide)
    masked = float(p.masked) if raw.is_floating_point() else p.masked
    if mask is not None:
        raw = torch.where(mask, raw, masked)
    if spec.slice_width is None:
        return raw.unsqueeze(-2)
    columns = raw.shape[-1]
    any_length = primitives.any_length()
    # A graph for any number of columns always pads, and by at least one lane: were there a case without
    # padding, the graph would hold for that case or the others, not both.
    padding = spec.slice_width - columns % spec.slice_width if any_length else -columns % spec.slice_width
    if any_length or padding:
        raw = torch.nn.functional.pad(raw, (0, padding), value=masked)
    return raw.reshape(*raw.shape[:-1], -1, spec.slice_width)


def joined(lanes: Tensor, columns: int) -> Tensor:
    """Slices as rows again, without what filled the last one up."""
    return lanes.reshape(*lanes.shape[:-2], -1)[..., :columns]


def running_max(lanes: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH) -> Tensor:
    """A2: the running integer max of each slice."""
    # Rounding keeps the order: the max is rounded, not each lane.
    highest, fraction = lanes.amax(-1), spec.input.fraction
    integer = -_whole(-highest, fraction) if spec.max_rounding == "ceil" else _whole(highest, fraction)
    local_max = integer.clamp(spec.max_low, spec.max_high).to(primitives.row)
    return local_max if spec.slice_width is None else primitives.running_max(local_max)


def power_of_two(
    lanes: Tensor, maximum: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """A3: 2^(x - m) as unnormed words; ``maximum`` broadcasts against the lanes."""
    p = plan(spec)
    one = 1 << spec.input.fraction
    t = lanes - (maximum * one).to(lanes.dtype)
    if p.narrow and not (p.fractions and primitives.compares):
        return primitives.entry(p.unnormed, (t - (p.first - 1)).clamp_min(0), t.dtype)
    whole = _whole(t, spec.input.fraction)
    fraction = t - whole * one
    # Two bits beyond the word, nothing is left to round.
    k = -whole.clamp_min(-(spec.unnormed.bits + 1))
    if p.narrow:
        return (_choose(fraction, p.fractions) * primitives.power(-k, t.dtype)).floor()
    return shift_right(_lookup(p.pow2, fraction, primitives), k, spec.unnormed_rounding, primitives)


def powsum(
    unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """A4: the row's PowSum from the unnormed words and running maxima of its slices."""
    lanes = spec.slice_width
    if unnormed.is_floating_point() and (lanes is None or lanes << spec.unnormed.bits > 1 << _SINGLE):
        unnormed = unnormed.double()
    drop = spec.unnormed.fraction - spec.powsum.fraction
    terms = shift_right(unnormed.sum(-1), drop, spec.powsum_rounding, primitives)
    return running_sum(terms, maximum, unnormed.shape[-1] * unnormed.shape[-2], spec, primitives)


def running_sum(
    terms: Tensor, maximum: Tensor, columns: int, spec: AnySpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """The last running sum of slices' terms, of which ``columns`` elements below 2 are the parts.

    Truncating shifts compose, floor((floor(a / 2^i) + b) / 2^j) = floor((a + b * 2^i) / 2^(i+j)), so
    without saturation the last running sum is floor(sum_s l_s * 2^-(m_last - m_s)). Each step is
    monotonic, so saturating at the top T in some steps gives the least of what the row would give
    if it started from T at any one slice: the minimum over j of
    floor(T * 2^-(m_last - m_j) + sum_{s>j} l_s * 2^-(m_last - m_s)). The shifted terms are summed
    exactly in float64, as integer part and limbs of fraction.
    """
    top = spec.powsum.high
    terms = terms.clamp(max=top)
    scores = scores_of(spec)
    if scores.slice_width is None:
        return terms.squeeze(-1).to(primitives.row)
    if not has_closed_form(spec):
        return _running_sum_in_order(terms.to(torch.int64), maximum, top)
    weight = primitives.power(maximum - maximum[..., -1:], torch.float64)
    limbs = max(1, (1 << scores.max.integer) // LIMB)
    parts = _limbs(terms.double() * weight, limbs)
    total = _carried([part.sum(-1) for part in parts])
    if primitives.any_length() or columns * 2 << spec.powsum.fraction > top:
        after = [part.sum(-1, keepdim=True) - part.cumsum(-1) for part in parts]
        restarted = [a + b for a, b in zip(after, _limbs(top * weight, limbs), strict=True)]
        total = torch.minimum(total, _carried(restarted).amin(-1))
    return total.to(primitives.row)


def has_closed_form(spec: AnySpec) -> bool:
    """Whether differences of maxima and PowSum fit the limbs of `running_sum`."""
    return scores_of(spec).max.integer <= 8 and spec.powsum.bits <= 30


def _limbs(shifted: Tensor, count: int) -> list[Tensor]:
    """A shifted word in float64: its integer part, and its fraction in limbs of 32 bits."""
    parts = [shifted.floor()]
    rest = shifted - parts[0]
    for _ in range(count):
        rest = rest * 2.0**LIMB
        parts.append(rest.floor())
        rest = rest - parts[-1]
    return parts


def _carried(parts: list[Tensor]) -> Tensor:
    total = parts[-1]
    for part in reversed(parts[:-1]):
        total = part + (total * 2.0**-LIMB).floor()
    return total


def _running_sum_in_order(terms: Tensor, maximum: Tensor, top: int) -> Tensor:
    d = torch.zeros_like(terms[..., 0])
    for s in range(terms.shape[-1]):
        grown = maximum[..., s] - maximum[..., s - 1] if s else torch.zeros_like(d)
        d = ((d >> grown.clamp(max=63)) + terms[..., s]).clamp(max=top)
    return d


def reciprocal(d: Tensor, spec: AnySpec, primitives: Primitives = PYTORCH) -> tuple[Tensor, Tensor]:
    """A5: leading one's position and reciprocal of the mantissa. A sum of 0 counts as 1 unit."""
    top = spec.powsum.bits - 1
    d = d.clamp(min=1)
    leading_one = primitives.leading_one(d, spec.powsum.bits)
    up = top - leading_one
    mantissa = d * primitives.power(up, d.dtype) if d.is_floating_point() else d << up
    return leading_one, _lookup(reciprocal_lookup(spec), mantissa - (1 << top), primitives)


def outputs(
    lanes: Tensor,
    unnormed: Tensor,
    maximum: Tensor,
    leading_one: Tensor,
    recip: Tensor,
    spec: SoftermaxSpec,
    primitives: Primitives = PYTORCH,
) -> Tensor:
    """Output words of slices, by their numerators (A5) or by their row's products (A10)."""
    if spec.normalization == "row-products":
        return normalize_scores(lanes, maximum[..., -1], leading_one, recip, spec, primitives)
    n = numerator(lanes, unnormed, maximum, spec, primitives)
    return normalize(n, leading_one, recip, spec, primitives)


def row_products(recip: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH) -> list[Tensor]:
    """A10: a row's products, one per value of a score's fraction."""
    drop = spec.unnormed.fraction + spec.reciprocal.fraction - spec.product.fraction
    exact = [recip * power for power in plan(spec).powers]
    return [shift_right(p, drop, "half-up", primitives).clamp(max=spec.product.high) for p in exact]


def normalize_scores(
    lanes: Tensor,
    last_max: Tensor,
    leading_one: Tensor,
    recip: Tensor,
    spec: SoftermaxSpec,
    primitives: Primitives = PYTORCH,
) -> Tensor:
    """A10: each score takes one of its row's products and shifts it."""
    kind = lanes.dtype
    one = 1 << spec.input.fraction
    t = lanes - (last_max * one).to(kind)[..., None, None]
    whole = _whole(t, spec.input.fraction)
    fraction = t - whole * one
    products = [p.to(kind)[..., None, None] for p in row_products(recip, spec, primitives)]
    picked = products[0].expand_as(t)
    for i, product in enumerate(products[1:], start=1):
        picked = torch.where(fraction >= i, product, picked)
    by: Tensor | int = spec.product.fraction - spec.output.fraction
    if spec.output_mode == "fixed":
        by = (leading_one + (by - spec.powsum.fraction)).to(kind)[..., None, None]
    # Two bits beyond the word, nothing is left to round.
    shift = (by - whole).clamp(0, spec.product.bits + 1)
    return shift_right(picked, shift, spec.output_rounding, primitives).clamp(max=spec.output.high)


def numerator(
    lanes: Tensor, unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """Unnormed words renormalised to the row's max."""
    if spec.slice_width is None:
        return unnormed
    if spec.unnormed_rounding == "truncate":
        # Truncating shifts compose, so the slicing leaves no trace in the numerator.
        return power_of_two(lanes, maximum[..., -1:, None], spec, primitives)
    shift = (maximum[..., -1:] - maximum).clamp(max=63).unsqueeze(-1)
    return shift_right(unnormed, shift, "truncate", primitives)


def normalize(
    num: Tensor, leading_one: Tensor, recip: Tensor, spec: SoftermaxSpec, primitives: Primitives = PYTORCH
) -> Tensor:
    """A5, A7: numerator times reciprocal, as output words."""
    shift = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
    fixed = spec.output_mode == "fixed"
    if num.is_floating_point():
        factor = recip.to(num.dtype) * 2.0**-shift
        if fixed:
            factor = factor * primitives.power(spec.powsum.fraction - leading_one, num.dtype)
        words = round_by(num * factor[..., None, None], spec.output_rounding)
    else:
        product = num * recip[..., None, None]
        by = (leading_one + (shift - spec.powsum.fraction))[..., None, None] if fixed else shift
        words = shift_right(product, by, spec.output_rounding, primitives)
    return words.clamp(max=spec.output.high)


def scale(
    leading_one: Tensor,
    spec: SoftermaxSpec,
    primitives: Primitives = PYTORCH,
    kind: torch.dtype = torch.float64,
) -> Tensor | float:
    """What an output word is multiplied by to be a probability: a number, or one per row (A7)."""
    if spec.output_mode == "fixed":
        return spec.output.lsb
    exponent = spec.powsum.fraction - spec.output.fraction - leading_one
    return primitives.power(exponent, kind).unsqueeze(-1)


def round_by(v: Tensor, rounding: Rounding) -> Tensor:
    """Like `fixedpoint.round_to_integer`, and floats stay floats."""
    if rounding == "half-even":
        return v.round()
    if rounding == "half-up":
        whole = v.floor()
        return whole + (v - whole >= 0.5)
    return v.floor()


def shift_right(v: Tensor, by: Tensor | int, rounding: Rounding, primitives: Primitives = PYTORCH) -> Tensor:
    """Words >= 0 divided by 2^by and rounded, like `fixedpoint.shift_right`, for any ``by`` >= 0."""
    if v.is_floating_point():
        return round_by(v * (2.0**-by if isinstance(by, int) else primitives.power(-by, v.dtype)), rounding)
    by = torch.as_tensor(by, device=v.device)
    kept = v >> by.clamp(max=63)
    if rounding == "truncate":
        return kept
    # The highest bit that is dropped says half or more; there is none where nothing is dropped.
    dropped = by.clamp(min=1, max=64) - 1
    half = (v >> dropped) & (by > 0)
    if rounding == "half-up":
        return kept + half
    beyond = (v & ((1 << dropped) - 1)) != 0
    return kept + (half & (beyond | (kept & 1 == 1)))


def _whole(v: Tensor, fraction: int) -> Tensor:
    """The integer part, towards minus infinity, of words with ``fraction`` fraction bits."""
    return (v * 2.0**-fraction).floor() if v.is_floating_point() else v >> fraction


def _choose(index: Tensor, values: tuple[float, ...]) -> Tensor:
    """``values[index]`` for a few values and floats that hold integers: comparisons vectorise."""
    chosen = torch.full_like(index, values[0])
    for i, value in enumerate(values[1:], start=1):
        chosen = torch.where(index >= i, value, chosen)
    return chosen


def _lookup(table: Lookup, fraction: Tensor, primitives: Primitives) -> Tensor:
    kind = fraction.dtype
    used = _whole(fraction, table.drop)
    segment = _whole(used, table.rest_bits)
    index = segment * (1 << table.index_shift)
    line = primitives.entry(table.c_lut, index, kind)
    if table.rest_bits:
        rest = used - segment * (1 << table.rest_bits)
        line = _whole(primitives.entry(table.m_lut, index, kind) * rest + line, table.shift)
    return line.clamp(table.low, table.high)
