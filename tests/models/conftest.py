"""Inputs for the tiny models, offline and on one thread."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def inputs():
    from .tiny_models import build, some_inputs

    return some_inputs(build("bert"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
