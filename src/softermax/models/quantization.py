"""8-bit weights and activations with the paper's percentile calibrator, on nvidia-modelopt.

`quantize` inserts quantisers into every linear layer and around the operands of QK^T and PV, and
calibrates the activations on batches of real data; training afterwards is quantisation-aware, with
straight-through gradients. Recipe:

- activations, Q, K and V: symmetric, 8 bits, one scale per tensor, the 99.999 percentile of what
  calibration saw;
- weights: symmetric, 8 bits, one scale per output channel, the largest weight of the channel as it is
  now (of a few hundred weights the 99.999 percentile is the largest), so the scale follows training;
- probabilities of the exact softmax: unsigned, 8 bits, scale 1/255. Softermax's own output words need
  no quantiser and bypass it;
- embeddings, layer norms and the task's head stay in floating point. The head is new before fine-tuning:
  what calibration sees there says nothing about the range it needs afterwards, and a range that is too
  narrow stops its gradient.

modelopt's calls are half internal: the version is pinned, and nothing outside this file uses them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from softermax.extras import need
from softermax.models.drop_in import EXACT, INT8, NAME, keep_softmax, use_softmax

PERCENTILE = 99.999

_EIGHT_BITS: dict[str, Any] = {"num_bits": 8, "axis": None}
_RECIPE: list[dict[str, Any]] = [
    {"quantizer_name": "*", "enable": False},
    {"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": 8, "axis": 0, "type": "dynamic"}},
    {"quantizer_name": "*input_quantizer", "cfg": _EIGHT_BITS | {"calibrator": "histogram"}},
    {"quantizer_name": "*[qkv]_bmm_quantizer", "cfg": _EIGHT_BITS | {"calibrator": "histogram"}},
    {"quantizer_name": "*p_bmm_quantizer", "cfg": _EIGHT_BITS | {"unsigned": True, "constant_amax": 1.0}},
    {"quantizer_name": "*LayerNorm*", "enable": False},
    {"quantizer_name": "*embeddings*", "enable": False},
]

MARK = {"quantization_config": {"quant_method": "softermax.models.quantization.load"}}
"""In the config of a quantised model: transformers alone cannot build it, and warns with the name of what can."""


def quantize(
    model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]], percentile: float = PERCENTILE
) -> PreTrainedModel:
    """Quantise a model in place and calibrate it on ``batches`` of keyword arguments of its forward.

    The model keeps Softermax if it has it; any other attention becomes the exact softmax whose
    operands and probabilities have 8 bits.
    """
    if not 0 < percentile <= 100:
        raise ValueError(f"percentile = {percentile}: must be above 0 and at most 100")
    if is_quantized(model):
        raise ValueError(f"{type(model).__name__} is already quantised")
    _convert(model, percentile)
    calibration = need("modelopt.torch.quantization.model_calib", "transformers")
    was_training = model.training
    model.eval()
    calibration.enable_stats_collection(model)
    count = 0
    with torch.no_grad():
        for batch in batches:
            model(**batch)
            count += 1
    if not count:
        raise ValueError("calibration needs at least one batch, got none")
    for name, quantizer in quantizers(model):
        if quantizer._calibrator is not None and not quantizer._dynamic and not _constant(quantizer):
            if quantizer._calibrator._calib_hist is None:
                raise ValueError(f"calibration never reached {name}")
            with quiet():
                quantizer.load_calib_amax("percentile", percentile=percentile)
            # The histogram is of no use any more, and would be copied with the model.
            quantizer._calibrator.reset()
        quantizer.enable_quant()
        quantizer.disable_calib()
    model.train(was_training)
    return model


def is_quantized(model: PreTrainedModel) -> bool:
    return getattr(model.config, INT8, None) is not None


def save(model: PreTrainedModel, folder: str | os.PathLike[str]) -> None:
    """Weights, scales and recipe, without pickle: what `load` turns into the same model again."""
    model.save_pretrained(folder)


def load(folder: str | os.PathLike[str], model_class: type[PreTrainedModel] | None = None) -> PreTrainedModel:
    """A model that was saved by `save` or by the Trainer, quantised or not, with its own attention."""
    from safetensors.torch import load_file

    path = Path(folder)
    config = AutoConfig.from_pretrained(path)
    recipe = getattr(config, INT8, None)
    chosen = model_class or architecture(config)
    if recipe is None:
        model: PreTrainedModel = chosen.from_pretrained(path)
        return model
    for name in (INT8, *MARK):
        if hasattr(config, name):
            delattr(config, name)
    model = chosen(config)
    _convert(model, recipe["percentile"])
    state = _read_state(path, load_file)
    for name, quantizer in quantizers(model):
        if f"{name}._amax" in state:
            quantizer.amax = state[f"{name}._amax"]
        elif not quantizer._dynamic:
            raise ValueError(f"{path}: no scale for {name}")
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = set(getattr(model, "all_tied_weights_keys", {}))
    if set(missing) - tied or unexpected:
        raise ValueError(f"{path}: weights do not fit: missing {missing[:3]}, unexpected {unexpected[:3]}")
    model.tie_weights()
    model.eval()
    return model


def architecture(config: Any) -> type[PreTrainedModel]:
    import transformers

    names = config.architectures or []
    found = getattr(transformers, names[0], None) if names else None
    if found is None:
        raise ValueError(f"config.json names no architecture that transformers has: {names}")
    return found  # type: ignore[no-any-return]


def _read_state(path: Path, load_file: Any) -> dict[str, Tensor]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        parts = ["model.safetensors"]
    state: dict[str, Tensor] = {}
    for part in parts:
        state |= load_file(path / part)
    return state


def _convert(model: PreTrainedModel, percentile: float) -> None:
    need("modelopt", "transformers")
    if model.config._attn_implementation not in (NAME, EXACT):
        use_softmax(model)
    with quiet():
        # modelopt speaks while it is imported, too.
        quantization: Any = importlib.import_module("modelopt.torch.quantization")
        quantization.quantize(model, {"quant_cfg": _RECIPE + _without_head(model), "algorithm": None})
    if not any(name.endswith("q_bmm_quantizer") for name, _ in quantizers(model)):
        raise ValueError(f"{type(model).__name__}: the operands of its attention cannot be quantised")
    keep_softmax(model)
    setattr(model.config, INT8, {"percentile": percentile})
    for name, value in MARK.items():
        setattr(model.config, name, value)


def _without_head(model: PreTrainedModel) -> list[dict[str, Any]]:
    """Recipe entries that leave out what a model has beside its pretrained body."""
    if model.base_model is model:
        return []
    heads = [name for name, child in model.named_children() if child is not model.base_model]
    return [{"quantizer_name": f"{name}.*", "enable": False} for name in heads]


def quantizers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    nn_module: Any = importlib.import_module("modelopt.torch.quantization.nn")
    for name, module in model.named_modules():
        if isinstance(module, nn_module.TensorQuantizer) and module.is_enabled:
            yield name, module


@contextlib.contextmanager
def without_quantizers(model: nn.Module) -> Iterator[None]:
    """Within the block, the model computes in floating point."""
    off = [quantizer for _, quantizer in quantizers(model)]
    try:
        for quantizer in off:
            quantizer.disable()
        yield
    finally:
        for quantizer in off:
            quantizer.enable()


def _constant(quantizer: Any) -> bool:
    return quantizer._constant_amax is not None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
