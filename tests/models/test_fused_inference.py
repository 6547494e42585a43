"""Without gradients a model attends in the fused kernel: same words, and only where nobody needs the probabilities."""

import pytest
import torch

from softermax import kernels
from softermax.models import attention
from softermax.models.drop_in import enable, observe

from .tiny_models import build, some_inputs

pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the native core is not built here")


@pytest.fixture
def calls(monkeypatch):
    """How often the fused kernel ran."""
    seen = []
    original = attention.float_attention
    monkeypatch.setattr(attention, "float_attention", lambda *a: seen.append(1) or original(*a))
    return seen


def state(output):
    return output.last_hidden_state if "last_hidden_state" in output else output.logits


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "llama", "mistral", "gpt2"])
def test_without_gradients_outputs_are_the_same_but_for_rounding(kind, calls):
    model = enable(build(kind), "paper+fold")
    inputs = some_inputs(model)
    with_gradients = state(model(**inputs))
    assert not calls
    with torch.no_grad():
        without = state(model(**inputs))
    assert calls
    keep = inputs["attention_mask"].bool()
    assert (with_gradients - without)[keep].abs().max() < 1e-4


def test_who_asks_for_probabilities_gets_them(calls):
    model = enable(build("bert"), "paper")
    inputs = some_inputs(model)
    with torch.no_grad():
        given = model(**inputs, output_attentions=True).attentions
        assert len(given) == 2
        assert all(p.shape == (3, 4, 21, 21) for p in given)
        seen = []
        with observe(seen.append):
            model(**inputs)
        assert torch.equal(seen[0].probabilities, given[0])
    assert not calls


@pytest.mark.parametrize("spec", ["paper+fold:deferred", "rival:i-bert"])
def test_what_the_fused_kernel_does_not_cover_goes_the_other_way(spec, calls):
    model = enable(build("bert"), spec)
    with torch.no_grad():
        model(**some_inputs(model))
    assert not calls


def test_an_argument_that_softermax_does_not_handle_is_refused_there_too():
    model = enable(build("bert"), "paper")
    module = model.encoder.layer[0].attention.self
    q = torch.randn(1, 4, 5, 8)
    with torch.no_grad(), pytest.raises(ValueError, match="passes softcap to its attention"):
        attention.softermax_attention(module, q, q, q, None, softcap=3.0)
