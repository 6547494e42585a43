"""A spec for each layer or head: their words, their config, and refusals."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModel

from softermax import kernels
from softermax.functional import softermax
from softermax.models import attention
from softermax.models.drop_in import disable, enable, enabled, observe
from softermax.models.layers import load_layers
from softermax.models.onnx import export_model
from softermax.pytorch.float_attention import float_attention
from softermax.spec import get_spec

from .tiny_models import build, some_inputs

LAYERS = {0: "paper+fold", 1: get_spec("row-scaled+fold")}


@pytest.fixture
def model():
    return build("bert").eval()


def attended(model):
    seen = []
    with torch.no_grad(), observe(seen.append):
        model(**some_inputs(model))
    return seen


def test_each_layer_has_the_words_of_its_own_spec(model) -> None:
    enable(model, LAYERS)
    for call, name in zip(attended(model), ("paper+fold", "row-scaled+fold"), strict=True):
        assert torch.equal(call.probabilities, softermax(call.scores, mask=call.mask, spec=get_spec(name)))


def test_each_head_has_the_words_of_its_own_spec(model) -> None:
    heads = model.config.num_attention_heads
    names = [("paper+fold", "lean", "paper+fold:deferred", "row-scaled")[head % 4] for head in range(heads)]
    enable(model, {0: names, 1: "paper"})
    first = attended(model)[0]
    for head, name in enumerate(names):
        part = slice(head, head + 1)
        mask = first.mask if first.mask is None or first.mask.shape[1] == 1 else first.mask[:, part]
        wanted = softermax(first.scores[:, part], mask=mask, spec=get_spec(name))
        assert torch.equal(first.probabilities[:, part], wanted)


def test_a_decoder_takes_a_spec_for_each_head_without_a_mask() -> None:
    model = build("llama")
    heads = ["lean+fold", *["paper+fold"] * (model.config.num_attention_heads - 1)]
    enable(model, {0: heads, 1: "paper+fold"})
    first = model.model.layers[0].self_attn
    torch.manual_seed(1)
    query = torch.randn(1, len(heads), 20, 8)
    with torch.no_grad():
        _, found = attention.softermax_attention(first, query, query, query, None, output_attentions=True)
    scores = query @ query.mT * 8**-0.5
    keep = torch.ones(20, 20, dtype=torch.bool).tril()
    for head, name in enumerate(heads):
        wanted = softermax(scores[:, head], mask=keep, spec=get_spec(name))
        assert torch.equal(found[:, head], wanted)


@pytest.mark.parametrize("of", ["layers", "heads"])
def test_specs_are_saved_with_the_model(model, tmp_path, of) -> None:
    heads = ["lean+fold", *["paper+fold"] * (model.config.num_attention_heads - 1)]
    given = LAYERS if of == "layers" else {0: heads, 1: "row-scaled+fold"}
    enable(model, given).save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    first = get_spec("paper+fold") if of == "layers" else tuple(map(get_spec, heads))
    assert enabled(again) == enabled(model) == [first, get_spec("row-scaled+fold")]
    with torch.no_grad():
        mine, others = (m(**some_inputs(model)).last_hidden_state for m in (model, again))
    assert torch.equal(mine, others)


def test_what_a_search_wrote_is_what_a_model_takes(model, tmp_path) -> None:
    """`softermax search --heads` writes a list for each layer, `--layers` one spec."""
    heads = ["lean+fold", *["paper+fold"] * (model.config.num_attention_heads - 1)]
    written = {"0": [get_spec(name).to_dict() for name in heads], "1": get_spec("lean").to_dict()}
    (tmp_path / "layers.json").write_text(json.dumps(written))
    enable(model, load_layers(tmp_path / "layers.json"))
    assert enabled(model) == [tuple(map(get_spec, heads)), get_spec("lean")]


@pytest.mark.skipif(kernels.isa() is None, reason="the native core was not built")
def test_layers_take_the_fused_kernel_with_specs_of_their_own(model, monkeypatch) -> None:
    taken = []

    def watched(*args):
        taken.append(args[3])
        return float_attention(*args)

    monkeypatch.setattr(attention, "float_attention", watched)
    enable(model, LAYERS)
    with torch.no_grad():
        fused = model(**some_inputs(model)).last_hidden_state
        assert taken == [get_spec("paper+fold"), get_spec("row-scaled+fold")]
        with observe(lambda call: None):  # who looks at probabilities gets the other way
            composed = model(**some_inputs(model)).last_hidden_state
    assert len(taken) == 2
    assert torch.allclose(fused, composed, atol=1e-5)


def test_disabling_leaves_nothing(model) -> None:
    with torch.no_grad():
        before = model(**some_inputs(model)).last_hidden_state
        disable(enable(model, LAYERS))
        assert torch.equal(model(**some_inputs(model)).last_hidden_state, before)
    assert not hasattr(model.config, "softermax")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({0: "paper"}, "layer 1: has no spec; all of 0 to 1"),
        ({0: "paper", 1: "paper", 2: "paper"}, "layer 2: BertModel has layers 0 to 1"),
        ({0: ["paper"], 1: "paper"}, "layer 0: has 1 specs; must be one, or one for each of"),
        ({0: "papper", 1: "paper"}, "unknown spec 'papper'"),
    ],
)
def test_layers_that_do_not_fit_the_model_are_named(model, given, said) -> None:
    with pytest.raises(ValueError, match=said):
        enable(model, given)


def test_onnx_says_that_it_takes_one_spec(model, tmp_path) -> None:
    with pytest.raises(ValueError, match="several layers have no ONNX form"):
        export_model(enable(model, LAYERS), tmp_path / "a.onnx")
