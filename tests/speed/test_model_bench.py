"""`softermax bench model`: what it says, and that its contestants are left as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers import BertConfig, BertModel

from softermax import kernels
from softermax.cli import main
from softermax.results import Envelope
from softermax.speed import model as bench
from softermax.speed.race import OURS

pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the native core is not built here")


def tiny():
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    return BertModel(BertConfig(vocab_size=99, **small)).eval()


@pytest.fixture
def asked(monkeypatch):
    """Runners without a model, and whether onnxruntime was asked for."""
    wanted = []

    versus = {
        bench.DEPLOYED: (bench.FP32, bench.DYNAMIC),
        bench.ENABLED: (bench.SDPA,),
        bench.EXPORTED: (bench.EXACT,),
    }

    def runners(name, form, threads, with_onnxruntime, stack):
        wanted.append(with_onnxruntime)
        runs = dict.fromkeys((OURS, *versus[form]), lambda ids, mask: ids + mask)
        return bench.Runners(name, runs, {OURS: 0.99, bench.DYNAMIC: 0.95} if name == "MiniLM" else {})

    monkeypatch.setattr(bench, "runners", runners)
    return wanted


def test_rows_have_ratio_threads_and_cosines(asked, capsys, tmp_path: Path):
    assert (
        main(["bench", "model", "--json", "--threads", "1", "2", "--rounds", "2", "--out", str(tmp_path)])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert {row["threads"] for row in found} == {1, 2}
    cells = [f"{m} {b}x{t}" for m in bench.MODELS for b, t in bench.SHAPES]
    assert {row["case"] for row in found if row["versus"] == bench.DYNAMIC} == set(cells)
    assert {row["case"] for row in found if row["versus"] == bench.SDPA} == {f"{c}, enabled" for c in cells}
    assert len({row["case"] for row in found if row["versus"] == bench.EXACT}) == 5
    for row in found:
        assert row["ratio"] > 0
        assert row["cosine"] == (0.99 if row["case"].startswith("MiniLM") else None)
        assert row["versus"] != bench.DYNAMIC or row["their_cosine"] == (0.95 if row["cosine"] else None)
    assert list(Envelope.load(tmp_path / "bench-model.json").rows) == found
    assert all(asked)


def test_some_cases_are_measured_and_the_other_rows_stay(asked, capsys, tmp_path: Path):
    common = ["bench", "model", "--json", "--rounds", "2", "--out", str(tmp_path)]
    assert main(common) == 0
    before = json.loads(capsys.readouterr().out)
    assert main([*common, "--threads", "2", "--case", "MiniLM 1x128", "BERT-Base 8x128"]) == 0
    some = json.loads(capsys.readouterr().out)
    assert {row["case"].split(",")[0] for row in some} == {"MiniLM 1x128", "BERT-Base 8x128"}
    kept = Envelope.load(tmp_path / "bench-model.json")
    assert list(kept.rows) == before + some
    (first,) = kept.notes["kept"]
    assert first["designs"] == list(dict.fromkeys(row["case"] for row in before))
    assert "--case" not in first["command"]
    assert "--case" in kept.command
    assert main([*common, "--case", "GPT"]) == 2
    assert "--case GPT: no case has it" in capsys.readouterr().err


def test_onnxruntime_is_left_out_where_a_path_is_forced(asked, capsys, monkeypatch):
    monkeypatch.setenv("SOFTERMAX_ISA", "scalar")
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"):
        monkeypatch.setenv(name, "")
    assert main(["bench", "model", "--rounds", "2", "--isa", "scalar"]) == 0
    assert "onnxruntime cannot be forced" in capsys.readouterr().out
    assert not any(asked)


def test_exporting_for_onnxruntime_leaves_the_model_as_it_was(tmp_path: Path):
    """The exporter puts back the mode of what it exports: a model in training would drop out, and be slow."""
    pytest.importorskip("onnxruntime")
    model = tiny()
    before = model.config._attn_implementation
    made = bench.quantised_by_onnxruntime(model, tmp_path)
    assert not model.training
    assert model.config._attn_implementation == before
    ids = torch.arange(1, 11).reshape(1, 10)
    want = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state.detach()
    for stored in made.values():
        got = stored.open(1)(ids, torch.ones_like(ids))
        assert torch.cosine_similarity(got, want, dim=-1).min() > 0.98


def test_cosines_are_of_pooled_sentences():
    ids = torch.tensor([[1, 2, 3], [4, 5, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    exact = lambda ids, mask: table[ids]  # noqa: E731
    padded = lambda ids, mask: table[ids] + 100.0 * (1 - mask)[..., None]  # noqa: E731
    found = bench.cosines(
        {OURS: padded, bench.DYNAMIC: lambda i, m: -table[i]},
        exact,
        {"input_ids": ids, "attention_mask": mask},
    )
    assert found[OURS] == pytest.approx(1.0)
    assert found[bench.DYNAMIC] == pytest.approx(-1.0)
