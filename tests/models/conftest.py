"""Inputs for the tiny models, offline and on one thread."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 97, (3, 21), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 13:] = 0
    mask[1, 18:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
