"""The model stages on a model of two small layers: what they find, not how good it is."""

from __future__ import annotations

import pytest

from softermax.progress import silent
from softermax.reproduce.stages import models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def test_variants_are_compared_with_the_exact_softmax_of_the_same_scores() -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = transformers.BertModel(config).eval()
    ids = torch.randint(50, (60, 12))
    mask = torch.ones_like(ids)
    mask[:, 9:] = 0
    rows = models.compare_variants(model, "made", [{"input_ids": ids, "attention_mask": mask}], silent)
    assert [row["spec"] for row in rows] == list(models.VARIANTS)
    for row in rows:
        assert (row["text"], row["rows"]) == ("made", 60)
        assert 0.9 < row["cosine_low"] <= row["cosine"] <= 1.0 + 1e-6
        assert 0 < row["attention_moved"] < 0.2
        assert row["row_sum"] == pytest.approx(1.0, abs=0.1)
        assert 0 <= row["same_neighbour"] <= 1
