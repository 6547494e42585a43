"""Rivals in Hugging Face models."""

from __future__ import annotations

import copy
import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from softermax.finetune.run import Run, settings
from softermax.models.drop_in import Attended, disable, enable, enabled, observe, use_softmax
from softermax.rivals import get_rival, rivals

SMALL = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture
def bert():
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(**SMALL)).eval()


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1, 13:] = 0
    return {"input_ids": torch.randint(3, 97, (2, 20)), "attention_mask": mask}


def hidden(model, inputs):
    with torch.no_grad():
        return model(**inputs).last_hidden_state


def test_attends_with_the_words_of_the_numpy_model(bert, inputs) -> None:
    enable(bert, "rival:i-vit-8")
    assert enabled(bert) is get_rival("i-vit-8")
    calls = []
    with observe(calls.append):
        hidden(bert, inputs)
    assert len(calls) == 2
    for call in calls:
        mask = call.mask.expand(call.scores.shape)
        want = get_rival("i-vit-8").compute(call.scores.double().numpy(), mask.numpy())
        assert torch.equal(call.probabilities.double(), torch.from_numpy(want).float().double())


@pytest.mark.parametrize("name", [*rivals(), "i-bert:row-scaled", "cmsis-nn:deferred"])
def test_every_design_runs_and_attends_to_no_padding(bert, inputs, name) -> None:
    enable(bert, f"rival:{name}")
    calls = []
    with observe(calls.append):
        assert torch.isfinite(hidden(bert, inputs)).all()
    for call in calls:
        assert (call.probabilities[1, :, :, 13:] == 0).all()
        assert (call.probabilities[0].sum(-1) > 0.3).all()


def test_the_exact_rival_is_the_models_own_softmax(bert, inputs) -> None:
    own = hidden(bert, inputs)
    close = hidden(enable(bert, "rival:exact"), inputs)
    assert torch.allclose(close[inputs["attention_mask"] == 1], own[inputs["attention_mask"] == 1], atol=1e-5)


def test_a_causal_model_does_not_see_the_future() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SMALL, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model = enable(transformers.LlamaModel(config).eval(), "rival:softex")
    ids = torch.randint(3, 97, (1, 12))
    first = model(input_ids=ids).last_hidden_state
    ids[0, 8:] = 4
    assert torch.equal(model(input_ids=ids).last_hidden_state[0, :8], first[0, :8])


def test_the_gradient_is_the_softmaxs_straight_through(bert, inputs) -> None:
    enable(bert, "rival:ita").train()
    bert(**inputs).last_hidden_state.square().sum().backward()
    query = bert.encoder.layer[0].attention.self.query.weight
    assert torch.isfinite(query.grad).all()
    assert query.grad.abs().max() > 0


def test_consmax_learns_a_constant_pair_per_head(bert, inputs) -> None:
    enable(bert, "rival:consmax").train()
    names = [name for name, _ in bert.named_parameters() if "consmax" in name]
    assert names == [
        f"encoder.layer.{n}.attention.self.consmax_{what}" for n in (0, 1) for what in ("beta", "gamma")
    ]
    errors = []

    def see(call: Attended) -> None:
        kept = call.scores if call.mask is None else call.scores.masked_fill(~call.mask, -torch.inf)
        errors.append((call.probabilities - torch.softmax(kept, -1)).abs().sum(-1).mean())

    with observe(see):
        bert.eval()(**inputs)
    # The first pass fits them; zeros would have an error of 1.
    assert torch.stack(errors).max() < 0.3
    bert.train()(**inputs).last_hidden_state.square().sum().backward()
    attention = bert.encoder.layer[0].attention.self
    assert attention.consmax_beta.shape == (4,)
    assert (attention.consmax_beta.grad != 0).all()
    assert (attention.consmax_gamma.grad != 0).all()


def test_what_was_enabled_is_saved_and_loaded(bert, inputs, tmp_path) -> None:
    for name in ("rival:index-softmax:deferred", "rival:consmax"):
        want = hidden(enable(bert, name), inputs)
        bert.save_pretrained(tmp_path)
        again = transformers.BertModel.from_pretrained(tmp_path).eval()
        assert enabled(again).name == name.removeprefix("rival:")
        assert torch.equal(hidden(again, inputs), want)


def test_another_attention_leaves_nothing_of_consmax_behind(bert, inputs) -> None:
    before = copy.deepcopy(bert.state_dict())
    own = hidden(use_softmax(bert), inputs)
    hidden(enable(bert, "rival:consmax"), inputs)
    assert torch.equal(hidden(use_softmax(bert), inputs), own)
    assert bert.state_dict().keys() == before.keys()
    hidden(enable(bert, "rival:consmax"), inputs)
    hidden(enable(bert, "paper"), inputs)
    assert bert.state_dict().keys() == before.keys()
    disable(enable(bert, "rival:consmax"))
    assert bert.state_dict().keys() == before.keys()
    assert enabled(bert) is None


def test_unknown_rivals_are_refused_before_anything_changes(bert) -> None:
    before = bert.config._attn_implementation
    with pytest.raises(ValueError, match="unknown rival 'rival:nobody'"):
        enable(bert, "rival:nobody")
    assert bert.config._attn_implementation == before


def test_a_fine_tuning_run_takes_a_rival_as_its_preset() -> None:
    run = Run(task="stsb", preset="rival:i-bert:deferred")
    assert settings(run)["spec"] == {"rival": "i-bert:deferred"}
    assert run.cell == "minilm-stsb-softermax-rival-i-bert-deferred-0"
    with pytest.raises(ValueError, match="unknown rival"):
        Run(task="stsb", preset="rival:nobody")
    with pytest.raises(ValueError, match="either a fold or"):
        Run(task="stsb", preset="rival:ita+absorbed")
