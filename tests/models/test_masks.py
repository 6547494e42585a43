"""Additive masks and biases, and slices that stay where they are when a cache drops keys."""

from types import SimpleNamespace

import pytest
import torch

from softermax.models import masks
from softermax.models.attention import softermax_attention
from softermax.models.drop_in import enable, observe
from softermax.spec import get_spec

from .tiny_models import build

SPECS = ("paper", "paper+fold", "row-scaled+fold", "paper+fold:deferred")
WINDOWS = ("gemma3", "mistral", "phi3", "qwen2")


class Attention(torch.nn.Module):
    """As much of an attention module as the interface needs."""

    def __init__(self, spec):
        super().__init__()
        self.config = SimpleNamespace(softermax=get_spec(spec).to_dict())


def attend(spec, scores, mask):
    """Probabilities for given scores: queries are the scores, keys the unit vectors."""
    keys = scores.shape[-1]
    unit = torch.eye(keys).expand(1, 1, keys, keys)
    _, probabilities = softermax_attention(
        Attention(spec).eval(), scores[None, None], unit, unit, mask, scaling=1.0
    )
    return probabilities[0, 0]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("value", [-1e4, -1e9, -100.0, torch.finfo(torch.float32).min, -torch.inf])
def test_an_additive_mask_masks_whatever_its_value(spec, value, inputs):
    """With gradients, so that both compute their scores alike: fused attention, for boolean masks, sums in another order."""
    model = enable(build("bert"), spec)
    keep = inputs["attention_mask"].bool()[:, None, None, :].expand(3, 1, 21, 21)
    expected = model(inputs["input_ids"], attention_mask=keep)[0]
    additive = torch.zeros(keep.shape).masked_fill(~keep, value)
    assert torch.equal(model(inputs["input_ids"], attention_mask=additive)[0], expected)


@pytest.mark.parametrize("value", [-1e4, -100.0])
def test_a_masked_key_gets_nothing_of_a_row_of_low_scores(value):
    """Saturated to -32 beside scores of -28 it got 6 %."""
    scores = torch.full((1, 4), -28.0)
    mask = torch.tensor([[[[0.0, 0.0, 0.0, value]]]])
    assert attend("paper", scores, mask)[0, 3] == 0


@pytest.mark.parametrize("spec", SPECS)
def test_a_bias_is_part_of_the_score(spec):
    torch.manual_seed(0)
    scores = torch.randn(40, 40) * 2
    distance = torch.arange(40.0)[:, None] - torch.arange(40.0)
    bias = torch.where(distance >= 0, -distance / 4, torch.finfo(torch.float32).min)
    ours = attend(spec, scores, bias[None, None])
    expected = get_spec(spec).compute((scores - distance.clamp(min=0) / 4).numpy(), (distance >= 0).numpy())
    torch.testing.assert_close(ours.double(), torch.from_numpy(expected), atol=0, rtol=1e-6)


@pytest.mark.parametrize("spec", ["paper+fold", "row-scaled+fold"])
def test_a_steep_bias_weighs_what_the_exact_softmax_gives(spec):
    """ALiBi's steepest slope over long rows leaves the input word's range; far keys vanish, near ones stay."""
    torch.manual_seed(0)
    scores = torch.randn(4, 400)
    bias = torch.arange(400.0) - 399
    ours = attend(spec, scores, bias.expand(1, 1, 4, 400))
    exact = torch.softmax(scores + bias, -1)
    # Half a step of the input word, 2^(1/8), in numerator and sum; two units of the output word.
    assert ((ours - exact).abs() <= exact * (2**0.25 - 1) + 2 / 128).all()
    assert not ours[:, :300].any()


def test_a_constant_over_a_row_changes_nothing():
    """As an ALiBi that counts from the last key has in the first rows; unmoved, all scores would saturate alike."""
    torch.manual_seed(0)
    scores = torch.randn(3, 20) * 3
    bias = torch.arange(20.0) / 2
    near = attend("paper+fold", scores, bias.expand(1, 1, 3, 20))
    far = attend("paper+fold", scores, (bias - 1000).expand(1, 1, 3, 20))
    assert torch.equal(near, far)


def test_what_is_within_reach_counts():
    spec = get_spec("paper")
    scores = torch.tensor([[-33.0, -40.0, -49.9, -50.1, -1e4]])
    keep = torch.tensor([[True, True, True, True, True]])
    # The largest is -33, and unnormed words have 15 bits of fraction.
    assert masks.within_reach(scores, keep, spec).tolist() == [[True, True, True, False, False]]
    in_range = torch.tensor([[20.0, -31.0, -32.0, -33.0, 31.0]])
    keep[0, 4] = False
    assert masks.within_reach(in_range, keep, spec).tolist() == [[True, True, True, False, False]]


def test_a_nan_beside_a_bias_is_an_error():
    scores = torch.tensor([[1.0, torch.nan, 2.0]])
    with pytest.raises(ValueError, match="finite"):
        attend("paper", scores, torch.tensor([[[[0.0, 0.0, -1e4]]]]))


def test_a_mask_of_integers_is_refused():
    with pytest.raises(ValueError, match=r"mask of type torch\.int64: must be boolean, or floating-point"):
        attend("paper", torch.zeros(1, 4), torch.ones(1, 1, 1, 4, dtype=torch.int64))


def by_pieces(model, ids, pieces):
    """Logits of a pass in pieces, each with the cache that the one before left."""
    past, logits = None, []
    for piece in ids.split(pieces, dim=1):
        output = model(input_ids=piece, past_key_values=past, use_cache=True)
        past = output.past_key_values
        logits.append(output.logits)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("pieces", [[1] * 40, [21] + [1] * 19, [13, 27]])
@pytest.mark.parametrize("spec", ["paper+fold", "row-scaled+fold", "paper+fold:deferred"])
@pytest.mark.parametrize("name", WINDOWS)
def test_with_a_sliding_window_token_by_token_equals_the_full_pass(name, spec, pieces):
    """Slices are counted from the first token, not from the first that the cache still holds."""
    model = enable(build(name), spec)
    ids = torch.randint(5, 97, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        full = model(input_ids=ids).logits
        torch.testing.assert_close(by_pieces(model, ids, pieces), full, atol=1e-4, rtol=1e-4)


def test_the_window_is_shorter_than_the_row():
    """What the tests above rely on: keys were dropped, and slices would have moved."""
    model, lengths = enable(build("mistral")), []
    ids = torch.randint(5, 97, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), observe(lambda call: lengths.append(call.scores.shape[-1])):
        by_pieces(model, ids, [1] * 40)
    assert max(lengths) == 8
