"""The words of the arithmetic as PyTorch tensors: what `functional` wraps in gradients.

Rows lie along the last axis, cut into slices: elements have shape (..., slices, lanes), slice words
(..., slices), row words (...). Elements are carried as floats that hold integers wherever the
spec's products fit a float's mantissa, because floats vectorise; else as 64-bit integers. Row and
slice words are 64-bit integers. A masked lane holds a score so low that nothing of it remains.
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
from softermax.spec import SoftermaxSpec
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

LIMB = 32


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
    """The score of a masked lane: below every other."""
    first: int
    """The difference x - m, raw, of the table's first entry."""
    unnormed: tuple[float, ...]
    fractions: tuple[float, ...]
    """2^f for every fraction there is, where these are few enough to choose from without a look-up."""
    pow2: Lookup
    reciprocal: Lookup
    closed_form: bool
    """Differences of maxima and PowSum fit the limbs of `powsum`."""


@lru_cache(maxsize=64)
def _plan(spec: SoftermaxSpec) -> Plan:
    fraction = spec.input.fraction
    # v + 1/2 must be exact in float32 for v = numerator * reciprocal * 2^-shift.
    narrow = spec.input.bits <= 12 and spec.unnormed.bits + spec.reciprocal.fraction <= 23
    highest = int(golden.int_max(spec.input.high, spec))
    first = spec.input.low - (highest << fraction)
    entries: tuple[float, ...] = ()
    if narrow:
        # 2^(x - m) for raw differences up to the largest below 1; before them what masked lanes get.
        differences = np.arange(first, 1 << fraction)
        entries = (0.0, *golden.power_of_two(differences, 0, spec).astype(float).tolist())
    masked = spec.input.low - (1 << (20 if narrow else 40))
    closed = spec.max.integer <= 8 and spec.powsum.bits <= 30
    few = narrow and fraction <= 2 and spec.unnormed_rounding == "truncate"
    fractions = tuple(float(v) for v in pow2_table(spec)(np.arange(1 << fraction))) if few else ()
    tables = Lookup.of(pow2_table(spec)), Lookup.of(reciprocal_table(spec))
    return Plan(narrow, masked, first, entries, fractions, *tables, closed)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def plan(spec: SoftermaxSpec) -> Plan:
    return _plan(spec)


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
    return rounded.double() if spec.input.bits > 24 else rounded


def softermax(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """Output words of rows of raw input words, and the position of PowSum's leading one (A2 to A7)."""
    lanes = sliced(raw, mask, spec)
    maximum = running_max(lanes, spec)
    unnormed = power_of_two(lanes, maximum.unsqueeze(-1), spec)
    leading_one, recip = reciprocal(powsum(unnormed, maximum, spec), spec)
    y = normalize(numerator(lanes, unnormed, maximum, spec), leading_one, recip, spec)
    return y.flatten(-2)[..., : raw.shape[-1]], leading_one


def sliced(raw: Tensor, mask: Tensor | None, spec: SoftermaxSpec) -> Tensor:
    """Raw words cut into slices; masked and padded lanes hold the score of a masked lane."""
    p = plan(spec)
    if not p.narrow:
        raw = raw.to(torch.int64)
    if mask is not None:
        raw = torch.where(mask, raw, p.masked)
    columns = raw.shape[-1]
    if spec.slice_width is None:
        return raw.unsqueeze(-2)
    padding = -columns % spec.slice_width
    if torch.compiler.is_exporting():
        # The graph serves any number of columns, so it always pads, and by at least one lane: were
        # there a case without padding, the graph would hold for that case or the others, not both.
        padding = spec.slice_width - columns % spec.slice_width
    if torch.compiler.is_exporting() or padding:
        raw = torch.nn.functional.pad(raw, (0, padding), value=p.masked)
    lanes: Tensor = raw.unflatten(-1, (-1, spec.slice_width))
    return lanes


def running_max(raw: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A2: the running integer max of each slice."""
    one = 1 << spec.input.fraction
    if raw.is_floating_point():
        integer = raw * (1 / one)
        integer = integer.ceil() if spec.max_rounding == "ceil" else integer.floor()
    else:
        integer = (
            -((-raw) >> spec.input.fraction) if spec.max_rounding == "ceil" else raw >> spec.input.fraction
        )
    local_max = integer.amax(-1).clamp(spec.max_low, spec.max_high).to(torch.int64)
    return local_max if spec.slice_width is None else local_max.cummax(-1).values


def power_of_two(raw: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A3: 2^(x - m) as unnormed words; ``maximum`` broadcasts against the lanes."""
    p = plan(spec)
    one = 1 << spec.input.fraction
    if p.narrow:
        t = raw - (maximum * one).to(raw.dtype)
        if p.fractions:
            whole = (t * (1 / one)).floor()
            power = _power(whole.clamp_min(-(spec.unnormed.bits + 1)))
            return (_choose(t - whole * one, p.fractions) * power).floor()
        entry = (t - (p.first - 1)).clamp_min(0).to(torch.int32)
        return torch.tensor(p.unnormed, dtype=torch.float32, device=raw.device)[entry]
    t = raw - maximum * one
    k = (-(t >> spec.input.fraction)).clamp(max=spec.unnormed.bits + 1)
    return _shifted(_lookup(p.pow2, t & (one - 1)), k, spec.unnormed_rounding)


def powsum(unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A4: the row's PowSum from the unnormed words and running maxima of its slices.

    Truncating shifts compose, floor((floor(a / 2^i) + b) / 2^j) = floor((a + b * 2^i) / 2^(i+j)), so
    without saturation the last running sum is floor(sum_s l_s * 2^-(m_last - m_s)). Each step is
    monotonic, so saturating at the top T in some steps gives the least of what the row would give
    if it started from T at any one slice: the minimum over j of
    floor(T * 2^-(m_last - m_j) + sum_{s>j} l_s * 2^-(m_last - m_s)). The shifted terms are summed
    exactly in float64, as integer part and limbs of fraction.
    """
    top = spec.powsum.high
    drop = spec.unnormed.fraction - spec.powsum.fraction
    if unnormed.is_floating_point():
        lanes = spec.slice_width
        single = lanes is not None and lanes << spec.unnormed.bits <= 1 << 24
        exact = unnormed.sum(-1) if single else unnormed.double().sum(-1)
        terms = round_by(exact * 2.0**-drop, spec.powsum_rounding).clamp(max=top)
    else:
        terms = _shifted(unnormed.sum(-1), drop, spec.powsum_rounding).clamp(max=top)
    if spec.slice_width is None:
        return terms.squeeze(-1).to(torch.int64)
    if not plan(spec).closed_form:
        return _powsum_in_order(terms.to(torch.int64), maximum, top)
    exponent = maximum - maximum[..., -1:] + 1023
    weight = (exponent << 52).view(torch.float64)  # 2^-(m_last - m_s), exact
    limbs = max(1, (1 << spec.max.integer) // LIMB)
    parts = split_limbs(terms * weight, limbs)
    total = _carried([part.sum(-1) for part in parts])
    columns = unnormed.shape[-1] * unnormed.shape[-2]
    if torch.compiler.is_exporting() or columns * 2 << spec.powsum.fraction > top:
        after = [part.sum(-1, keepdim=True) - part.cumsum(-1) for part in parts]
        restarted = [a + b for a, b in zip(after, split_limbs(top * weight, limbs), strict=True)]
        total = torch.minimum(total, _carried(restarted).amin(-1))
    # else: unnormed words are below 2, so the sum stays in range
    return total.to(torch.int64)


def split_limbs(shifted: Tensor, count: int) -> list[Tensor]:
    """A shifted word in float64: its integer part, and its fraction in limbs of 32 bits."""
    parts = [shifted.floor()]
    rest = shifted - parts[0]
    for _ in range(count):
        rest = rest * 2.0**LIMB
        parts.append(rest.floor())
        rest = rest - parts[-1]
    return parts


def _carried(parts: list[Tensor]) -> Tensor:
    carry = torch.zeros_like(parts[0])
    for part in reversed(parts[1:]):
        carry = ((part + carry) * 2.0**-LIMB).floor()
    return parts[0] + carry


def _powsum_in_order(terms: Tensor, maximum: Tensor, top: int) -> Tensor:
    d = torch.zeros_like(terms[..., 0])
    for s in range(terms.shape[-1]):
        grown = maximum[..., s] - maximum[..., s - 1] if s else torch.zeros_like(d)
        d = ((d >> grown.clamp(max=63)) + terms[..., s]).clamp(max=top)
    return d


def reciprocal(d: Tensor, spec: SoftermaxSpec) -> tuple[Tensor, Tensor]:
    """A5: leading one's position and reciprocal of the mantissa."""
    bits = spec.powsum.bits
    d = d.clamp(min=1)
    leading_one = (d.double().view(torch.int64) >> 52) - 1023  # a float64's exponent
    fraction = (d << (bits - 1 - leading_one)) & ((1 << (bits - 1)) - 1)
    return leading_one, _lookup(plan(spec).reciprocal, fraction)


def numerator(raw: Tensor, unnormed: Tensor, maximum: Tensor, spec: SoftermaxSpec) -> Tensor:
    """Unnormed words renormalised to the row's max."""
    if spec.slice_width is None:
        return unnormed
    if spec.unnormed_rounding == "truncate":
        # Truncating shifts compose, so the slicing leaves no trace in the numerator.
        return power_of_two(raw, maximum[..., -1:, None], spec)
    shift = (maximum[..., -1:] - maximum).clamp(max=63).unsqueeze(-1)
    if unnormed.is_floating_point():
        return (unnormed * torch.exp2(-shift.to(unnormed.dtype))).floor()
    return unnormed >> shift


def normalize(num: Tensor, leading_one: Tensor, recip: Tensor, spec: SoftermaxSpec) -> Tensor:
    """A5, A7: numerator times reciprocal, as output words."""
    shift = torch.full_like(
        leading_one, spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
    )
    if spec.output_mode == "fixed":
        shift = shift + leading_one - spec.powsum.fraction
    if num.is_floating_point():
        factor = recip.to(num.dtype) * _power(-shift)
        words = round_by(num * factor[..., None, None], spec.output_rounding)
    else:
        words = _shifted(num * recip[..., None, None], shift[..., None, None], spec.output_rounding)
    return words.clamp(max=spec.output.high)


def scale(leading_one: Tensor, spec: SoftermaxSpec) -> Tensor | float:
    """What an output word is multiplied by to be a probability: a number, or one a row (A7)."""
    if spec.output_mode == "fixed":
        return spec.output.lsb
    return _power(spec.powsum.fraction - spec.output.fraction - leading_one)


def _power(exponent: Tensor) -> Tensor:
    """2^exponent for small integers, exact: float32's own bits."""
    return ((exponent + 127).to(torch.int32) << 23).view(torch.float32)


def _choose(index: Tensor, values: tuple[float, ...]) -> Tensor:
    """``values[index]`` for a few values and floats that hold integers: comparisons vectorise."""
    chosen = torch.full_like(index, values[0])
    for i, value in enumerate(values[1:], start=1):
        chosen = torch.where(index >= i, value, chosen)
    return chosen


def round_by(v: Tensor, rounding: Rounding) -> Tensor:
    if rounding == "half-even":
        return v.round()
    if rounding == "half-up":
        whole = v.floor()
        return whole + (v - whole >= 0.5)
    return v.floor()


def _shifted(v: Tensor, by: Tensor | int, rounding: Rounding) -> Tensor:
    """Integers >= 0 divided by 2^by and rounded, like `fixedpoint.shift_right`, for any ``by`` >= 0."""
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


def _lookup(table: Lookup, fraction: Tensor) -> Tensor:
    used = fraction >> table.drop
    index = (used >> table.rest_bits) << table.index_shift
    line = torch.tensor(table.c_lut, dtype=torch.int64, device=fraction.device)[index]
    if table.rest_bits:
        slope = torch.tensor(table.m_lut, dtype=torch.int64, device=fraction.device)[index]
        line = (slope * (used & ((1 << table.rest_bits) - 1)) + line) >> table.shift
    return line.clamp(table.low, table.high)
