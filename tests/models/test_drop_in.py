"""Softermax in transformers' models: every architecture, masks, config, and refusals."""

import copy

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    CLIPConfig,
    CLIPModel,
    CLIPTextConfig,
    CLIPVisionConfig,
    MPNetModel,
    PreTrainedConfig,
)
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention

from softermax import golden
from softermax.models.absorb import absorb_base
from softermax.models.drop_in import disable, enable, enabled, observe, use_softmax
from softermax.spec import DeferredSpec, get_spec

from .tiny_models import (
    BY_ARGUMENT,
    COVERED,
    DECODERS,
    ENCODERS,
    PARTLY,
    REFUSED,
    SMALL,
    build,
    sharpened,
    some_inputs,
)


def outputs(model, inputs):
    with torch.no_grad():
        return model(**inputs)[0]


def configs(model):
    """Every config that a module of the model holds, and what it says about attention."""
    return [
        (value, value._attn_implementation, value.to_dict())
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, PreTrainedConfig)
    ]


@pytest.mark.parametrize("name", COVERED)
def test_exact_softmax_of_our_path_equals_the_models_own(name):
    model = build(name)
    inputs = some_inputs(model)
    own, ours = outputs(model, inputs), outputs(use_softmax(model), inputs)
    if own.shape[1] == 21:  # what padding gives is nobody's
        live = inputs["attention_mask"].bool()
        own, ours = own[live], ours[live]
    torch.testing.assert_close(ours, own, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("way", [enable, use_softmax])
@pytest.mark.parametrize("name", [*COVERED, *REFUSED, *PARTLY, *BY_ARGUMENT])
def test_disable_restores_the_model_bit_for_bit(name, way):
    """Also what was refused: Bloom keeps its causality, Gemma-2 its soft cap, GPT-OSS its sinks."""
    model = build(name)
    inputs = some_inputs(model)
    own = outputs(model, inputs)  # BigBird chooses its modules in the first pass
    before, classes = configs(model), [type(module) for module in model.modules()]
    try:
        outputs(way(model), inputs)
    except ValueError:
        assert name not in COVERED
    else:
        assert name in COVERED
    disable(model)
    assert torch.equal(outputs(model, inputs), own)
    assert [type(module) for module in model.modules()] == classes
    after = configs(model)
    assert all(now[0] is then[0] and now[1:] == then[1:] for now, then in zip(after, before, strict=True))


@pytest.mark.parametrize("implementation", ["softermax", "softmax"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "mpnet", "bart"])
def test_a_model_built_by_name_gets_transformers_own_choice_back(name, implementation):
    own = build(name)
    model = disable(build(name, attn_implementation=implementation))
    inputs = some_inputs(model)
    assert model.config._attn_implementation == own.config._attn_implementation
    assert torch.equal(outputs(model, inputs), outputs(own, inputs))


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
    assert torch.equal(outputs(disable(model), image), own)


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


@pytest.mark.parametrize("spec", ["paper+fold", "paper+fold:deferred"])
@pytest.mark.parametrize("name", DECODERS)
def test_generation_token_by_token_equals_the_full_forward_pass(name, spec, inputs):
    model = enable(build(name), spec)
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


def test_a_deferred_spec_is_stored_and_loaded(tmp_path, inputs):
    spec = DeferredSpec(scores=get_spec("paper+fold"), reciprocal_segments=32)
    model = enable(build("bert"), spec)
    assert enabled(model) == spec
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert enabled(again) == spec
    assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    assert enabled(enable(again, "paper:deferred")) == get_spec("paper:deferred")


@pytest.mark.parametrize("deferred", [False, True])
def test_a_folder_of_the_earlier_form_loads(tmp_path, deferred):
    model = build("bert")
    model.config.softermax = {"spec": get_spec("paper+fold").to_dict(), "deferred": deferred}
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    assert enabled(again) == get_spec("paper+fold:deferred" if deferred else "paper+fold")
    with torch.no_grad():
        again.eval()(input_ids=torch.arange(5, 20)[None])


def test_disable_leaves_nothing_in_the_config():
    model = disable(enable(build("bert")))
    assert enabled(model) is None
    assert "softermax" not in model.config.to_dict()


def test_models_of_a_shared_config_stay_as_they_are(inputs):
    config = BertConfig(**SMALL)
    first, second = sharpened(BertModel(config)), sharpened(BertModel(config))
    own = outputs(first, inputs)
    enable(second)
    assert torch.equal(outputs(first, inputs), own)
    assert enabled(first) is None
    assert enabled(BertModel(config)) is None
    assert "softermax" not in config.to_dict()
    assert enabled(second) == get_spec("paper")


def test_the_whole_and_its_parts_go_on_sharing_a_config(tmp_path):
    model = BertForSequenceClassification(BertConfig(**SMALL))
    for made in (
        enable(model),
        BertForSequenceClassification(BertConfig(**SMALL, attn_implementation="softermax")),
    ):
        assert made.config is made.bert.config is made.bert.encoder.layer[0].attention.self.config
    size = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
    text = CLIPTextConfig(**SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    vision = CLIPVisionConfig(**size, image_size=32, patch_size=8)
    both = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict()))
    shared = both.vision_model.config is both.config.vision_config
    enable(both, "paper+fold")
    assert (both.vision_model.config is both.config.vision_config) == shared
    both.save_pretrained(tmp_path)
    again = CLIPModel.from_pretrained(tmp_path)
    assert {c.softermax["base"] for c, _, _ in configs(again)} == {"fold"}


def test_what_is_changed_in_the_config_meanwhile_stays():
    model = enable(build("bert"))
    model.config.problem_type = "regression"
    disable(model)
    assert model.config.problem_type == "regression"
    assert model.encoder.layer[0].attention.self.config.problem_type == "regression"


def test_mpnet_gets_its_own_attention_back():
    model = disable(enable(build("mpnet")))
    assert type(model.encoder.layer[0].attention.attn) is MPNetSelfAttention


def test_a_part_that_was_enabled_alone_follows_the_whole(inputs):
    model = sharpened(BertForSequenceClassification(BertConfig(**SMALL)))
    own = outputs(model, inputs)
    enable(model.bert, "row-scaled")
    alone = outputs(model, inputs)
    assert not torch.equal(alone, own)
    enable(model, "paper")
    assert enabled(model) == enabled(model.bert) == get_spec("paper")
    assert torch.equal(outputs(disable(model), inputs), own)


def test_an_absorbed_folder_loads_in_base_two_only(tmp_path, inputs):
    model = absorb_base(sharpened(BertForSequenceClassification(BertConfig(**SMALL))))
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    for otherwise in ({"softermax": None}, {"attn_implementation": "softmax"}):
        with pytest.raises(ValueError, match="softmax of base e would be wrong"):
            BertForSequenceClassification.from_pretrained(tmp_path, **otherwise)


def test_arguments_without_effect_are_taken(inputs):
    model = enable(BertModel(BertConfig(**SMALL)).eval())
    plain = outputs(model, inputs)
    assert torch.equal(outputs(model, inputs | {"output_router_logits": True, "deterministic": True}), plain)


def test_an_argument_that_is_not_handled_is_named(inputs):
    model = enable(BertModel(BertConfig(**SMALL)).eval())
    with pytest.raises(ValueError, match="BertSelfAttention passes softcap"):
        outputs(model, inputs | {"softcap": 3.0})
    # The failed pass leaves no trace.
    outputs(model, inputs)


def test_an_unknown_spec_is_refused():
    with pytest.raises(ValueError, match="unknown spec 'papr'"):
        enable(build("bert"), "papr")
    with pytest.raises(TypeError, match="must be a SoftermaxSpec, a DeferredSpec or the name of one"):
        enable(build("bert"), ["paper"])


def test_copies_work_and_stay_apart(inputs):
    model = enable(build("bert"), "paper")
    other = enable(copy.deepcopy(model), "row-scaled+fold")
    assert enabled(model) == get_spec("paper")
    assert not torch.equal(outputs(model, inputs), outputs(other, inputs))
    assert torch.equal(outputs(copy.deepcopy(model), inputs), outputs(model, inputs))


@pytest.mark.parametrize("spec", ["paper", "paper:deferred"])
def test_gradients_reach_the_scores(spec, inputs):
    model = enable(build("bert"), spec).train()
    model(**inputs)[0].square().mean().backward()
    weight = model.encoder.layer[0].attention.self.query.weight
    assert weight.grad is not None
    assert weight.grad.abs().max() > 0
