"""Deferred normalisation, emulated, against A8 written out in plain integers."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from softermax import golden
from softermax.functional import softermax
from softermax.spec import DeferredSpec, get_spec
from softermax.tables import pow2_table, reciprocal_table


def by_the_book(raw, keep, spec):
    """The factor of each value, as a fraction: w * 2^-(renormalisations) * r * 2^-(15 + e)."""
    inner, width = spec.scores, spec.scores.slice_width or len(raw)
    table, m, d = pow2_table(inner), inner.max_low, 0
    factors = []
    for first in range(0, len(raw), width):
        lanes = [
            (int(r), bool(k))
            for r, k in zip(raw[first : first + width], keep[first : first + width], strict=True)
        ]
        tops = [min((r + 3) >> 2, inner.max_high) for r, k in lanes if k]
        new = max([m, *tops])
        d >>= new - m
        factors = [f / 2 ** (new - m) for f in factors]
        m = new
        for r, k in lanes:
            t = r - 4 * m
            u = int(table(t % 4)) >> -(t >> 2) if k else 0
            w = min((u + 64) >> 7, 255)
            factors.append(Fraction(w))
            d += w
        d = min(d, spec.powsum.high)
    e = max(d.bit_length() - 1, 0)
    z = (d << (23 - e)) % 2**23
    r = int(reciprocal_table(spec)(z))
    return [float(f * r / 2 ** (15 + e)) for f in factors]


@pytest.mark.parametrize("base", ["paper", "paper+fold", "whole-row+fold"])
def test_emulation_computes_the_books_integers(base):
    spec = DeferredSpec(scores=get_spec(base))
    rng = np.random.default_rng(3)
    scores = rng.normal(0, 6, (40, 53)).astype(np.float32)
    mask = rng.random(scores.shape) < 0.8
    mask[0] = False
    mask[0, 17] = True
    ours = softermax(torch.from_numpy(scores), mask=torch.from_numpy(mask), spec=spec).double().numpy()
    raw = golden.quantize(scores, spec.scores, mask)
    expected = np.array([by_the_book(r, k, spec) for r, k in zip(raw, mask, strict=True)])
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=0)


def test_a_row_without_elements_gives_zeros():
    zeros = softermax(torch.randn(2, 20), mask=torch.zeros(2, 20, dtype=torch.bool), spec=DeferredSpec())
    assert not zeros.any()
