"""transformers' attention interface with Softermax, and with the exact softmax on the same path.

Both compute scores, mask and P·V alike, show what they compute to observers, and refuse an argument whose effect they
do not know.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from softermax.functional import softermax
from softermax.gpu import float_attention as gpu_attention
from softermax.kernels.core import isa
from softermax.kernels.plan import supports
from softermax.models import coverage, masks, rivals
from softermax.models.layers import LAYERS, MARK, LayerSpec, read_layer
from softermax.pytorch.float_attention import float_attention
from softermax.pytorch.gradient import any_transformed, transformed
from softermax.pytorch.onnx import asked_to_export, exporting
from softermax.rivals import Rival, get_rival
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, spec_from_dict

_CARRIED_BY_MASK = {"is_causal", "sliding_window"}
_NO_EFFECT = {
    "cache_position", "deterministic", "layer_idx", "logits_to_keep", "num_items_in_batch", "output_attentions",
    "output_hidden_states", "output_router_logits", "position_embeddings", "position_ids", "return_dict",
    "use_cache",
}  # fmt: skip
RIVAL = "rival"
"""In a config's setting, instead of a spec's fields: the name of a design of `softermax.rivals`."""
_LAYER_SPEC = "_softermax_layer_spec"
_HANDLED = _CARRIED_BY_MASK | _NO_EFFECT


@dataclass(frozen=True)
class Attended:
    """One call of the attention, as an observer sees it. Shapes are (batch, heads, queries, ...)."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    """Scaled, with any bias, not masked, without the log2(e) fold."""
    mask: Tensor | None
    """Boolean, True where a key takes part; broadcasts against the scores."""
    probabilities: Tensor
    """Before dropout."""


Observer = Callable[[Attended], None]
_observers: list[Observer] = []


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Within the block, ``observer`` sees every call of either attention."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def softermax_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """transformers' attention interface, with Softermax by the spec in ``module.config``, or the rival named there.

    Where nobody needs the probabilities they are not kept, as in PyTorch's own fused attention: None stands for them.
    Their words are the same; the sums of P·V round in another order (`softermax.pytorch.float_attention`,
    `softermax.gpu.float_attention`).
    """
    spec = _module_spec(module)
    if (
        position_bias is None
        and isinstance(spec, SoftermaxSpec)
        and _fuses(module, query, key, value, attention_mask, spec, dropout, others)
    ):
        return _fused(module, query, key, value, attention_mask, scaling, spec, others), None
    key, value = _repeated(query, key), _repeated(query, value)
    if (
        position_bias is None
        and isinstance(spec, SoftermaxSpec | DeferredSpec)
        and _fuses_on_gpu(module, query, key, value, attention_mask, spec, dropout, others)
    ):
        return _fused_on_gpu(module, query, key, value, attention_mask, scaling, spec, others), None
    scores, mask, biased = _scores(module, query, key, attention_mask, scaling, position_bias, others)
    if isinstance(spec, tuple):
        probabilities = _by_head(scores, mask, biased, spec, attention_mask)
    elif isinstance(spec, Rival):
        if biased:
            mask = rivals.within_rivals_reach(scores, mask)
        probabilities = rivals.rival_probabilities(scores, mask, spec, module)
    else:
        if biased:
            mask = masks.within_reach(scores, mask, spec)
        probabilities = _softermax(scores, mask, spec, masks.lanes_before(attention_mask, spec))
    return _weighted(module, query, key, value, scores, mask, probabilities, dropout)


def softmax_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """transformers' attention interface, with the exact softmax.

    In a quantised model the probabilities pass their own 8-bit quantiser, which no other
    implementation of transformers applies on a CPU.
    """
    key, value = _repeated(query, key), _repeated(query, value)
    scores, mask, _ = _scores(module, query, key, attention_mask, scaling, position_bias, others)
    masked = scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    probabilities = torch.softmax(masked, dim=-1)
    quantizer = getattr(module, "p_bmm_quantizer", None)
    if quantizer is not None:
        probabilities = quantizer(probabilities)
    return _weighted(module, query, key, value, scores, mask, probabilities, dropout)


def read_spec(setting: Mapping[str, Any]) -> AnySpec | Rival:
    """The spec in a config: its fields, or in folders of earlier versions ``spec`` and ``deferred``; or a rival."""
    if RIVAL in setting:
        return get_rival(setting[RIVAL])
    if "spec" not in setting:
        return spec_from_dict(setting)
    spec = spec_from_dict(setting["spec"])
    return DeferredSpec(scores=masks.rows_spec(spec)) if setting.get("deferred") else spec


def _repeated(query: Tensor, grouped: Tensor) -> Tensor:
    """Keys or values once per query head."""
    groups = query.size(1) // grouped.size(1)
    return grouped.repeat_interleave(groups, dim=1) if groups > 1 else grouped


def _scores(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None,
    position_bias: Tensor | None,
    others: dict[str, Any],
) -> tuple[Tensor, Tensor | None, bool]:
    """Scaled scores with their bias, the boolean mask, and whether there was a bias."""
    _refuse_unknown(module, others)
    coverage.note_call()
    scores = torch.matmul(query, key.transpose(-1, -2)) * (
        query.shape[-1] ** -0.5 if scaling is None else scaling
    )
    mask, bias = masks.split_mask(attention_mask)
    if position_bias is not None:
        scores = scores + position_bias[..., -scores.shape[-2] :, : scores.shape[-1]]
    if bias is not None:
        scores = scores + bias
    if mask is None and scores.shape[-2] > 1 and _is_causal(module, others):
        mask = masks.causal(scores)
    return scores, mask, position_bias is not None or bias is not None


def _refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    for name, given in others.items():
        if given is not None and name not in _HANDLED:
            raise ValueError(
                f"{type(module).__name__} passes {name} to its attention, which Softermax does not handle"
            )


def _fuses(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    spec: SoftermaxSpec,
    dropout: float,
    others: dict[str, Any],
) -> bool:
    """Whether nobody needs the probabilities: no gradient, no observer, no hook, no trace. Then scores stay in the cache."""
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    return (
        query.device.type == "cpu"
        and query.dtype == key.dtype == value.dtype == torch.float32
        and _covered(spec)
        and (mask is None or mask.dtype == torch.bool)
        and (mask is None or not masks.lanes_before(mask, spec))
        and not _wants_probabilities(module, dropout, others)
        and _mere_numbers(query, key, value)
    )


def _wants_probabilities(module: nn.Module, dropout: float, others: dict[str, Any]) -> bool:
    """Whether somebody looks at the probabilities, or dropout changes them."""
    return bool(
        (dropout and module.training)
        or _observers
        or module._forward_hooks
        or others.get("output_attentions")
        or _of_config(module.config, "_output_attentions")
    )


def _fuses_on_gpu(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    spec: AnySpec,
    dropout: float,
    others: dict[str, Any],
) -> bool:
    """Whether the Triton kernels compute this attention, which have a gradient and pass ``torch.compile``."""
    return (
        gpu_attention.takes(query, key, spec)
        and query.dtype == key.dtype == value.dtype
        and key.shape == value.shape
        and (mask is None or mask.dtype == torch.bool)
        and not masks.lanes_before(mask, spec)
        and not _wants_probabilities(module, dropout, others)
        and not (torch._C._is_tracing() or exporting() or transformed(query))
    )


def _fused_on_gpu(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    spec: AnySpec,
    others: dict[str, Any],
) -> Tensor:
    _refuse_unknown(module, others)
    coverage.note_call()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = mask is None and query.shape[-2] > 1 and _is_causal(module, others)
    out = gpu_attention.float_attention(query, key, value, spec, scale, mask, causal)
    return out.transpose(1, 2).contiguous()


_found: dict[int, tuple[SoftermaxSpec, bool]] = {}
"""Specs by identity, as in `kernels.plan`: to hash one takes longer than a small layer's attention."""


def _covered(spec: SoftermaxSpec) -> bool:
    """Whether the native core is here and takes the spec."""
    known = _found.get(id(spec))
    if known is None or known[0] is not spec:
        known = _found[id(spec)] = spec, supports(spec)
    return known[1] and isa() is not None


def _mere_numbers(*tensors: Tensor) -> bool:
    """Whether tensors are not being traced, compiled, exported (which does either, or asks) or transformed."""
    if is_compiling() or torch._C._is_tracing() or asked_to_export():
        return False
    return all(type(x) is Tensor for x in tensors) and not any_transformed(tensors)


def _fused(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    spec: SoftermaxSpec,
    others: dict[str, Any],
) -> Tensor:
    """Attention without probabilities that anybody sees: their words are the same."""
    _refuse_unknown(module, others)
    coverage.note_call()
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if mask is None and query.shape[-2] > 1 and _is_causal(module, others):
        queries, keys = query.shape[-2], key.shape[-2]
        mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return float_attention(query, key, value, spec, scale, mask)


def _softermax(scores: Tensor, mask: Tensor | None, spec: AnySpec, lanes_before: int) -> Tensor:
    if lanes_before:
        # The keys that the cache dropped, as masked lanes.
        keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        mask = nn.functional.pad(keep, (lanes_before, 0), value=False)
        scores = nn.functional.pad(scores, (lanes_before, 0))
    return softermax(scores, dim=-1, mask=mask, spec=spec)[..., lanes_before:]


def _by_head(
    scores: Tensor,
    mask: Tensor | None,
    biased: bool,
    specs: tuple[AnySpec, ...],
    attention_mask: Tensor | None,
) -> Tensor:
    """Each head with a spec of its own."""
    found = []
    for head, spec in enumerate(specs):
        own = scores[:, head : head + 1]
        keep = (
            mask
            if mask is None or mask.dim() < 3 or mask.shape[-3] == 1
            else mask[..., head : head + 1, :, :]
        )
        if biased:
            keep = masks.within_reach(own, keep, spec)
        found.append(_softermax(own, keep, spec, masks.lanes_before(attention_mask, spec)))
    return torch.cat(found, dim=1)


def _weighted(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scores: Tensor,
    mask: Tensor | None,
    probabilities: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """P·V, after the observers have seen P."""
    for observer in tuple(_observers):
        observer(Attended(module, query, key, value, scores, mask, probabilities))
    dropped = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    return torch.matmul(dropped.to(value.dtype), value).transpose(1, 2).contiguous(), probabilities


def _is_causal(module: nn.Module, others: dict[str, Any]) -> bool:
    given = others.get("is_causal")
    return bool(getattr(module, "is_causal", False) if given is None else given)


def _module_spec(module: nn.Module) -> AnySpec | tuple[AnySpec, ...] | Rival:
    setting = _of_config(getattr(module, "config", None), "softermax")
    if setting is None:
        raise ValueError(
            f"{type(module).__name__} has no config with a Softermax spec; use "
            "softermax.integrations.transformers.enable(model, spec)"
        )
    if LAYERS in setting:
        parsed = module.__dict__.get(_LAYER_SPEC)
        if parsed is None or parsed[0] is not setting:
            # Parsed once: a config's setting is replaced as a whole, never changed.
            parsed = module.__dict__[_LAYER_SPEC] = (
                setting,
                read_layer(setting[LAYERS][getattr(module, MARK)]),
            )
        found: LayerSpec = parsed[1]
        return found
    known = _settings.get(id(setting))
    if known is None or known[0] != setting:
        if len(_settings) >= 256:
            _settings.clear()
        known = _settings[id(setting)] = copy.deepcopy(dict(setting)), _read(_hashable(setting))
    return known[1]


_settings: dict[int, tuple[Mapping[str, Any], AnySpec | Rival]] = {}
"""Settings as they were read, by identity: to compare one is quicker than to hash it."""


def _of_config(config: Any, name: str) -> Any:
    """A config's own value, without the Python that transformers runs at every access."""
    try:
        return object.__getattribute__(config, "__dict__").get(name)
    except AttributeError:
        return None


@lru_cache(maxsize=64)
def _read(items: tuple[tuple[str, Any], ...]) -> AnySpec | Rival:
    return read_spec({name: dict(v) if isinstance(v, tuple) else v for name, v in items})


def _hashable(setting: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (name, tuple(v.items()) if isinstance(v, Mapping) else v) for name, v in sorted(setting.items())
    )
