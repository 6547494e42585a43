"""The guard: a model whose attention does not all go through ours is refused, and named."""

import pytest
import torch
from transformers import SiglipConfig, SiglipModel, SiglipTextConfig, SiglipVisionConfig

from softermax.models.drop_in import disable, enable, observe, use_softmax

from .tiny_models import COVERED, PARTLY, REFUSED, SMALL, build, encoder_decoder, sharpened, some_inputs

WAYS = {"softermax": enable, "softmax": use_softmax}


def run(model, **changes):
    with torch.no_grad():
        return model(**some_inputs(model) | changes)[0]


def hooks(model):
    return [hook for m in model.modules() for hook in (*m._forward_hooks, *m._forward_pre_hooks)]


@pytest.mark.parametrize("name", COVERED)
def test_a_covered_model_passes_and_is_not_watched_any_longer(name):
    model = enable(build(name), "row-scaled+fold")
    assert hooks(model)
    run(model)
    assert not hooks(model)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_attention_in_line_is_refused_with_its_class_and_modules(name, way):
    model = WAYS[way](build(name))
    kind = {"deberta": "DisentangledSelfAttention", "roformer": "RoFormerSelfAttention"}.get(
        name, "Attention"
    )
    with pytest.raises(
        ValueError, match=rf"{kind} computes a softmax of its own, so {way} does not cover"
    ) as error:
        run(model)
    names = str(error.value).partition("modules: ")[2].split(", ")
    assert len(names) == 2
    assert all(model.get_submodule(module) for module in names)


@pytest.mark.parametrize("name", [*REFUSED, "mpnet"])
def test_built_by_the_name_softmax_it_is_refused_too_or_covered(name):
    """Unguarded, these ran without causality or with padding."""
    own = build(name)
    try:
        model = build(name, attn_implementation="softmax")
    except KeyError:  # chooses its classes by the implementation's name
        return
    if name == "mpnet":
        live = some_inputs(model)["attention_mask"].bool()
        torch.testing.assert_close(run(model)[live], run(own)[live], atol=1e-5, rtol=1e-5)
    else:
        with pytest.raises(ValueError, match="computes a softmax of its own"):
            run(model)


EXPECTED = {
    "aimv2": ("Aimv2AttentionPoolingHead", "head"),
    "bigbird_pegasus": ("BigBirdPegasusSelfAttention", "encoder.layers.0.self_attn.self"),
    "longt5": ("LongT5LocalAttention", "encoder.block.0.layer.0.LocalSelfAttention"),
    "pegasus_x": ("PegasusXGlobalLocalAttention", "encoder.layers.0.self_attn"),
    "siglip": ("MultiheadAttention", "head.attention"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PARTLY)
def test_a_partly_covered_model_is_refused_with_what_is_not_covered(name, way):
    model = WAYS[way](build(name))
    with pytest.raises(ValueError, match="of its own") as error:
        run(model)
    kind, module = EXPECTED[name]
    assert f"{kind} computes" in str(error.value)
    assert module in str(error.value).partition("modules: ")[2].split(", ")


def test_an_encoder_that_is_not_covered_is_refused_beside_a_decoder_that_is():
    model = enable(encoder_decoder("roformer", "bert"))
    with pytest.raises(
        ValueError, match=r"EncoderDecoderModel: RoFormerSelfAttention .* encoder\.encoder\.layer\.0"
    ):
        run(model)
    covered = enable(encoder_decoder("bert", "bert"), "row-scaled+fold")
    run(covered)
    assert not hooks(covered)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_without_attention_is_refused(way):
    with pytest.raises(ValueError, match=f"MambaForCausalLM never calls .* so {way} has no effect"):
        run(WAYS[way](build("mamba")))


def test_a_part_that_runs_later_is_guarded_then():
    size = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
    text = SiglipTextConfig(**SMALL, projection_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    image = SiglipVisionConfig(**size, image_size=32, patch_size=8)
    config = SiglipConfig(text_config=text.to_dict(), vision_config=image.to_dict())
    model = enable(sharpened(SiglipModel(config)), "row-scaled+fold")
    seen = []
    with torch.no_grad(), observe(seen.append):
        model.get_text_features(input_ids=torch.arange(1, 9)[None])
    assert len(seen) == 2
    with pytest.raises(ValueError, match=r"MultiheadAttention .* vision_model\.head\.attention"):
        model.get_image_features(pixel_values=torch.randn(1, 3, 32, 32))


def test_a_pass_that_is_interrupted_leaves_other_models_alone():
    model, other = enable(build("bert"), "row-scaled+fold"), build("bert")

    def interrupt(module, args):
        raise KeyboardInterrupt

    hook = model.encoder.layer[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model)
    hook.remove()
    run(other)
    run(model)
    assert not hooks(model)


def test_transformers_own_switch_is_guarded():
    model = build("longt5")
    model.set_attn_implementation("softmax")
    with pytest.raises(ValueError, match="LongT5LocalAttention computes"):
        run(model)
    covered = build("bert")
    own = run(covered)
    covered.set_attn_implementation("softermax")
    assert not torch.equal(run(covered), own)
    covered.set_attn_implementation("sdpa")
    assert torch.equal(run(covered), own)
    assert not hasattr(covered.config, "softermax")


def test_disable_takes_the_guard_away():
    model = disable(enable(build("bert")))
    assert not hooks(model)
