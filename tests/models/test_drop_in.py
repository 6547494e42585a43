"""Softermax in transformers' models: every architecture, masks, config, and refusals."""

import copy

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel, MPNetModel, T5Config, T5EncoderModel

from softermax import golden
from softermax.models.drop_in import disable, enable, enabled, observe
from softermax.spec import get_spec

from .tiny_models import DECODERS, ENCODERS, SMALL, build


def outputs(model, inputs):
    with torch.no_grad():
        return model(**inputs)[0]


@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_exact_softmax_of_our_path_equals_the_models_own(name, inputs):
    model = build(name)
    own = outputs(model, inputs)
    ours = outputs(disable(model), inputs)
    live = inputs["attention_mask"].bool()
    torch.testing.assert_close(ours[live], own[live], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ["paper", "row-scaled+fold"])
@pytest.mark.parametrize("name", [*ENCODERS, *DECODERS])
def test_probabilities_are_the_golden_models_words(name, spec, inputs):
    model = enable(build(name), spec)
    seen = []
    with observe(seen.append):
        outputs(model, inputs)
    assert len(seen) == 2
    for call in seen:
        mask = call.mask.expand(call.scores.shape).numpy()
        expected = get_spec(spec).compute(call.scores.numpy(), mask)
        assert (call.probabilities.double().numpy() == expected).all()
        assert golden.quantize(call.scores.numpy(), get_spec(spec), mask).any()


def test_vit_attends_with_softermax():
    model = build("vit")
    image = {"pixel_values": torch.randn(2, 3, 32, 32)}
    own = outputs(model, image)
    changed = outputs(enable(model, "row-scaled+fold"), image)
    assert 0 < (own - changed).abs().max() < 0.2 * own.abs().max()
    torch.testing.assert_close(outputs(disable(model), image), own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ["paper", "paper+fold", "row-scaled+fold"])
@pytest.mark.parametrize("name", ENCODERS)
def test_padding_never_leaks(name, spec, inputs):
    model = enable(build(name), spec)
    together = outputs(model, inputs)
    for row, length in enumerate((13, 18, 21)):
        alone = {k: v[row : row + 1, :length] for k, v in inputs.items()}
        torch.testing.assert_close(together[row, :length], outputs(model, alone)[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("spec", ["paper", "row-scaled+fold"])
@pytest.mark.parametrize("name", DECODERS)
def test_later_tokens_never_change_earlier_logits(name, spec, inputs):
    model = enable(build(name), spec)
    ids = inputs["input_ids"]
    other = ids.clone()
    other[:, 12:] = (other[:, 12:] + 7) % 90 + 5
    first, second = outputs(model, {"input_ids": ids}), outputs(model, {"input_ids": other})
    assert torch.equal(first[:, :12], second[:, :12])
    assert not torch.equal(first[:, 12:], second[:, 12:])


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("name", DECODERS)
def test_generation_token_by_token_equals_the_full_forward_pass(name, deferred, inputs):
    model = enable(build(name), "paper+fold", deferred=deferred)
    prompt = inputs["input_ids"][2:, :5]
    out = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, min_new_tokens=30, do_sample=False,
        output_logits=True, return_dict_in_generate=True, pad_token_id=0,
    )  # fmt: skip
    full = outputs(model, {"input_ids": out.sequences})[0, 4:-1]
    torch.testing.assert_close(torch.cat(out.logits), full, atol=1e-5, rtol=1e-4)


def test_from_pretrained_by_name_and_back(tmp_path, inputs):
    build("bert").save_pretrained(tmp_path / "plain")
    model = AutoModel.from_pretrained(tmp_path / "plain", attn_implementation="softermax").eval()
    assert enabled(model) == get_spec("paper")
    spec = get_spec("row-scaled+fold").replace(slice_width=32)
    enable(model, spec)
    model.save_pretrained(tmp_path / "ours")
    again = AutoModel.from_pretrained(tmp_path / "ours").eval()
    assert enabled(again) == spec
    assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    plain = AutoModel.from_pretrained(tmp_path / "ours", softermax=None).eval()
    assert enabled(plain) is None


def test_mpnet_by_name_attends_with_softermax(tmp_path, inputs):
    build("mpnet").save_pretrained(tmp_path)
    model = MPNetModel.from_pretrained(tmp_path, attn_implementation="softermax").eval()
    seen = []
    with observe(seen.append):
        outputs(model, inputs)
    assert len(seen) == 2


def test_disable_leaves_nothing_in_the_config():
    model = disable(enable(build("bert")))
    assert enabled(model) is None
    assert "softermax" not in model.config.to_dict()


def test_an_architecture_that_never_attends_through_us_is_named(inputs):
    model = enable(build("deberta"))
    with pytest.raises(ValueError, match="DebertaV2Model never calls"):
        outputs(model, inputs)


def test_built_by_name_an_architecture_that_never_attends_through_us_is_named(inputs):
    model = build("deberta", attn_implementation="softermax")
    with pytest.raises(ValueError, match="DebertaV2Model never calls"):
        outputs(model, inputs)


def test_an_argument_that_is_not_handled_is_named(inputs):
    model = enable(BertModel(BertConfig(**SMALL)).eval())
    with pytest.raises(ValueError, match="BertSelfAttention passes softcap"):
        outputs(model, inputs | {"softcap": 3.0})
    # The failed pass leaves no trace.
    outputs(model, inputs)


def test_a_position_bias_is_part_of_the_scores(inputs):
    config = T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    torch.manual_seed(0)
    model = T5EncoderModel(config).eval()
    own = outputs(model, inputs)
    live = inputs["attention_mask"].bool()
    torch.testing.assert_close(outputs(disable(model), inputs)[live], own[live], atol=1e-4, rtol=1e-4)


def test_an_unknown_spec_is_refused():
    with pytest.raises(ValueError, match="unknown spec 'papr'"):
        enable(build("bert"), "papr")


def test_copies_work_and_stay_apart(inputs):
    model = enable(build("bert"), "paper")
    other = enable(copy.deepcopy(model), "row-scaled+fold")
    assert enabled(model) == get_spec("paper")
    assert not torch.equal(outputs(model, inputs), outputs(other, inputs))
    assert torch.equal(outputs(copy.deepcopy(model), inputs), outputs(model, inputs))


def test_gradients_reach_the_scores(inputs):
    model = enable(build("bert"), "paper").train()
    model(**inputs)[0].square().mean().backward()
    weight = model.encoder.layer[0].attention.self.query.weight
    assert weight.grad is not None
    assert weight.grad.abs().max() > 0
