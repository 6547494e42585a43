"""Softermax as an attention implementation of Hugging Face transformers.

Importing this module registers two names:

- ``softermax``: attention with Softermax, by the spec in the model's config;
- ``softmax``: the same path with the exact, numerically stable softmax, and with 8-bit probabilities
  where the model is quantised. It is what Softermax is compared with.

After the import, ``AutoModel.from_pretrained(..., attn_implementation="softermax")`` works; `enable` and
`disable` switch a model that is already loaded. What was enabled is stored in the config as ``softermax``
and survives ``save_pretrained``: such a folder loads with Softermax on (``softermax=None`` turns it off).

transformers accepts an attention's name for architectures that never call it. So the first forward
pass counts the calls, and a model without any raises an error that names its class.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from softermax.extras import need

if not TYPE_CHECKING:
    need("torch", "torch")
    need("transformers", "transformers")

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from softermax.functional import softermax
from softermax.models.mpnet import dispatching_class
from softermax.pytorch.deferred import deferred_softermax
from softermax.spec import DeferredSpec, SoftermaxSpec, get_spec

NAME = "softermax"
EXACT = "softmax"

_CARRIED_BY_MASK = {"is_causal", "sliding_window"}
_NO_EFFECT = {
    "cache_position", "layer_idx", "num_items_in_batch", "output_attentions", "output_hidden_states",
    "position_embeddings", "position_ids", "return_dict", "use_cache",
}  # fmt: skip
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


class _Progress(threading.local):
    """Calls of our attention in the forward pass under way, and how deep models are nested in it."""

    depth = 0
    calls = 0


_progress = _Progress()


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
) -> tuple[Tensor, Tensor]:
    """transformers' attention interface, with Softermax by the spec in ``module.config``."""
    spec, deferred = _settings(module)

    def normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
        if deferred:
            return deferred_softermax(scores, mask, DeferredSpec(scores=spec))
        return softermax(scores, dim=-1, mask=mask, spec=spec)

    return _attend(
        module, query, key, value, attention_mask, scaling, dropout, position_bias, others, normalise
    )


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
    quantizer = getattr(module, "p_bmm_quantizer", None)

    def normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        probabilities = torch.softmax(scores, dim=-1)
        return quantizer(probabilities) if quantizer is not None else probabilities

    return _attend(
        module, query, key, value, attention_mask, scaling, dropout, position_bias, others, normalise
    )


def attention_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """A boolean mask, True where a key takes part. A causal mask is always made, never implied."""
    kwargs["allow_is_causal_skip"] = False
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


def enable(
    model: PreTrainedModel, spec: SoftermaxSpec | str = "paper", deferred: bool = False
) -> PreTrainedModel:
    """Put Softermax into a loaded model. ``spec`` is a spec or what `get_spec` takes (``paper+fold``).

    ``deferred`` divides after P·V instead of before (A8), emulated: what P·V takes are unnormed words.
    """
    chosen = get_spec(spec) if isinstance(spec, str) else spec
    if not isinstance(chosen, SoftermaxSpec):
        raise TypeError(f"spec = {spec!r}: must be a SoftermaxSpec or the name of one")
    settings = {"spec": chosen.to_dict(), "deferred": deferred}
    for config in _configs(model):
        config.softermax = settings
    _use(model, NAME)
    _watch(model)
    return model


def disable(model: PreTrainedModel) -> PreTrainedModel:
    """Back to the exact softmax (under the name ``softmax``), and nothing about Softermax in the config."""
    for config in _configs(model):
        if hasattr(config, "softermax"):
            del config.softermax
    _unwatch(model)
    _use(model, EXACT)
    return model


def enabled(model: PreTrainedModel) -> SoftermaxSpec | None:
    """The spec that a model attends with, or None."""
    if model.config._attn_implementation != NAME:
        return None
    return _parse(tuple(sorted(model.config.softermax["spec"].items())))


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None,
    dropout: float,
    position_bias: Tensor | None,
    others: dict[str, Any],
    normalise: Callable[[Tensor, Tensor | None], Tensor],
) -> tuple[Tensor, Tensor]:
    for name, given in others.items():
        if given is not None and name not in _HANDLED:
            raise ValueError(
                f"{type(module).__name__} passes {name} to its attention, which Softermax does not handle"
            )
    _progress.calls += 1
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = torch.matmul(query, key.transpose(-1, -2)) * (
        query.shape[-1] ** -0.5 if scaling is None else scaling
    )
    if position_bias is not None:
        scores = scores + position_bias[..., -scores.shape[-2] :, : scores.shape[-1]]
    mask, bias = _split_mask(attention_mask)
    if bias is not None:
        scores = scores + bias
    if mask is None and scores.shape[-2] > 1 and _is_causal(module, others):
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        mask = causal.tril(scores.shape[-1] - scores.shape[-2])
    probabilities = normalise(scores, mask)
    for observer in tuple(_observers):
        observer(Attended(module, query, key, value, scores, mask, probabilities))
    dropped = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    return torch.matmul(dropped.to(value.dtype), value).transpose(1, 2).contiguous(), probabilities


def _split_mask(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A boolean mask as it is; an additive one as what it leaves out and what it adds to the rest."""
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    keep = mask > torch.finfo(mask.dtype).min / 2
    return keep, torch.where(keep, mask, 0.0)


def _is_causal(module: nn.Module, others: dict[str, Any]) -> bool:
    given = others.get("is_causal")
    return bool(getattr(module, "is_causal", False) if given is None else given)


def _settings(module: nn.Module) -> tuple[SoftermaxSpec, bool]:
    settings = getattr(getattr(module, "config", None), "softermax", None)
    if settings is None:
        raise ValueError(
            f"{type(module).__name__} has no config with a Softermax spec; use "
            "softermax.models.drop_in.enable(model, spec=...)"
        )
    return _parse(tuple(sorted(settings["spec"].items()))), bool(settings.get("deferred"))


@lru_cache(maxsize=64)
def _parse(items: tuple[tuple[str, Any], ...]) -> SoftermaxSpec:
    return SoftermaxSpec.from_dict(dict(items))


def _configs(model: PreTrainedModel) -> list[Any]:
    """The configs of a model and of the models in it, and their sub-configs, each once."""
    found: dict[int, Any] = {}
    queue = [m.config for m in model.modules() if isinstance(m, PreTrainedModel)]
    while queue:
        config = queue.pop()
        if id(config) not in found:
            found[id(config)] = config
            queue += [sub for key in config.sub_configs if (sub := getattr(config, key, None)) is not None]
    return list(found.values())


def _use(model: PreTrainedModel, name: str) -> None:
    make_dispatching(model)
    for config in _configs(model):
        config._attn_implementation = name


def make_dispatching(model: PreTrainedModel) -> None:
    """Give attention modules that never ask for an implementation a class that does (MPNet)."""
    for parent in model.modules():
        if isinstance(parent, PreTrainedModel):
            for module in parent.modules():
                replacement = dispatching_class(type(module))
                if replacement is not None:
                    module.__class__ = replacement
                    module.config = parent.config  # type: ignore[assignment]


def _enter(model: nn.Module, args: Any) -> None:
    if _progress.depth == 0:
        _progress.calls = 0
    _progress.depth += 1


def _leave(model: nn.Module, args: Any, output: Any) -> None:
    _progress.depth -= 1
    # After an exception there is no output; the exception is the news then.
    if _progress.depth or output is None:
        return
    if not _progress.calls:
        raise ValueError(
            f"{type(model).__name__} never calls its attention implementation, so Softermax has no effect in it"
        )
    assert isinstance(model, PreTrainedModel)
    _unwatch(model)


def _watch(model: PreTrainedModel) -> None:
    _unwatch(model)
    model.__dict__["_softermax_hooks"] = [
        model.register_forward_pre_hook(_enter),
        model.register_forward_hook(_leave, always_call=True),
    ]


def _unwatch(model: PreTrainedModel) -> None:
    for module in model.modules():
        for hook in module.__dict__.pop("_softermax_hooks", ()):
            hook.remove()


def _adopt(model: PreTrainedModel) -> None:
    """Make a model that was just built what its config or ``attn_implementation`` asks for."""
    config = model.config
    if config._attn_implementation == NAME:
        if getattr(config, "softermax", None) is None:
            enable(model)
            return
    elif getattr(config, "softermax", None) is None:
        return
    _use(model, NAME)
    _watch(model)


def _register() -> None:
    AttentionInterface.register(NAME, softermax_attention)
    AttentionInterface.register(EXACT, softmax_attention)
    AttentionMaskInterface.register(NAME, attention_mask)
    AttentionMaskInterface.register(EXACT, attention_mask)
    original: Any = PreTrainedModel.post_init
    if getattr(original, "_softermax", False):
        return

    def post_init(self: PreTrainedModel) -> None:
        original(self)
        _adopt(self)

    # transformers has no other place to hear of a model that was built with our name.
    post_init._softermax = True  # type: ignore[attr-defined]
    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]


_register()
