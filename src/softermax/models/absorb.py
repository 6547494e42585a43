"""The change of base absorbed into a model's weights, once: a pretrained model for the paper's own hardware.

The paper's datapath computes 2^x of the scores as they are. A model that was trained with e^x needs its scores times
log2(e) there. ``paper+fold`` multiplies them at run time; `absorb_base` multiplies the query projections instead,
weights and bias, and any bias that is added to the scores. What is left is the paper's datapath without a factor.

What is exact: in real numbers the scores are those of ``paper+fold``. In floating point the factor is rounded into
each weight instead of into each score, so scores differ in their last bits, and a raw word differs by one step only
where a score lies that close to the boundary between two words.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from softermax.models.drop_in import ABSORBED, enable
from softermax.models.quantization import is_quantized
from softermax.spec import LOG2E, AnySpec, get_spec

_QUERIES = (("query", "key"), ("q_proj", "k_proj"), ("q_lin", "k_lin"), ("q", "k"))
"""Names of the query projection, each with the key projection beside it that tells an attention module."""
_SCORE_BIAS = "relative_attention_bias"
"""An embedding whose values are added to the scores (MPNet, T5)."""
_AFTER_QUERY = ("q_norm", "query_norm", "q_layernorm", "query_layernorm", "q_layer_norm", "qk_norm")
"""Norms after the projection: they undo a factor in it."""
_BESIDE_SCORES = (
    "sinks",
    "relative_position_bias_table",
    "pos_key_proj",
    "rel_pos_bias",
    "gru_rel_pos_const",
)
"""What enters the softmax without passing the query projection, and is not scaled here."""
_CONFIG = ("attn_logit_softcapping", "alibi", "attention_logit_cap")


def absorb_base(model: PreTrainedModel, spec: AnySpec | str = "paper") -> PreTrainedModel:
    """Scale every query projection by log2(e), in place, and put Softermax without a fold into the model.

    Do it before `softermax.models.quantization.quantize`, and once: a second call is refused, also after
    ``save_pretrained`` and ``from_pretrained``. An architecture whose scores are not proportional to what its query
    projections give is refused by the name of what stands in the way; the model is then left as it was.
    """
    chosen = get_spec(spec) if isinstance(spec, str) else spec
    if chosen.base != "paper":
        raise ValueError(
            f"spec = {spec!r}: its fold would apply log2(e) a second time; take it without +fold"
        )
    if is_absorbed(model):
        raise ValueError(
            f"{type(model).__name__}: log2(e) is absorbed already; a second time would change its scores"
        )
    if is_quantized(model):
        raise ValueError(
            f"{type(model).__name__} is quantised: absorb log2(e) before, so that scales fit the weights"
        )
    parts = list(_scaled(model))
    enable(model, spec)
    with torch.no_grad():
        for part in parts:
            part.mul_(LOG2E)
    # After `enable`, which gives the model a config of its own.
    setattr(model.config, ABSORBED, True)
    return model


def is_absorbed(model: PreTrainedModel) -> bool:
    return bool(getattr(model.config, ABSORBED, False))


def _scaled(model: PreTrainedModel) -> Iterator[Tensor]:
    """The tensors to scale, each once; an error if that would not scale every score by the same."""
    name = type(model).__name__
    for field in _CONFIG:
        if getattr(model.config, field, None):
            raise ValueError(
                f"{name}: {field} = {getattr(model.config, field)} stands between query and softmax"
            )
    found: dict[int, Tensor] = {}
    covered: set[int] = set()
    for path, module in model.named_modules():
        tensors = list(_query(path, module))
        if tensors:
            covered |= {id(part) for part in module.modules()}
            _refuse_breakers(path, module)
        bias = getattr(module, _SCORE_BIAS, None)
        if isinstance(bias, nn.Embedding):
            tensors.append(bias.weight)
        found |= {id(tensor): tensor for tensor in tensors}
    for path, module in model.named_modules():
        if "Attention" in type(module).__name__ and not any(id(part) in covered for part in module.modules()):
            raise ValueError(f"{name}: no query projection is known in {path} ({type(module).__name__})")
    if not covered:
        raise ValueError(f"{name}: no attention with a query projection of a known name was found")
    yield from found.values()


def _query(path: str, module: nn.Module) -> Iterator[Tensor]:
    """Weight and bias of a module's query projection, as views where it is a part of a larger one."""
    for query, key in _QUERIES:
        projection = getattr(module, query, None)
        if isinstance(projection, nn.Module) and isinstance(getattr(module, key, None), nn.Module):
            yield from _parameters(f"{path}.{query}", projection)
            return
    fused, query_alone = getattr(module, "c_attn", None), getattr(module, "q_attn", None)
    if isinstance(query_alone, nn.Module):  # GPT-2's cross attention
        yield from _parameters(f"{path}.q_attn", query_alone)
    elif isinstance(fused, nn.Module):
        weight, *bias = _parameters(f"{path}.c_attn", fused)
        if not isinstance(fused, Conv1D) or weight.shape[1] != 3 * weight.shape[0]:
            raise ValueError(f"{path}.c_attn does not hold queries, keys and values of one size side by side")
        for tensor in (weight, *bias):
            yield tensor[..., : weight.shape[0]]


def _parameters(path: str, projection: nn.Module) -> list[Tensor]:
    if type(projection) not in (nn.Linear, Conv1D):
        kind = type(projection).__name__
        raise ValueError(f"{path} is a {kind}: log2(e) can be absorbed into a plain linear layer only")
    return [tensor for tensor in (projection.weight, projection.bias) if isinstance(tensor, Tensor)]


def _refuse_breakers(path: str, module: nn.Module) -> None:
    for name in (*_AFTER_QUERY, *_BESIDE_SCORES):
        part = getattr(module, name, None)
        if isinstance(part, (nn.Module, Tensor)) and not isinstance(part, nn.Identity):
            how = "normalises the queries" if name in _AFTER_QUERY else "enters the softmax beside them"
            raise ValueError(f"{path}.{name} {how}: a factor in the projection would not scale the scores")
