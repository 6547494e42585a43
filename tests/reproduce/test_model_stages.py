"""The model stages on a model of two small layers: what they find, not how good it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from softermax.progress import silent
from softermax.reproduce.stages import STAGES, models

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


def test_arms_start_from_one_stage_and_progress_never_goes_back(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "TQDM_DISABLE"):  # a stage sets them for its process
        monkeypatch.setenv(name, "1")
    shares: list[float] = []

    def progress(done: int, total: int, note: str = "") -> None:
        shares.append(done / total)

    quick = next(stage for stage in STAGES if stage.name == "finetune").quick
    assert quick is not None
    settings = quick | {
        "model": str(small_model), "train_rows": 32, "dev_rows": 16, "max_length": 16, "epochs": 1.0, "first_epochs": 1.0,
    }  # fmt: skip
    found = models.finetune(settings, progress)
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1
    arms = {(entry["arm"], entry["preset"]) for entry in found["entries"]}
    assert arms == {("fp32", None), ("int8", None), ("softermax", "paper"), ("softermax", "paper+fold")}
    (first,) = found["first_stages"]
    assert first["epochs"] == 1.0
    assert all(loss > 0 for loss in first["losses"])
    shares.clear()
    assert models.finetune(settings, progress) == found
    assert shares == [], "what is finished is not run again"
