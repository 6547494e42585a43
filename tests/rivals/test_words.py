"""Designs whose bits are known, against a second, scalar reading of their authors' code in Python's own integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from softermax.rivals.designs import cmsis_nn
from softermax.rivals.designs.cmsis_nn import CmsisNn
from softermax.rivals.designs.fq_vit import FqVit
from softermax.rivals.designs.i_bert import IBert
from softermax.rivals.designs.i_vit import IVit
from softermax.rivals.designs.index_softmax import IndexSoftmax, byte_table
from softermax.rivals.designs.ita import Ita
from softermax.rivals.designs.softex import SoftEx
from softermax.rivals.designs.softex import exponential as softex_exponential

SCALES = (4.3 / 127, 1 / 16, 0.0123, 0.11, 0.2)


def rows(length: int, seed: int = 0) -> list[list[int]]:
    """Uniform, bell-shaped, tied and constant rows, and the ends of the word."""
    rng = np.random.default_rng((seed, length))
    made = [
        rng.integers(-128, 128, length),
        np.clip(rng.normal(0, 25, length).round(), -128, 127),
        rng.integers(-2, 3, length),
        np.full(length, -128),
        np.where(rng.random(length) < 0.5, -128, 127),
    ]
    return [[int(v) for v in row] for row in made]


LENGTHS = (1, 2, 7, 16, 33, 200)
Scalar = Callable[[list[int], float], list[int]]


def i_exp(x: list[int], scale: float) -> list[int]:
    x0 = math.floor(-0.6931 / scale)
    b, c = math.floor(0.96963238 / 0.35815147 / scale), math.floor(1 / 0.35815147 / scale**2)
    found = []
    for v in x:
        d = max(v - max(x), 30 * x0)
        k = math.floor(Fraction(d, x0))
        r = d - k * x0
        found.append(max(0, ((r + b) * r + c) * 2 ** (30 - k)))
    return found


def scalar_fq_vit(x: list[int], scale: float) -> list[int]:
    e = i_exp(x, scale)
    found = []
    for v in e:
        ratio = round(Fraction(sum(e), v))
        code = ratio.bit_length() - 1
        code += 2 * (ratio - 2**code) >= 2**code
        found.append(min(code, 16))
    return found


def scalar_i_vit(x: list[int], scale: float, bits: int = 16) -> list[int]:
    x0 = math.floor(-1 / scale)
    e = []
    for v in x:
        d = v - max(x)
        t = max(d + (d >> 1) - (d >> 4), 15 * x0)
        k = math.floor(Fraction(t, x0))
        r = t - k * x0
        e.append(math.floor((Fraction(r, 2) - x0) * 2 ** (15 - k)))
    factor = (2**31 - 1) // min(sum(e), 2**31 - 1)
    return [v * factor >> (32 - bits) for v in e]


def scalar_index_softmax(x: list[int], scale: float) -> list[int]:
    furthest = int(np.float32(6.6) / np.float32(scale))
    e = [int(byte_table()[min(max(x) - v, furthest) * 31 // furthest]) for v in x]
    return [round(Fraction(255 * v, sum(e))) for v in e]


@pytest.mark.parametrize(
    ("make", "scalar"),
    [
        (FqVit, scalar_fq_vit),
        (IVit, scalar_i_vit),
        (lambda scale: IVit(scale=scale, bits=8), lambda x, scale: scalar_i_vit(x, scale, 8)),
        (IndexSoftmax, scalar_index_softmax),
    ],
    ids=["fq-vit", "i-vit-16", "i-vit-8", "index-softmax"],
)
def test_words_are_those_of_the_recipe(make: Callable[..., FqVit], scalar: Scalar) -> None:
    for scale in SCALES:
        design = make(scale=scale)
        for length in LENGTHS:
            for row in rows(length):
                assert design.words(np.array(row)).tolist() == scalar(row, scale), (scale, row)


def wide_rows() -> list[list[int]]:
    """Scores of more than 8 bits, as they come from a matrix product."""
    rng = np.random.default_rng(5)
    return [[int(v) for v in rng.normal(0, spread, 40).round()] for spread in (300, 1500, 20000)]


@pytest.mark.parametrize(
    ("make", "scalar"),
    [(FqVit, scalar_fq_vit), (IVit, scalar_i_vit), (IndexSoftmax, scalar_index_softmax)],
    ids=["fq-vit", "i-vit-16", "index-softmax"],
)
def test_finer_and_wider_scores_are_not_cut_off_at_8_bits(make: Callable[..., FqVit], scalar: Scalar) -> None:
    for row in wide_rows():
        assert make(scale=0.003).words(np.array(row)).tolist() == scalar(row, 0.003)


def test_the_table_of_index_softmax_is_the_published_one() -> None:
    published = "255 206 167 135 109 88 71 57 46 38 30 25 20 16 13 10 8 7 6 4 4 3 2 2 2 1 1 1 1 1 0 0"
    assert byte_table().tolist() == [int(v) for v in published.split()]


def test_i_bert_is_the_module_in_transformers_in_double_precision() -> None:
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.models.ibert.quant_modules")
    cases = [(scale, row) for scale in SCALES for length in LENGTHS for row in rows(length)]
    for scale, row in cases + [(scale, row) for scale in (0.0005, 0.003) for row in wide_rows()]:
        theirs = module.IntSoftmax(8, quant_mode=True).double()
        x = torch.tensor(row, dtype=torch.float64)
        # Their forward divides scores by the scale; here the integers are given.
        e, e_step = theirs.int_exp(x - x.max(), torch.tensor([scale], dtype=torch.float64))
        requantized, z_step = theirs.act(e[None, None], e_step)
        z = (requantized / z_step)[0, 0].round()
        words = torch.floor(z * torch.floor(2**32 / z.sum()) / 2**24)
        assert IBert(scale=scale).words(np.array(row)).tolist() == words.tolist(), (scale, row)


def scalar_ita(x: list[int], shift: int) -> list[int]:
    def steps(distance: int) -> int:
        return math.floor(Fraction(distance, 2**shift) + Fraction(1, 2))

    highest, total = -128, 0
    for start in range(0, len(x), 16):
        part = x[start : start + 16]
        before, highest = highest, max(highest, *part)
        total = (total >> steps(highest - before)) + sum(256 >> steps(highest - v) for v in part)
    return [(65280 // total) >> steps(highest - v) for v in x]


@pytest.mark.parametrize("shift", [0, 3, 5])
def test_ita_adds_up_parts_of_16_in_their_order(shift: int) -> None:
    for length in LENGTHS:
        for row in rows(length):
            assert Ita(shift=shift, scale=1.0).words(np.array(row)).tolist() == scalar_ita(row, shift)
    rising = list(range(-128, 128))
    assert Ita(shift=3, scale=1.0).words(np.array(rising)).tolist() == scalar_ita(rising, 3)


def test_cmsis_nn_has_the_values_of_arms_own_tests() -> None:
    exponentials = {
        0: 2147483647, -1: 2147483124, -256: 2147474965, -65536: 2145387047, -1048576: 2114189749,
        -16777216: 1672462419, -67108864: 790015308, -268435456: 39332546, -1073741824: 242,
    }  # fmt: skip
    assert cmsis_nn.exponential(np.array(list(exponentials))).tolist() == list(exponentials.values())
    reciprocals = {
        0: 2147483647, 1: 2147483647, 65536: 2147418112, 16777216: 2130836488, 268435456: 1908874352,
        536870912: 1717986914, 1073741824: 1431655762, 1610612736: 1227133516, 2147483647: 1073741820,
    }  # fmt: skip
    assert cmsis_nn.reciprocal(np.array(list(reciprocals))).tolist() == list(reciprocals.values())


def test_cmsis_nn_has_the_words_of_tensorflow_lites_test() -> None:
    # uint8 scores of scale 0.5, where a word is p * 256.
    scores = np.array([[1, 2, 3, 4, 5], [255, 254, 253, 252, 251]]) - 128
    assert CmsisNn(scale=0.5).words(scores).tolist() == [[15, 24, 40, 67, 110], [110, 67, 40, 24, 15]]


def test_cmsis_nn_rounds_to_the_nearest_probability() -> None:
    for scale in SCALES:
        for length in LENGTHS:
            for row in rows(length):
                x = np.array(row)
                e = np.exp((x - x.max()) * scale)
                e[(x - x.max()) * scale < -16] = 0
                assert np.abs(CmsisNn(scale=scale).words(x) - 256 * e / e.sum()).max() < 1.01


def as_float(word: int) -> float:
    return float(struct.unpack(">f", struct.pack(">I", word << 16))[0])


def test_softex_exponentials_are_schraudolphs_with_a_corrected_mantissa() -> None:
    words = np.arange(0x8080, 0xFF80, 7)
    x = np.array([as_float(int(word)) for word in words], dtype=np.float32)
    found = softex_exponential(x)
    for word, y in zip(words, found, strict=True):
        mantissa, exponent = 128 + (int(word) & 127), (int(word) >> 7 & 255) - 127
        v = -math.floor(Fraction(mantissa * 23637) * Fraction(2) ** exponent / 2**14 + Fraction(1, 2))
        power, m = v // 128 + 127, v % 128
        corrected = 2 * m * 4 * (m + 363) // 4096 if m < 64 else 127 - (255 - 2 * m) * 7 * (m + 278) // 4096
        assert float(y) == (as_float((power << 7) + corrected) if power > 0 else 0.0)
    near = x > -80
    assert np.abs(found[near] / np.exp(x[near].astype(np.float64)) - 1).max() < 0.0085


def test_softex_words_are_bf16_of_rows_that_add_up_to_one() -> None:
    rng = np.random.default_rng(0)
    design = SoftEx()
    for length in (1, 5, 8, 384):
        x = rng.normal(0, 3, (4, length)).astype(np.float32)
        raw = design.quantize(x)
        p = design.probabilities(raw)
        assert np.array_equal(p, [[as_float(int(word)) for word in row] for row in design.words(raw)])
        assert np.abs(p.sum(-1) - 1).max() < 0.02
