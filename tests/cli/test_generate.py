"""softermax generate: text, speed and memory of a Llama in int8, beside the same in single precision."""

import json

import pytest

from softermax import kernels
from softermax.cli import main

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("modelopt")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{n}": n for n in range(64)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="w0").save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, initializer_range=0.2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    monkeypatch.setattr(
        "softermax.models.pretrained.plain_text",
        lambda count: " ".join(f"w{n % 61}" for n in range(count // 4)),
    )
    return str(tmp_path)


@pytest.mark.skipif(not kernels.usable(), reason="the native core is not built here")
def test_generate_prints_text_speed_and_memory_of_both(folder, tmp_path, capsys):
    before = torch.get_num_threads()
    line = [
        "generate",
        "w5 w7 w9",
        "--model",
        folder,
        "--tokens",
        "5",
        "--compare",
        "--json",
        "--threads",
        "1",
    ]
    try:
        assert main([*line, "--perplexity", "1", "--out", str(tmp_path / "out")]) == 0
    finally:
        torch.set_num_threads(before)
    rows = {row["arithmetic"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["int8"]["spec"] == "paper+fold:deferred"
    assert rows["fp32"]["spec"] == "exact"
    for row in rows.values():
        assert len(row["text"].split()) == row["tokens"] == 5
        assert row["tokens/s"] > 0
        assert row["perplexity"] > 1
    assert rows["fp32"]["cache MB"] == pytest.approx(4 * rows["int8"]["cache MB"], abs=0.002)
    assert rows["int8"]["weights MB"] < rows["fp32"]["weights MB"]
    assert json.loads((tmp_path / "out" / "generate.json").read_text())["rows"] == list(rows.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([""], "PROMPT is empty"),
        (["x", "--temperature", "-1"], "--temperature -1.0: must be 0 or more"),
        (["x", "--tokens", "0"], "--tokens 0: must be 1 or more"),
        (["x", "--spec", "papper"], "papper"),
    ],
)
def test_generate_names_a_mistake_before_it_loads_a_model(options, message, capsys):
    assert main(["generate", *options, "--model", "some/llama"]) == 2
    assert message in capsys.readouterr().err
