"""8-bit weights and activations: recipe, calibration, exact round trip, refusals."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
)

from softermax.models import quantization
from softermax.models.drop_in import disable, enable, enabled, observe
from softermax.spec import get_spec

from .tiny_models import SMALL, build

pytest.importorskip("modelopt")
CLASSES = {
    "bert": (BertForSequenceClassification, BertConfig),
    "mpnet": (MPNetForSequenceClassification, MPNetConfig),
}


def classifier(name="bert", spec=None):
    torch.manual_seed(0)
    made, config = CLASSES[name]
    model = made(config(**SMALL)).eval()
    return enable(model, spec) if spec else model


def eight_bit(values, scale=None):
    """Whether all values are integers from -127 to 255 times one scale."""
    scale = values.abs().max() / 127 if scale is None else scale
    words = values / scale
    return torch.allclose(words, words.round(), atol=1e-3)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("spec", [None, "paper", "row-scaled+fold"])
def test_save_and_load_is_exact(tmp_path, inputs, name, spec):
    model = quantization.quantize(classifier(name, spec), [inputs])
    quantization.save(model, tmp_path)
    again = quantization.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, again(**inputs).logits)
    assert enabled(again) == (get_spec(spec) if spec else None)
    assert not list(tmp_path.glob("*.pth"))


@pytest.mark.parametrize("spec", [None, "paper"])
def test_from_pretrained_refuses_a_quantised_folder_and_says_what_loads_it(tmp_path, inputs, spec, caplog):
    quantization.save(quantization.quantize(classifier(spec=spec), [inputs]), tmp_path)
    refused = pytest.raises(
        ValueError, match=r"quantised model.*softermax\.models\.quantization\.load\(folder\)"
    )
    with caplog.at_level("WARNING", logger="transformers"), refused:
        BertForSequenceClassification.from_pretrained(tmp_path)
    # Without this package imported there is nobody to refuse, but transformers itself speaks.
    assert "Unknown quantization type, got softermax.models.quantization.load" in caplog.text


@pytest.mark.parametrize("first", ["enable", "quantize"])
@pytest.mark.parametrize("name", CLASSES)
def test_disable_leaves_a_quantised_model_its_8_bit_probabilities(inputs, name, first):
    model = classifier(name, "paper" if first == "enable" else None)
    quantization.quantize(model, [inputs])
    if first == "quantize":
        enable(model, "paper")
    disable(model)
    assert enabled(model) is None
    assert quantization.is_quantized(model)
    seen = []
    with torch.no_grad(), observe(seen.append):
        model(**inputs)
    assert len(seen) == 2
    assert eight_bit(seen[0].probabilities, 1 / 255)


@pytest.mark.parametrize("asked", [{}, {"attn_implementation": "softermax"}])
def test_models_of_a_shared_config_are_not_marked_as_quantised(inputs, asked):
    config = BertConfig(**SMALL, **asked)
    model = quantization.quantize(BertForSequenceClassification(config).eval(), [inputs])
    assert quantization.is_quantized(model)
    assert not quantization.is_quantized(BertForSequenceClassification(config))


@pytest.mark.parametrize("name", CLASSES)
def test_operands_of_both_products_have_eight_bits(inputs, name):
    model = quantization.quantize(classifier(name), [inputs])
    seen = []
    with torch.no_grad(), observe(seen.append):
        model(**inputs)
    attentions = [m for m in model.modules() if hasattr(m, "p_bmm_quantizer")]
    assert len(seen) == len(attentions) == 2
    for call, module in zip(seen, attentions, strict=True):
        for operand, letter in ((call.query, "q"), (call.key, "k"), (call.value, "v")):
            amax = getattr(module, f"{letter}_bmm_quantizer").amax
            assert eight_bit(operand, amax / 127)
        assert eight_bit(call.probabilities, 1 / 255)


def test_softermax_bypasses_the_quantiser_of_the_probabilities(inputs):
    model = quantization.quantize(classifier(spec="paper"), [inputs])
    seen = []
    with torch.no_grad(), observe(seen.append):
        model(**inputs)
    words = seen[0].probabilities * 128
    assert torch.equal(words, words.round())


def test_scales_are_the_percentile_of_what_calibration_saw(inputs):
    model = classifier()
    caught = []
    model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(lambda m, i, o: caught.append(i[0]))
    quantization.quantize(model, [inputs], percentile=90.0)
    values = caught[0].abs().flatten()
    amax = model.bert.encoder.layer[0].intermediate.dense.input_quantizer.amax
    assert abs(float(amax) - float(torch.quantile(values, 0.9))) < 0.01 * float(values.max())


def test_weights_have_eight_bits_per_channel_and_embeddings_do_not(inputs):
    model = quantization.quantize(classifier(), [inputs])
    dense = model.bert.encoder.layer[0].output.dense
    rounded = dense.weight_quantizer(dense.weight)
    scale = dense.weight.abs().amax(dim=1, keepdim=True) / 127
    assert eight_bit(rounded, scale)
    assert not torch.equal(rounded, dense.weight)
    assert not any("embeddings" in name for name, _ in quantization.quantizers(model))


@pytest.mark.parametrize("name", [*CLASSES, "gpt2", "llama"])
def test_the_head_stays_in_floating_point_and_the_body_does_not(inputs, name):
    """A head is new when it is calibrated: a range from then would clip what it learns, gradient included."""
    model = quantization.quantize(classifier(name) if name in CLASSES else build(name), [inputs])
    body = model.base_model_prefix
    assert {found.split(".")[0] for found, _ in quantization.quantizers(model)} == {body}
    linear = [n for n, m in model.base_model.named_modules() if type(m).__name__.endswith("Linear")]
    names = {found for found, _ in quantization.quantizers(model)}
    assert all(f"{body}.{n}.input_quantizer" in names for n in linear)


def test_a_body_alone_is_quantised(inputs):
    body = quantization.quantize(classifier().bert, [inputs])
    assert any("pooler" in name for name, _ in quantization.quantizers(body))


def test_training_is_straight_through(inputs):
    model = quantization.quantize(classifier(spec="paper"), [inputs]).train()
    model(**inputs, labels=torch.tensor([0, 1, 0])).loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["gpt2", "llama", "roberta", "distilbert"])
def test_other_architectures_quantise(inputs, name):
    model = build(name)
    with torch.no_grad():
        before = model(**inputs)[0][2]
        quantization.quantize(model, [inputs])
        after = model(**inputs)[0][2]
    difference = (after - before).abs().max() / before.abs().max()
    assert 0 < difference < 0.2


def test_refusals(tmp_path, inputs):
    with pytest.raises(ValueError, match="at least one batch"):
        quantization.quantize(classifier(), [])
    with pytest.raises(ValueError, match="percentile = 101"):
        quantization.quantize(classifier(), [inputs], percentile=101)
    with pytest.raises(ValueError, match="BertModel attends as the model around it"):
        quantization.quantize(classifier(spec="paper").bert, [inputs])
    model = quantization.quantize(classifier(), [inputs])
    with pytest.raises(ValueError, match="already quantised"):
        quantization.quantize(model, [inputs])
