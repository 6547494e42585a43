from __future__ import annotations

import numpy as np
import pytest

from softermax.search.objectives import RecordedRows


@pytest.fixture(scope="session")
def rows() -> RecordedRows:
    """Gaussian rows of 64 scores, of two layers of which the second is wider; the last rows are padded."""
    rng = np.random.default_rng(0)
    layer = np.repeat(np.array([0, 1], np.int16), 48)
    scores = (rng.normal(0, 1.5, (96, 64)) * np.where(layer == 1, 3.0, 1.0)[:, None]).astype(np.float32)
    mask = np.ones(scores.shape, np.bool_)
    mask[90:, 40:] = False
    return RecordedRows("gaussian", scores, mask, layer, np.zeros(96, np.int16))
