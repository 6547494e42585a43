"""log2(e) absorbed into the query projections: the paper's datapath gives the scores of paper+fold."""

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel

from softermax.integrations.transformers import absorb_base, disable, enable, enabled, observe, use_softmax
from softermax.models.quantization import quantize
from softermax.spec import LOG2E, get_spec

from .tiny_models import SMALL, build

TOKENS = torch.arange(2, 50).reshape(2, 24)


def tiny(name):
    """Biases of zero would hide a forgotten one."""
    model = build(name)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() != 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def inputs(name):
    return {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": TOKENS}


def seen(model, given):
    """What each layer attends with."""
    calls = []
    with observe(calls.append), torch.no_grad():
        model(**given)
    return calls


FAMILIES = ("bert", "roberta", "distilbert", "mpnet", "gpt2", "llama", "vit", "t5_encoder")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_papers_datapath_gives_the_words_of_paper_fold(name):
    given, folded, absorbed = inputs(name), enable(tiny(name), "paper+fold"), absorb_base(tiny(name))
    assert enabled(absorbed) == get_spec("paper")
    before, after = seen(folded, given), seen(absorbed, given)
    assert before[0].scores.std() > 1
    error = (after[0].scores - LOG2E * before[0].scores).abs().max()
    assert error < 2e-6 * after[0].scores.abs().max()
    for ours, theirs in zip(after, before, strict=True):
        # A score within rounding of the boundary between two words falls on its other side now and then.
        assert (ours.probabilities != theirs.probabilities).float().mean() < 0.005


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_but_queries_and_score_biases_is_scaled(name):
    before, after = dict(tiny(name).named_parameters()), dict(absorb_base(tiny(name)).named_parameters())
    scaled = {path for path in before if not torch.equal(before[path], after[path])}
    names = ("query.", "q_lin.", "q_proj.", ".q.", "c_attn.", "relative_attention_bias")
    assert scaled == {path for path in before if any(part in path for part in names)}


def test_a_second_absorption_is_refused_also_after_saving(tmp_path):
    model = absorb_base(tiny("bert"))
    with pytest.raises(ValueError, match=r"BertModel: log2\(e\) is absorbed already"):
        absorb_base(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert enabled(loaded) == get_spec("paper")
    with pytest.raises(ValueError, match="absorbed already"):
        absorb_base(loaded)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen3", r"self_attn\.q_norm normalises the queries"),
        ("gemma2", "attn_logit_softcapping = 50.0 stands between"),
        ("deberta", "no query projection is known in encoder.layer.0.attention"),
        ("neox", "no query projection is known in layers.0.attention"),
    ],
)
def test_architectures_that_a_factor_would_break_are_refused_and_left_alone(name, message):
    model = tiny(name)
    before = {path: parameter.clone() for path, parameter in model.named_parameters()}
    with pytest.raises(ValueError, match=message):
        absorb_base(model)
    assert all(torch.equal(parameter, before[path]) for path, parameter in model.named_parameters())


def test_a_projection_that_is_not_a_plain_layer_is_refused_by_its_name():
    model = tiny("bert")
    model.encoder.layer[1].attention.self.query = nn.Sequential(nn.Linear(32, 32))
    with pytest.raises(ValueError, match=r"layer\.1\.attention\.self\.query is a Sequential"):
        absorb_base(model)


def test_a_fold_on_top_is_refused():
    with pytest.raises(ValueError, match=r"'paper\+fold': its fold would apply"):
        absorb_base(tiny("bert"), "paper+fold")


def test_a_quantised_model_is_refused():
    pytest.importorskip("modelopt")
    model = quantize(tiny("bert"), [{"input_ids": TOKENS}])
    with pytest.raises(ValueError, match="BertModel is quantised: absorb"):
        absorb_base(model)


def test_int8_scores_are_those_of_paper_fold_too():
    pytest.importorskip("modelopt")
    given = {"input_ids": TOKENS}
    folded = quantize(enable(tiny("bert"), "paper+fold"), [given])
    absorbed = quantize(absorb_base(tiny("bert")), [given])
    before, after = seen(folded, given)[0], seen(absorbed, given)[0]
    assert torch.allclose(after.scores, LOG2E * before.scores, rtol=1e-4, atol=1e-4)


def test_an_absorbed_model_does_not_go_back_to_base_e_without_a_word():
    model = absorb_base(tiny("bert"))
    for leave in (disable, use_softmax):
        with pytest.raises(ValueError, match=r"has log2\(e\) in its weights"):
            leave(model)
    with pytest.raises(ValueError, match="take no fold"):
        enable(model, "row-scaled+fold")
    assert enabled(enable(model, "row-scaled")) == get_spec("row-scaled")


def test_models_that_share_a_config_are_absorbed_apart():
    config = transformers.BertConfig(**SMALL)
    first, second = transformers.BertModel(config), transformers.BertModel(config)
    absorb_base(first)
    absorb_base(second)
    assert not hasattr(config, "softermax_absorbed")
