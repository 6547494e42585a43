"""A Llama that generates in int8: golden attention's bits, the same text with a cache as without, small, stored once."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

import softermax
from softermax import kernels
from softermax.golden import attention as golden
from softermax.models import deployment, int8_decoder
from softermax.models.generation import generate_in_turn, weight_bytes
from softermax.models.int8_decoder import CachedWords, TokenLinear
from softermax.spec import get_spec

pytest.importorskip("modelopt")
pytestmark = pytest.mark.skipif(not kernels.usable(), reason="the native core is not built here")
IDS = torch.randint(3, 97, (1, 24), generator=torch.Generator().manual_seed(1))


def llama(**changes):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 256, "initializer_range": 0.2, "eos_token_id": None,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**(sizes | changes))).eval()


@pytest.fixture(scope="module")
def model():
    return llama(tie_word_embeddings=True)


@pytest.fixture(scope="module")
def deployed(model):
    return softermax.deploy(model, calibration=[{"input_ids": IDS}])


@pytest.mark.parametrize("spec", ["paper+fold:deferred", "paper+fold"])
def test_attention_has_the_bits_of_the_golden_model_with_a_prompt_and_token_by_token(
    model, spec, monkeypatch
):
    calls = []

    def watched(q, k, v, spec, scale, value_scale, causal, threads):
        got = kernels.attention.int8_attention(
            q, k, v, spec, scale, value_scale, causal=causal, threads=threads
        )
        calls.append(q.shape)
        group = q.shape[1] // k.shape[1]
        for n, scales in enumerate(zip(scale, value_scale, strict=True)):
            heads = slice(n * group, (n + 1) * group)
            want = golden.attention(
                q[:, heads], k[:, n : n + 1], v[:, n : n + 1], spec, *scales, causal=causal
            ).value
            np.testing.assert_array_equal(got[:, heads], want)
        return got

    monkeypatch.setattr(int8_decoder, "int8_attention", watched)
    made = softermax.deploy(model, spec, calibration=[{"input_ids": IDS}])
    assert made.model.spec == get_spec(spec)
    generate_in_turn({"int8": made}, IDS[0], 4)
    assert {shape[2] for shape in calls} == {1, 24}  # a prompt's queries, and one
    assert all(shape[1] == 4 for shape in calls)  # all query heads at once


def test_hidden_states_are_near_those_in_floating_point(model, deployed):
    with torch.no_grad():
        want, got = model(input_ids=IDS).logits, deployed(input_ids=IDS).logits
    assert torch.cosine_similarity(want, got, dim=-1).min() > 0.98


def test_tokens_one_by_one_give_the_logits_of_all_at_once(deployed):
    """The cache's words are fixed when they are made, so that a cache changes nothing."""
    whole = deployed(input_ids=IDS, use_cache=False).logits
    past, some = None, []
    for token in IDS[0]:
        out = deployed(input_ids=token.reshape(1, 1), past_key_values=past, use_cache=True)
        past = out.past_key_values
        some.append(out.logits)
    torch.testing.assert_close(torch.cat(some, 1), whole, rtol=1e-5, atol=1e-5)
    assert past.get_seq_length() == IDS.shape[1]
    assert sum(layer.bytes for layer in past.layers) == 2 * 2 * 2 * 8 * IDS.shape[1]  # a byte per number


def test_transformers_generates_with_it_what_the_own_loop_does(deployed):
    ours = generate_in_turn({"int8": deployed}, IDS[0], 8)["int8"]
    theirs = deployed.generate(IDS, max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert theirs[0, IDS.shape[1] :].tolist() == ours.tokens
    assert len(ours.step_seconds) == 7
    assert ours.tokens_per_second > 0


def test_a_batch_of_equal_lengths_is_its_sequences(deployed):
    both = torch.cat([IDS, IDS.flip(1)])
    together = deployed(input_ids=both).logits
    apart = torch.cat([deployed(input_ids=one[None]).logits for one in both])
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-5)


def test_a_cache_grows_beyond_its_first_room_and_keeps_its_words():
    cache = CachedWords(1, 2, 4)
    rng = np.random.default_rng(0)
    pieces = [rng.integers(-127, 128, (2, 1, 2, n, 4)).astype(np.int8) for n in (40, 40, 300)]
    for k, v in pieces:
        keys, values = cache.append(k, v)
    np.testing.assert_array_equal(keys, np.concatenate([k for k, _ in pieces], 2))
    np.testing.assert_array_equal(values, np.concatenate([v for _, v in pieces], 2))


def test_each_token_has_the_scale_of_its_own_largest_number():
    torch.manual_seed(0)
    layer = torch.nn.Linear(32, 16, bias=False)
    x = torch.randn(5, 32) * torch.tensor([1e-3, 1.0, 1e3, 0.0, 7.0])[:, None]
    got, want = TokenLinear.of([layer])(x), layer(x).detach()
    apart = (got - want).norm(dim=1)
    torch.testing.assert_close(got[3], torch.zeros(16), rtol=0, atol=1e-6)
    assert (apart <= 0.03 * want.norm(dim=1))[[0, 1, 2, 4]].all()


def test_a_folder_holds_a_byte_per_weight_the_shared_head_once_and_loads_as_the_same_model(
    model, deployed, tmp_path
):
    deployment.save(deployed, tmp_path)
    again = deployment.load(tmp_path)
    torch.testing.assert_close(again(input_ids=IDS).logits, deployed(input_ids=IDS).logits, rtol=0, atol=0)
    assert weight_bytes(deployed) < 0.4 * weight_bytes(model)
    assert (tmp_path / deployment.WEIGHTS).stat().st_size < weight_bytes(deployed) + 8192


def test_the_original_stays_as_it_is(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attends_by = model.config._attn_implementation
    softermax.deploy(model, calibration=[{"input_ids": IDS}])
    assert model.config._attn_implementation == attends_by
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_what_it_cannot_do_is_refused_by_name(deployed):
    with pytest.raises(ValueError, match="attention_mask hides tokens"):
        deployed(input_ids=IDS, attention_mask=torch.tensor([[0] + [1] * 23]))
    with pytest.raises(ValueError, match="output_attentions = True"):
        deployed(input_ids=IDS, output_attentions=True)
    with pytest.raises(ValueError, match="attention_bias = True"):
        softermax.deploy(llama(attention_bias=True), calibration=[{"input_ids": IDS}])
    with pytest.raises(ValueError, match="AutoModelForCausalLM"):
        softermax.deploy(LlamaModel(llama().config), calibration=[{"input_ids": IDS}])
    past = llama()(input_ids=IDS).past_key_values
    with pytest.raises(ValueError, match="another model's keys"):
        deployed(input_ids=IDS[:, :1], past_key_values=past)


def test_generation_draws_by_its_seed_and_ends_at_its_stop(deployed):
    def drawn(seed, stop=None):
        return generate_in_turn({"int8": deployed}, IDS[0], 8, 2.0, seed, stop)["int8"].tokens

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1, stop=drawn(1)[2]) == drawn(1)[:3]
    with pytest.raises(ValueError, match="prompt has shape"):
        generate_in_turn({"int8": deployed}, IDS, 1)
