"""Models that are really int8: `deploy` makes one of a Hugging Face model, `save` and `load` keep it in a folder.

The model that comes out has the forward pass of the one that went in, and its outputs. Its embeddings are int8 rows, its
encoder one call of the native core (`softermax.kernels.encoder`), and its task's head stays in floating point. Scales are
those of `softermax.models.quantization`: a quantised model brings its own, any other is calibrated here, as a copy.

A Llama becomes a decoder that generates, with a cache of words (`softermax.models.int8_decoder`); only its heads' scales
are calibrated.

What an encoder computes differs from the fake-quantised model only by how floats round: sums of products are exact integers here,
GELU is a polynomial within 0.0005, and where weights have 7 bits (AVX2) they are rounded once more.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionMaskInterface, AutoConfig, AutoTokenizer, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from softermax.files import replacing, write_text
from softermax.kernels.core import isa, status
from softermax.kernels.plan import refusal
from softermax.models import quantization
from softermax.models.drop_in import INT8, enable, enabled
from softermax.models.int8_decoder import convert, refusal_to_deploy, with_int8_body
from softermax.models.int8_modules import (
    EncoderSizes,
    Int8Embedding,
    Int8Encoder,
    Int8EncoderLayer,
    Int8Linear,
    OneThread,
)
from softermax.models.pretrained import plain_text
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, get_spec, spec_from_dict

DEPLOYED = "softermax_deployed"
"""Field of a deployed model's config, with its spec, and the name of its attention's mask."""
SPEC = "paper+fold"
"""For an encoder that attends with no Softermax yet."""
DECODER_SPEC = "paper+fold:deferred"
"""For such a decoder: rows that are divided at their end keep a language model's perplexity without retraining."""
DECODERS = ("llama",)
"""By the config's model_type."""
CALIBRATION = (16, 128)
"""Sequences and tokens of prose that calibrate a model where nothing is given."""
WEIGHTS = "model.safetensors"

Calibration = Iterable[str] | Iterable[Mapping[str, Tensor]]


@dataclass(frozen=True)
class Architecture:
    """Where a family of encoders keeps its parts: paths in the model's body, in the config, and in a layer."""

    encoder: str
    layers: str
    inner: str
    activation: str
    attention: str
    query: str
    key: str
    value: str
    out: str
    attention_norm: str
    up: str
    down: str
    network_norm: str


_BERT = Architecture(
    encoder="encoder", layers="num_hidden_layers", inner="intermediate_size", activation="hidden_act",
    attention="attention.self", query="attention.self.query", key="attention.self.key", value="attention.self.value",
    out="attention.output.dense", attention_norm="attention.output.LayerNorm", up="intermediate.dense",
    down="output.dense", network_norm="output.LayerNorm",
)  # fmt: skip
_DISTILBERT = Architecture(
    encoder="transformer", layers="n_layers", inner="hidden_dim", activation="activation", attention="attention",
    query="attention.q_lin", key="attention.k_lin", value="attention.v_lin", out="attention.out_lin",
    attention_norm="sa_layer_norm", up="ffn.lin1", down="ffn.lin2", network_norm="output_layer_norm",
)  # fmt: skip
ARCHITECTURES = {
    "bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "camembert": _BERT, "distilbert": _DISTILBERT,
}  # fmt: skip
"""By the config's model_type."""
GELUS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_python", "gelu_fast")


def deploy(
    model: PreTrainedModel,
    spec: AnySpec | str | None = None,
    calibration: Calibration | None = None,
    percentile: float = quantization.PERCENTILE,
) -> PreTrainedModel:
    """An int8 copy of an encoder or a Llama, for inference on a CPU; ``model`` stays as it is.

    ``spec`` is what the model attends with unless given, or `SPEC`, for a decoder `DECODER_SPEC`. ``calibration``, texts or batches of keyword
    arguments, gives a model in floating point its scales; a quantised one has them.
    """
    if getattr(model.config, "model_type", "") in DECODERS:
        return _deployed_decoder(model, spec, calibration)
    _architecture_of(model)
    chosen = _spec_of(model, spec, SPEC)
    source = model
    if not quantization.is_quantized(model):
        source = copy.deepcopy(model).eval()
        enable(source, chosen)
        quantization.quantize(source, _batches(model, calibration), percentile)
    elif calibration is not None:
        raise ValueError("calibration is given, but the model is quantised and has its scales: leave it out")
    return _converted(source, chosen)


def save(model: PreTrainedModel, folder: str | os.PathLike[str]) -> None:
    """A deployed model as a folder: ``config.json`` and its words, scales and head in ``model.safetensors``."""
    from safetensors.torch import save_file

    if getattr(model.config, DEPLOYED, None) is None:
        raise ValueError(f"{type(model).__name__} is not deployed: save what softermax.deploy(model) gives")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    state: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if all(value.data_ptr() != known.data_ptr() for known in state.values()):
            state[name] = value.contiguous()
    with replacing(path / WEIGHTS) as partial:
        save_file(state, partial)
    write_text(path / "config.json", json.dumps(model.config.to_dict(), indent=2) + "\n")


def load(folder: str | os.PathLike[str]) -> PreTrainedModel:
    """What `save` wrote. Tensors are mapped from the file, and packed when the model first runs."""
    from safetensors.torch import load_file

    path = Path(folder)
    if not (path / WEIGHTS).is_file():
        raise ValueError(
            f"{path}: no {WEIGHTS} in it; must be a folder that softermax.models.deployment.save wrote"
        )
    config = AutoConfig.from_pretrained(path)
    setting = getattr(config, DEPLOYED, None)
    if setting is None:
        raise ValueError(
            f"{path}: not a deployed model; softermax.models.quantization.load takes other folders"
        )
    state = load_file(path / WEIGHTS)
    model_class, spec = quantization.architecture(config), spec_from_dict(setting["spec"])
    if config.model_type in DECODERS:
        model = _decoder_skeleton(model_class, config, spec)
        for part in ("words", "scale"):  # a head that shares the embeddings is stored once
            state.setdefault(f"lm_head.{part}", state[f"model.embed_tokens.{part}"])
    else:
        model = _skeleton(model_class, config, spec)
        _leave_out_pooler(model, any(".pooler." in f".{name}" for name in state))
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if missing or unexpected:
        raise ValueError(f"{path}: weights do not fit: missing {missing[:3]}, unexpected {unexpected[:3]}")
    return model


class _Body(nn.Module):
    """The int8 encoder as transformers calls it."""

    def __init__(self, sizes: EncoderSizes, spec: AnySpec) -> None:
        super().__init__()
        self.int8 = Int8Encoder(sizes, spec)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **others: Any
    ) -> BaseModelOutput:
        for name in ("encoder_hidden_states", "past_key_values"):
            if others.get(name) is not None:
                raise ValueError(f"{name}: an int8 encoder attends to its own tokens only")
        return _EncoderOutput(last_hidden_state=self.int8(hidden_states, attention_mask))


class _EncoderOutput(BaseModelOutput):
    past_key_values = None


def _mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """transformers' mask interface: (batch, tokens) as it came."""
    return attention_mask


def _refuse_inner_outputs(model: PreTrainedModel, args: Any, keywords: dict[str, Any]) -> None:
    for name in ("output_attentions", "output_hidden_states"):
        wanted = keywords.get(name)
        if getattr(model.config, name, False) if wanted is None else wanted:
            raise ValueError(
                f"{name} = True: the layers of an int8 encoder run as one; only their result is known"
            )


def _architecture_of(model: PreTrainedModel) -> Architecture:
    config = model.config
    kind = getattr(config, "model_type", "")
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"{type(model).__name__} (model_type {kind!r}) cannot be deployed: must be one of "
            f"{', '.join((*ARCHITECTURES, *DECODERS))}"
        )
    found = ARCHITECTURES[kind]
    activation = getattr(config, found.activation)
    if activation not in GELUS:
        raise ValueError(f"{found.activation} = {activation!r}: must be one of {', '.join(GELUS)}")
    if getattr(config, "is_decoder", False):
        raise ValueError(f"{type(model).__name__} is a decoder: of decoders only a Llama can be deployed")
    return found


def _spec_of(model: PreTrainedModel, spec: AnySpec | str | None, otherwise: str) -> AnySpec:
    chosen: object = (
        get_spec(spec) if isinstance(spec, str) else spec or enabled(model) or get_spec(otherwise)
    )
    if not isinstance(chosen, (SoftermaxSpec, DeferredSpec)):
        raise TypeError(f"spec = {chosen!r}: must be a SoftermaxSpec, a DeferredSpec or the name of one")
    if isa() is None:
        raise RuntimeError(f"int8 models need the native core; {status()}")
    reason = refusal(chosen)
    if reason is not None:
        raise ValueError(f"spec: the native core does not take it: {reason}")
    return chosen


def _batches(model: PreTrainedModel, calibration: Calibration | None) -> list[Mapping[str, Tensor]]:
    """Batches for calibration: as given, of the texts given, or of prose."""
    sequences, tokens = CALIBRATION
    given: list[Any] = _prose(model, sequences, tokens) if calibration is None else list(calibration)
    if not given:
        raise ValueError("calibration needs at least one text or batch, got none")
    if not isinstance(given[0], str):
        return given
    tokenizer = _tokenizer(model)
    encoded = [
        tokenizer(text, truncation=True, max_length=_longest(model), return_tensors="pt") for text in given
    ]
    return [dict(one) for one in encoded]


def _longest(model: PreTrainedModel) -> int:
    return min(int(getattr(model.config, "max_position_embeddings", 512)), 512) - 2


def _tokenizer(model: PreTrainedModel) -> Any:
    try:
        return AutoTokenizer.from_pretrained(model.config._name_or_path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no tokenizer at {model.config._name_or_path!r}: give calibration as batches, for example "
            "calibration=[tokenizer(texts, padding=True, return_tensors='pt')]"
        ) from error


def _prose(model: PreTrainedModel, sequences: int, tokens: int) -> list[str]:
    text = plain_text(8 * sequences * tokens)
    step = len(text) // sequences
    return [text[n * step : n * step + 6 * tokens] for n in range(sequences)]


def _sizes(config: Any, where: Architecture) -> EncoderSizes:
    epsilon = getattr(config, "layer_norm_eps", 1e-12)
    return EncoderSizes(
        getattr(config, where.layers), config.hidden_size, getattr(config, where.inner), config.num_attention_heads,
        float(epsilon),
    )  # fmt: skip


def _skeleton(model_class: type[PreTrainedModel], config: Any, spec: AnySpec) -> PreTrainedModel:
    """A model of that class with int8 modules in it, whose weights are still to come."""
    config = _unmarked(config)
    where = ARCHITECTURES[config.model_type]
    sizes = _sizes(config, where)
    config._attn_implementation_internal = "eager"
    setattr(config, where.layers, 0)  # its layers would be thrown away
    model: Any = model_class(config)
    setattr(config, where.layers, sizes.layers)
    body: Any = model.base_model
    setattr(body, where.encoder, _Body(sizes, spec))
    for parent in body.embeddings.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Embedding):
                setattr(
                    parent, name, Int8Embedding(child.num_embeddings, child.embedding_dim, child.padding_idx)
                )
    for part in {id(model): model, id(body): body}.values():
        part.config._attn_implementation_internal = DEPLOYED
    _mark(config, model_class, spec)
    model.config = body.config = config
    model.register_forward_pre_hook(_refuse_inner_outputs, with_kwargs=True)
    OneThread(model)
    model.requires_grad_(False)
    return model.eval()  # type: ignore[no-any-return]


def _unmarked(config: Any) -> Any:
    """A copy of a config that says nothing of words."""
    config = copy.deepcopy(config)
    for name in ("softermax", INT8, *quantization.MARK, DEPLOYED):
        if hasattr(config, name):
            delattr(config, name)
    config.tie_word_embeddings = False  # a head that shares the embeddings has numbers of its own
    return config


def _mark(config: Any, model_class: type[PreTrainedModel], spec: AnySpec) -> None:
    setattr(config, DEPLOYED, {"spec": spec.to_dict()})
    config.architectures = [model_class.__name__]
    for name, value in MARK.items():
        setattr(config, name, value)


def _deployed_decoder(
    model: PreTrainedModel, spec: AnySpec | str | None, calibration: Calibration | None
) -> PreTrainedModel:
    reason = refusal_to_deploy(model)
    if reason is not None:
        raise ValueError(f"{type(model).__name__} cannot be deployed: {reason}")
    made = _decoder_skeleton(type(model), model.config, _spec_of(model, spec, DECODER_SPEC))
    convert(model, made, _batches(model, calibration))
    made.generation_config = copy.deepcopy(model.generation_config)
    return made


def _decoder_skeleton(model_class: type[PreTrainedModel], config: Any, spec: AnySpec) -> PreTrainedModel:
    config = _unmarked(config)
    model = with_int8_body(model_class, config, spec)
    OneThread(model)
    _mark(config, model_class, spec)
    model.config = config
    return model


MARK = {"quantization_config": {"quant_method": "softermax.models.deployment.load"}}
"""In the config of a deployed model: transformers alone cannot build it, and warns with the name of what can."""


def _converted(source: PreTrainedModel, spec: AnySpec) -> PreTrainedModel:
    where = _architecture_of(source)
    model = _skeleton(type(source), source.config, spec)
    old: Any = source.base_model
    new: Any = model.base_model
    layers: list[Int8EncoderLayer] = list(getattr(new, where.encoder).int8.layer)
    for layer, made in zip(getattr(old, where.encoder).layer, layers, strict=True):
        _convert_layer(layer, made, where)
    for name, embedding in old.embeddings.named_modules():
        if isinstance(embedding, nn.Embedding):
            parent, _, last = name.rpartition(".")
            setattr(new.embeddings.get_submodule(parent), last, Int8Embedding.of(embedding))
    _leave_out_pooler(model, getattr(old, "pooler", None) is not None)
    kept = model.state_dict()
    state = {name: value.detach().clone() for name, value in source.state_dict().items() if name in kept}
    model.load_state_dict(state, strict=False, assign=True)
    model.requires_grad_(False)
    return model.eval()  # type: ignore[no-any-return]


def _leave_out_pooler(model: Any, has_one: bool) -> None:
    """A body is built with a pooler unless its head knows better; the original may have none."""
    if not has_one and getattr(model.base_model, "pooler", None) is not None:
        model.base_model.pooler = None


def _convert_layer(layer: nn.Module, made: Int8EncoderLayer, where: Architecture) -> None:
    def part(name: str) -> Any:
        return attrgetter(name)(layer)

    inputs = [part(name) for name in (where.query, where.key, where.value)]
    made.qkv = Int8Linear.of(inputs, max(_scale(one.input_quantizer) for one in inputs))
    for name in ("out", "up", "down"):
        old = part(getattr(where, name))
        setattr(made, name, Int8Linear.of([old], _scale(old.input_quantizer)))
    attention = part(where.attention)
    words = (attention.q_bmm_quantizer, attention.k_bmm_quantizer, attention.v_bmm_quantizer)
    made.scales = torch.tensor([_scale(one) for one in words])
    for name in ("attention_norm", "network_norm"):
        old, new = part(getattr(where, name)), getattr(made, name)
        new.weight.data, new.bias.data = old.weight.detach().float(), old.bias.detach().float()


def _scale(quantizer: Any) -> float:
    """The step of a quantiser's words."""
    return float(quantizer.amax) / 127 or 1.0


AttentionMaskInterface.register(DEPLOYED, _mask)
