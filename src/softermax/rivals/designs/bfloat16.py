"""BF16 numbers as 16-bit words, on floats in single precision."""

from __future__ import annotations

from softermax.rivals.designs.arrays import Array, cast, namespace


def bf16_words(x: Array) -> Array:
    """The words of finite single-precision numbers: nearest, ties to even; subnormals become 0."""
    xp = namespace(x)
    bits = cast(cast(x, "float32").view(xp.int32), "int64") & 0xFFFFFFFF
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return xp.where((rounded >> 7) & 0xFF == 0, rounded & 0x8000, rounded)


def bf16_values(words: Array) -> Array:
    """What words stand for, in single precision."""
    xp = namespace(words)
    bits = cast(words, "int64") << 16
    return cast(xp.where(bits >= 2**31, bits - 2**32, bits), "int32").view(xp.float32)


def rounded(x: Array) -> Array:
    """Single-precision numbers rounded to BF16."""
    return bf16_values(bf16_words(x))
