"""Words: range, text, rounding by shifts, saturation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softermax.fixedpoint import MAX_BITS, ROUNDINGS, QFormat, saturate, shift_right


def expected(value: Fraction, rounding: str) -> int:
    if rounding == "truncate":
        return value.__floor__()
    if rounding == "ceil":
        return value.__ceil__()
    if rounding == "half-up":
        return (value + Fraction(1, 2)).__floor__()
    return round(value)  # Python's own is half-even


@given(
    st.integers(-(2**62), 2**63 - 2**31),
    st.one_of(st.integers(0, 8), st.integers(0, 200)),
    st.sampled_from(ROUNDINGS),
)
def test_shift_right_is_exact(raw: int, by: int, rounding: Any) -> None:
    """For everything that a product of two 32-bit words can be, and shifts past the word."""
    assert int(shift_right(raw, by, rounding)) == expected(Fraction(raw, 2**by), rounding)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_shift_right_broadcasts(rounding: Any) -> None:
    raw, by = np.arange(-300, 300), np.arange(0, 12)[:, None]
    result = shift_right(raw, by, rounding)
    assert result.shape == (12, 600)
    assert result.dtype == np.int64
    for k in range(12):
        assert result[k].tolist() == [expected(Fraction(int(r), 2**k), rounding) for r in raw]


def test_shift_right_refuses_unknown_rounding() -> None:
    with pytest.raises(ValueError, match="truncate, half-up, half-even, ceil, got 'nearest'"):
        shift_right(1, 1, "nearest")  # type: ignore[arg-type]


@given(st.integers(0, MAX_BITS), st.integers(0, MAX_BITS), st.booleans())
def test_range_and_text(integer: int, fraction: int, signed: bool) -> None:
    if not 1 <= integer + fraction <= MAX_BITS:
        with pytest.raises(ValueError, match=r"has \d+ bits; a word has 1 to 32"):
            QFormat(integer, fraction, signed)
        return
    word = QFormat(integer, fraction, signed)
    assert QFormat.parse(str(word), signed) == word
    assert word.bits == integer + fraction
    assert word.high - word.low + 1 == 2**word.bits
    assert (word.low < 0) == signed
    assert Fraction(word.lsb) == Fraction(1, 2**fraction)
    assert saturate([-(2**40), word.low, word.high, 2**40], word).tolist() == [
        word.low,
        word.low,
        word.high,
        word.high,
    ]


@pytest.mark.parametrize("text", ["Q(6,2)", " Q( 6 , 2 ) "])
def test_parse(text: str) -> None:
    assert QFormat.parse(text, signed=True) == QFormat(6, 2, signed=True)


@pytest.mark.parametrize("text", ["", "6,2", "Q6.2", "Q(6)", "Q(-1,2)", "Q(6,2", "Q(6.5,2)", "xQ(6,2)"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"written like 'Q\(6,2\)', got"):
        QFormat.parse(text)


@pytest.mark.parametrize(
    ("integer", "fraction", "named"),
    [(-1, 2, "integer bits"), (6, -2, "fraction bits"), (6.0, 2, "integer bits"), (6, True, "fraction bits"),
     ("6", 2, "integer bits"), (None, 2, "integer bits")],
)  # fmt: skip
def test_bits_must_be_integers(integer: Any, fraction: Any, named: str) -> None:
    with pytest.raises(ValueError, match=f"{named} of a Q format must be an integer >= 0, got"):
        QFormat(integer, fraction)
