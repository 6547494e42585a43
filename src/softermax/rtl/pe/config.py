"""The sizes of a processing element, and the scale that turns its accumulators into scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from softermax.rtl.sizes import MAX_LANES, check_count

Softmax: TypeAlias = Literal["softermax", "deferred", "two-pass", "online"]

OPERAND_BITS = 8
ACCUMULATOR_BITS = 24
MAX_SHIFT = 63


@dataclass(frozen=True)
class Scale:
    """The factor ``mantissa * 2**-shift`` by which an accumulator becomes a score's word."""

    mantissa: int
    shift: int

    @property
    def value(self) -> float:
        return math.ldexp(self.mantissa, -self.shift)


@dataclass(frozen=True)
class PEConfig:
    """A PE: ``lanes`` dot products per cycle of ``vector_size`` elements each, and its three memories.

    A word of the input buffer is a vector, of the weight buffer one vector for each lane, of the
    collector one accumulator for each lane; so the collector's size sets how many queries share
    a reading of the weights.
    """

    vector_size: int = 32
    lanes: int = 32
    input_bytes: int = 32 * 1024
    weight_bytes: int = 128 * 1024
    collector_bytes: int = 12 * 1024
    scale_bits: int = 12
    """Bits of the mantissa of the scale. With 24 any single-precision scale is taken as it is."""

    def __post_init__(self) -> None:
        check_count("vector_size", self.vector_size, MAX_LANES)
        check_count("lanes", self.lanes, MAX_LANES)
        check_count("scale_bits", self.scale_bits, 24)
        for name, word in (
            ("input_bytes", self.vector_size),
            ("weight_bytes", self.vector_size * self.lanes),
            ("collector_bytes", self.lanes * ACCUMULATOR_BITS // 8),
        ):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 2 * word or size % word:
                raise ValueError(f"{name} = {size!r}: must be a multiple of {word} from {2 * word} on")

    @property
    def vectors(self) -> int:
        """Words of the input buffer."""
        return self.input_bytes // self.vector_size

    @property
    def tiles(self) -> int:
        """Words of the weight buffer."""
        return self.weight_bytes // (self.vector_size * self.lanes)

    @property
    def rows(self) -> int:
        """Words of the collector: queries that are open at a time."""
        return self.collector_bytes // (self.lanes * ACCUMULATOR_BITS // 8)

    def chunks(self, size: int) -> int:
        """Vectors of one query of ``size`` elements."""
        return -(-size // self.vector_size)

    def split(self, factor: float) -> Scale:
        """The word for a factor that it can hold exactly; `nearest` makes one of any factor."""
        scale = self._rounded(factor)
        if scale.value != factor:
            raise ValueError(
                f"factor {factor!r} has more than the {self.scale_bits} bits of this PE's scale; "
                f"the nearest that fits is {scale.value!r}"
            )
        return scale

    def nearest(self, factor: float) -> float:
        """The nearest factor that the scale's word can hold, in single precision."""
        return float(np.float32(self._rounded(factor).value))

    def _rounded(self, factor: float) -> Scale:
        fraction, exponent = math.frexp(factor)
        mantissa = round(fraction * 2**self.scale_bits)
        if mantissa == 2**self.scale_bits:
            mantissa, exponent = mantissa >> 1, exponent + 1
        shift = self.scale_bits - exponent
        if not (factor > 0 and math.isfinite(factor) and 0 <= shift <= MAX_SHIFT):
            low, high = self.scale_bits - MAX_SHIFT - 1, self.scale_bits
            raise ValueError(f"factor {factor!r}: must be from 2^{low} to below 2^{high}")
        return Scale(mantissa, shift)


CONFIGS: dict[int, PEConfig] = {
    16: PEConfig(16, 16, 16 * 1024, 32 * 1024, 6 * 1024),
    32: PEConfig(32, 32, 32 * 1024, 128 * 1024, 12 * 1024),
}
"""The paper's two, by width. Their collectors hold 128 queries, their weight buffers 128 words."""
