"""Softermax as an attention implementation of Hugging Face transformers.

Importing this module registers two names:

- ``softermax``: attention with Softermax, by the spec in the model's config;
- ``softmax``: the same path with the exact, numerically stable softmax, and with 8-bit probabilities
  where the model is quantised. It is what Softermax is compared with.

After the import, ``AutoModel.from_pretrained(..., attn_implementation="softermax")`` works; `enable`, `use_softmax` and
`disable` switch a model that is already loaded. What was enabled is stored in the config as ``softermax``
and survives ``save_pretrained``: such a folder loads with Softermax on (``softermax=None`` turns it off).

A model whose attention does not all go through the implementation raises an error in its first forward pass, see
`softermax.models.coverage`; `softermax.models.masks` says what becomes of additive masks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

from softermax.extras import need

if not TYPE_CHECKING:
    need("torch", "torch")
    need("transformers", "transformers")

from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel

from softermax.models.attention import (
    RIVAL,
    Attended,
    observe,
    read_spec,
    softermax_attention,
    softmax_attention,
)
from softermax.models.coverage import Watch
from softermax.models.layers import (
    LAYERS,
    GivenLayer,
    LayerSpec,
    checked_layers,
    mark,
    read_layers,
    setting_of,
    specs_in,
)
from softermax.models.masks import attention_mask
from softermax.models.mpnet import dispatching_class
from softermax.models.rivals import add_constants, remove_constants
from softermax.rivals import Rival, get_rival, is_rival
from softermax.rivals.designs.consmax import ConSmax
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, get_spec

__all__ = [
    "ABSORBED", "EXACT", "INT8", "NAME", "Attended", "disable", "enable", "enabled", "keep_softmax", "observe",
    "use_softmax",
]  # fmt: skip

NAME = "softermax"
EXACT = "softmax"
INT8 = "softermax_int8"
"""Field of a config whose model is quantised: the recipe, for `softermax.models.quantization.load`."""
ABSORBED = "softermax_absorbed"
"""Field of a config whose model has log2(e) in its weights (`softermax.models.absorb`): its base is two from then on."""

_STATE = "_softermax"


@dataclass
class _State:
    """What a model had before it got one of our attentions, and the guard of that attention."""

    implementations: list[tuple[PreTrainedConfig, str | None]]
    configs: list[tuple[nn.Module, str, PreTrainedConfig]] = field(default_factory=list)
    """Modules, their attribute, and the config that it held: enabled models have configs of their own."""
    classes: list[tuple[nn.Module, type]] = field(default_factory=list)
    watch: Watch | None = None


def enable(
    model: PreTrainedModel, spec: AnySpec | str | Mapping[int, GivenLayer] = "paper"
) -> PreTrainedModel:
    """Put Softermax into a loaded model. ``spec`` is a spec or what `get_spec` takes (``paper+fold``), or a mapping of each layer's
    number to such a one, or to a list of them, one per head.

    With a `DeferredSpec` (``paper+fold:deferred``) the row is divided after P·V instead of before (A8), emulated.
    ``rival:NAME`` puts in another design instead, see `softermax.rivals`.
    The model gets a config of its own: others that share the old one stay as they are.
    """
    if isinstance(spec, str) and is_rival(spec):
        return _enable_rival(model, get_rival(spec))
    if isinstance(spec, Mapping):
        return _enable_layers(model, spec)
    chosen = get_spec(spec) if isinstance(spec, str) else spec
    if not isinstance(chosen, (SoftermaxSpec, DeferredSpec)):
        raise TypeError(f"spec = {spec!r}: must be a SoftermaxSpec, a DeferredSpec or the name of one")
    _refuse_second_fold(model, chosen)
    _switch(model, NAME)
    _store_spec(model, chosen.to_dict())
    _prepare(model, chosen)
    return model


def _refuse_second_fold(model: PreTrainedModel, spec: AnySpec) -> None:
    if spec.base == "fold" and getattr(model.config, ABSORBED, False):
        raise ValueError(
            f"spec = {spec!r}: {type(model).__name__} has log2(e) in its weights already; take no fold"
        )


def _enable_layers(model: PreTrainedModel, given: Mapping[int, GivenLayer]) -> PreTrainedModel:
    layers = checked_layers(model, given)
    for spec in specs_in(layers):
        _refuse_second_fold(model, spec)
    _switch(model, NAME)
    _store_spec(model, setting_of(layers))
    _prepare(model, layers)
    return model


def _enable_rival(model: PreTrainedModel, design: Rival) -> PreTrainedModel:
    _require_base_e(model)
    _switch(model, NAME)
    _store_spec(model, {RIVAL: design.name})
    _prepare(model, design)
    return model


def _prepare(model: PreTrainedModel, design: object) -> None:
    """Constants for ConSmax, none for others; their numbers for layers with specs of their own."""
    if isinstance(design, list):
        mark(model)
    if isinstance(design, ConSmax):
        add_constants(model, model.config.num_attention_heads)
    else:
        remove_constants(model.modules())


def use_softmax(model: PreTrainedModel) -> PreTrainedModel:
    """The exact softmax on Softermax's path: what observers see, and in 8 bits where the model is quantised."""
    _require_base_e(model)
    _switch(model, EXACT)
    _forget_spec(model)
    return model


def disable(model: PreTrainedModel) -> PreTrainedModel:
    """Back to the attention that the model had before; nothing about Softermax stays in its config.

    A quantised model goes back to the exact softmax with 8-bit probabilities, which its quantisers belong to.
    """
    _require_base_e(model)
    _restore(model)
    return model


def enabled(model: PreTrainedModel) -> AnySpec | Rival | list[LayerSpec] | None:
    """The spec, or the rival, or the specs of all layers, that a model attends with, or None."""
    if model.config._attn_implementation != NAME:
        return None
    return _read_setting(model.config.softermax)


def _read_setting(setting: Mapping[str, Any]) -> AnySpec | Rival | list[LayerSpec]:
    return read_layers(setting) if LAYERS in setting else read_spec(setting)


def keep_softmax(model: PreTrainedModel) -> None:
    """From now on `disable` goes back to `use_softmax`: what was before does not fit the model any more."""
    state = _state(model)
    if state is None:
        raise ValueError(
            f"{type(model).__name__} attends as the model around it: that is what must be changed as a whole"
        )
    if not state.configs:
        _own_configs(model)  # built by its config's wish, it shares that still
    state.implementations = [(config, EXACT) for config in _configs(model)]
    state.configs, state.classes = [], []


def _state(model: PreTrainedModel) -> _State | None:
    return model.__dict__.get(_STATE)


def _require_base_e(model: PreTrainedModel) -> None:
    if getattr(model.config, ABSORBED, False):
        raise ValueError(
            f"{type(model).__name__} has log2(e) in its weights (absorb_base): the softmax of base e would be wrong; "
            "load the model that it was made of"
        )


def _restore(model: PreTrainedModel) -> None:
    _restore_parts(model)
    state = _state(model)
    if state is None:
        return
    if state.watch is not None:
        state.watch.stop()
    _forget_spec(model)
    for config, implementation in state.implementations:
        config._attn_implementation_internal = implementation
    for module, original in state.classes:
        module.__class__ = original
        del module.config
    # Whoever changed a config meanwhile meant this model: then it keeps its own.
    pairs = {id(config): (getattr(module, name), config) for module, name, config in state.configs}
    if all(own.to_dict() == config.to_dict() for own, config in pairs.values()):
        for module, name, config in state.configs:
            setattr(module, name, config)
    del model.__dict__[_STATE]


def _restore_parts(model: PreTrainedModel) -> None:
    """Parts that were enabled by themselves: the whole decides for them now."""
    for part in model.modules():
        if part is not model and _STATE in part.__dict__:
            _restore(part)  # type: ignore[arg-type]


def _own_configs(model: PreTrainedModel) -> list[tuple[nn.Module, str, PreTrainedConfig]]:
    """Give a model copies of its configs, shared within it as they were; returns what it had."""
    before = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, PreTrainedConfig)
    ]
    copies: dict[int, Any] = {}
    for module, name, config in before:
        setattr(module, name, copy.deepcopy(config, copies))
    return before


def _switch(model: PreTrainedModel, name: str) -> None:
    state = _state(model)
    if state is None:
        _restore_parts(model)
        before = _own_configs(model)
        state = _State([(c, c._attn_implementation_internal) for c in _configs(model)], before)
    _attend_by(model, name, state)


def _attend_by(model: PreTrainedModel, name: str, state: _State) -> None:
    state.classes += _make_dispatching(model)
    for config in _configs(model):
        config._attn_implementation_internal = name
    if state.watch is not None:
        state.watch.stop()
    state.watch = Watch(model, name)
    model.__dict__[_STATE] = state


def _store_spec(model: PreTrainedModel, setting: dict[str, Any]) -> None:
    for config in _configs(model):
        config.softermax = setting


def _forget_spec(model: PreTrainedModel) -> None:
    remove_constants(model.modules())
    for config in _configs(model):
        if hasattr(config, "softermax"):
            del config.softermax


def _configs(model: PreTrainedModel) -> Iterator[Any]:
    """The configs of a model and of the modules in it, and their sub-configs, each once."""
    found: set[int] = set()
    queue = [
        v for module in model.modules() for v in vars(module).values() if isinstance(v, PreTrainedConfig)
    ]
    while queue:
        config = queue.pop()
        if id(config) not in found:
            found.add(id(config))
            queue += [sub for key in config.sub_configs if (sub := getattr(config, key, None)) is not None]
            yield config


def _make_dispatching(model: PreTrainedModel) -> list[tuple[nn.Module, type]]:
    """Give attention modules that never ask for an implementation a class that does (MPNet)."""
    changed = []
    for parent in model.modules():
        if isinstance(parent, PreTrainedModel):
            for module in parent.modules():
                replacement = dispatching_class(type(module))
                if replacement is not None:
                    changed.append((module, type(module)))
                    module.__class__ = replacement
                    module.config = parent.config  # type: ignore[assignment]
    return changed


def _begin(model: PreTrainedModel) -> None:
    """Make a model that was just built what its config asks for."""
    if getattr(model.config, INT8, None) is not None:
        raise ValueError(
            f"{type(model).__name__}: this is the config of a quantised model, which from_pretrained does not build; "
            "load its folder with softermax.models.quantization.load(folder)"
        )
    _adopt(model)


def _adopt(model: PreTrainedModel) -> None:
    """Make a model what its config or ``attn_implementation`` asks for."""
    config = model.config
    spec, name = getattr(config, "softermax", None), config._attn_implementation
    if name == EXACT or (name != NAME and spec is None):
        _require_base_e(model)
    if name not in (NAME, EXACT):
        if spec is None:
            return
        name = NAME
    _restore_parts(model)
    # The config asked for it, so it is not copied: the whole and its parts must go on sharing it.
    own = model.get_correct_attn_implementation(None)
    known = [(part, part._attn_implementation_internal) for part in _configs(model)]
    _attend_by(model, name, _State([(part, own if had in (NAME, EXACT) else had) for part, had in known]))
    if name == EXACT:
        _forget_spec(model)
    else:
        setting = spec or get_spec("paper").to_dict()
        _store_spec(model, setting)
        _prepare(model, _read_setting(setting))


def _register() -> None:
    for name, attention in ((NAME, softermax_attention), (EXACT, softmax_attention)):
        AttentionInterface.register(name, attention)
        AttentionMaskInterface.register(name, attention_mask)
    # transformers has no other place to hear of a model that gets our name.
    _extend("post_init", _begin)
    _extend("set_attn_implementation", _adopt, before=disable)


def _extend(
    method: str, after: Callable[[Any], Any], before: Callable[[Any], Any] = lambda model: model
) -> None:
    original: Any = getattr(PreTrainedModel, method)
    if getattr(original, _STATE, False):
        return

    @wraps(original)
    def extended(self: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
        before(self)
        original(self, *args, **kwargs)
        after(self)

    setattr(extended, _STATE, True)
    setattr(PreTrainedModel, method, extended)


_register()
