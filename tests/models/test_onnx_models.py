"""A quantised model with Softermax in ONNX: onnxruntime's outputs, and its operator's bits."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("modelopt", reason="nvidia-modelopt is not installed")

from softermax.cli import main
from softermax.models import onnx as onnx_models
from softermax.models import onnx_graph, quantization
from softermax.models.drop_in import Attended, enable, enabled, observe
from softermax.pytorch import onnx_operator
from softermax.pytorch.onnx import exportable

compiled = pytest.mark.skipif(
    onnx_operator.library() is None, reason="the native core is not installed: no C++ compiler"
)


def tiny_bert(labels: int = 2) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, initializer_range=0.3, num_labels=labels,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def batch(rows: int, tokens: int) -> dict[str, Any]:
    ids = torch.randint(0, 97, (rows, tokens))
    mask = torch.ones_like(ids)
    mask[0, tokens // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@pytest.fixture(scope="module")
def model() -> Any:
    # One label, as for a regression: the scales of a layer with one output have a form of their own.
    model = enable(tiny_bert(labels=1), "paper+fold")
    return quantization.quantize(model, [batch(4, 20) for _ in range(3)])


@pytest.fixture(scope="module")
def exported(model: Any, tmp_path_factory: pytest.TempPathFactory) -> onnx_models.Exported:
    return onnx_models.export_model(model, tmp_path_factory.mktemp("onnx") / "model.onnx")


def run(path: Path, inputs: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    feeds = {name: value.numpy() for name, value in inputs.items()}
    return onnx_models.session(path).run(None, feeds)  # type: ignore[no-any-return]


def test_onnxruntime_gives_the_models_outputs(model: Any, exported: onnx_models.Exported) -> None:
    assert exported.int8
    assert exported.difference < 1e-3
    assert exported.optimised_difference < 1e-3
    assert all("::" not in operator for operator in exported.operators)
    assert exported.operators["QuantizeLinear"] > 0
    path = Path(exported.file)
    assert path.stat().st_size == pytest.approx(exported.megabytes * 1e6)
    inputs = batch(5, 30)
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    (logits,) = run(path, inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-3 * np.abs(expected).max())
    stored = {tensor.data_type for tensor in onnx.load(path).graph.initializer if len(tensor.dims) == 2}
    assert onnx.TensorProto.INT8 in stored


def test_the_model_keeps_its_dynamic_scales(model: Any) -> None:
    quantizer = model.bert.pooler.dense.weight_quantizer
    inputs = batch(2, 8)
    with torch.no_grad():
        before = model(**inputs).logits
        with onnx_models.static_weights(model):
            assert not quantizer._dynamic
            assert (model(**inputs).logits == before).all()
        assert quantizer._dynamic
        assert (model(**inputs).logits == before).all()


class _Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
    """The model's scores, masks and probabilities, layer by layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any) -> tuple[Any, ...]:
        seen: list[Any] = []

        def see(attended: Attended) -> None:
            seen.extend(
                [attended.scores, attended.mask.expand(attended.scores.shape), attended.probabilities]
            )  # type: ignore[union-attr]

        with observe(see):
            self.model(input_ids=input_ids, attention_mask=attention_mask)
        return tuple(seen)


def test_the_operator_in_the_model_is_bit_exact(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "attention.onnx"
    names = ["input_ids", "attention_mask"]
    traced = tuple(batch(2, 11)[name] for name in names)
    with warnings.catch_warnings(), torch.no_grad(), exportable(), onnx_models.static_weights(model):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Attention(model).eval(), traced, str(path), dynamo=False, opset_version=18, input_names=names,
            dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        )  # fmt: skip
    spec = enabled(model)
    assert spec is not None
    inputs = batch(3, 37)
    outputs = run(path, {name: inputs[name] for name in names})
    assert len(outputs) == 3 * model.config.num_hidden_layers
    for scores, mask, probabilities in zip(*(iter(outputs),) * 3, strict=True):
        assert scores.shape == (3, 4, 37, 37)
        assert not mask.all()
        assert (probabilities == spec.compute(scores, mask).astype(np.float32)).all()


_SMALL = {"vocab_size": 97, "max_position_embeddings": 64}
_BERT = _SMALL | {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48
}  # fmt: skip
_OTHERS: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": _BERT,
    "RobertaForQuestionAnswering": _BERT,
    "LlamaForCausalLM": _BERT | {"num_key_value_heads": 2},
    "DistilBertForSequenceClassification": _SMALL
    | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "GPT2LMHeadModel": {"vocab_size": 97, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _OTHERS)
def test_other_architectures_not_quantised(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = getattr(transformers, name)
    model = made(made.config_class(**_OTHERS[name])).eval()
    done = onnx_models.export_model(enable(model, "row-scaled"), tmp_path / "model.onnx")
    assert not done.int8
    assert done.difference < 1e-3


def test_a_graph_that_differs_is_refused(
    model: Any, exported: onnx_models.Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trace(model: Any, names: list[str], path: Path, operator: str) -> None:
        proto = onnx.load(exported.file)
        bias = next(tensor for tensor in proto.graph.initializer if tensor.name.endswith("classifier.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(np.full(1, 9, dtype=np.float32), bias.name))
        onnx.save(proto, path)

    monkeypatch.setattr(onnx_models, "_trace", trace)
    path = tmp_path / "model.onnx"
    path.write_text("what was there")
    with pytest.raises(ValueError, match="does not survive tracing"):
        onnx_models.export_model(model, path)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_permitted_is_what_quantisation_itself_does(
    model: Any, exported: onnx_models.Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference that 8 bits make anyway passes, a larger one does not, and one may say what does."""
    inputs = batch(3, 24)
    with torch.no_grad():
        quantised = model(**inputs).logits
        with quantization.without_quantizers(model):
            assert not torch.equal(model(**inputs).logits, quantised)
        assert torch.equal(model(**inputs).logits, quantised)
    assert exported.quantised_difference > 0
    monkeypatch.setattr(onnx_models, "_quantised_difference", lambda model, names: 0.2)
    monkeypatch.setattr(onnx_models, "_difference", lambda *arguments, **options: 0.3)
    assert onnx_models.export_model(model, tmp_path / "model.onnx").quantised_difference == 0.2
    monkeypatch.setattr(onnx_models, "_difference", lambda *arguments, **options: 0.5)
    with pytest.raises(
        ValueError, match=r"differ by 0.5 .* at most 0.4 \(quantisation itself moves them by 0.2\)"
    ):
        onnx_models.export_model(model, tmp_path / "other.onnx")
    onnx_models.export_model(model, tmp_path / "other.onnx", tolerance=0.6)
    with pytest.raises(ValueError, match="tolerance = 0: must be greater than 0"):
        onnx_models.export_model(model, tmp_path / "other.onnx", tolerance=0)


@compiled
def test_with_the_custom_operator_an_attention_is_one_node(
    model: Any, exported: onnx_models.Exported, tmp_path: Path
) -> None:
    done = onnx_models.export_model(model, tmp_path / "model.onnx", operator="custom")
    assert done.operators["softermax::SoftermaxAttention"] == model.config.num_hidden_layers
    assert done.difference < 1e-3
    assert done.optimised_difference < 1e-3
    assert exported.nodes - done.nodes > 45 * model.config.num_hidden_layers
    # Heads are read and written where they are: no Q, K, V or output is moved.
    assert done.operators["Transpose"] <= exported.operators["Transpose"] - 5 * model.config.num_hidden_layers
    inputs = batch(5, 30)
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    (logits,) = run(tmp_path / "model.onnx", inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-3 * np.abs(expected).max())


@compiled
def test_in_a_float_model_the_custom_operator_is_softermax_alone(tmp_path: Path) -> None:
    model = enable(tiny_bert(), "lean")
    done = onnx_models.export_model(model, tmp_path / "model.onnx", operator="custom")
    assert done.operators["softermax::Softermax"] == model.config.num_hidden_layers
    assert "Expand" not in {node.op_type for node in _attention_nodes(tmp_path / "model.onnx")}
    assert done.optimised_difference < 1e-3


def _attention_nodes(path: Path) -> list[Any]:
    return [node for node in onnx.load(path).graph.node if "/attention/self/" in node.name]


@compiled
def test_without_the_library_a_session_says_what_is_missing(
    tmp_path: Path, exported: onnx_models.Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    model = enable(tiny_bert(), "paper")
    onnx_models.export_model(model, path, operator="custom")
    monkeypatch.setattr(onnx_operator, "library", lambda: None)
    with pytest.raises(ValueError, match=r"operator for onnxruntime is missing.*C\+\+ compiler"):
        onnx_models.session(path)
    onnx_models.session(exported.file)  # standard operators need none
    with pytest.raises(ValueError, match="operator for onnxruntime is missing"):
        onnx_models.export_model(model, path, operator="custom")


def test_large_embeddings_are_stored_in_8_bits(
    model: Any, exported: onnx_models.Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graph, "LARGE_TABLE", 97 * 32)
    path = tmp_path / "model.onnx"
    done = onnx_models.export_model(model, path)
    table = model.bert.embeddings.word_embeddings.weight.detach().numpy()
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    (words,) = (value for name, value in stored.items() if name.endswith("word_embeddings.weight.words"))
    (scale,) = (value for name, value in stored.items() if name.endswith("word_embeddings.weight.scale"))
    assert words.dtype == np.int8
    assert (np.abs(words * scale - table) <= scale / 2 * 1.001).all()
    assert not any(name.endswith("word_embeddings.weight") for name in stored)
    assert done.megabytes < exported.megabytes
    assert done.difference == exported.difference  # of the graph that was traced
    kept = onnx_models.export_model(model, path, int8_embeddings=False)
    assert kept.megabytes == pytest.approx(exported.megabytes, rel=0.01)


def test_deferred_normalisation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="deferred"):
        onnx_models.export_model(enable(tiny_bert(), "paper:deferred"), tmp_path / "model.onnx")


def test_the_command_exports_a_saved_model(
    model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantization.save(model, tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "model.onnx"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["int8"] is True
    inputs = batch(2, 9)
    with torch.no_grad():
        expected = model(**inputs).logits.numpy()
    (logits,) = run(tmp_path / "model.onnx", inputs)
    np.testing.assert_allclose(logits, expected, atol=1e-3 * np.abs(expected).max())


@compiled
def test_the_command_exports_the_custom_operator(
    model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantization.save(model, tmp_path / "model")
    arguments = [
        "export",
        str(tmp_path / "model"),
        str(tmp_path / "model.onnx"),
        "--operator",
        "custom",
        "--json",
    ]
    assert main(arguments) == 0
    assert "softermax::SoftermaxAttention" in json.loads(capsys.readouterr().out)["operators"]


def test_the_command_says_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "out.onnx")]) == 2
    assert "no config.json" in capsys.readouterr().err
