"""A spec for each layer of a model, or for each head: in a config, and back.

The setting is ``{"layers": [...]}``, an entry per attention module in the model's order: a spec's fields, or a list of such, one per
head. A module knows its place by a mark that is set when a model is enabled or loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import nn

from softermax.files import read_text
from softermax.models.coverage import attention_modules
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, get_spec, spec_from_dict

LAYERS = "layers"
MARK = "_softermax_layer"

LayerSpec: TypeAlias = AnySpec | tuple[AnySpec, ...]
"""Of one layer: a spec, or one per head."""
GivenLayer: TypeAlias = AnySpec | str | Sequence[AnySpec | str]


def checked_layers(model: Any, given: Mapping[int, GivenLayer]) -> list[LayerSpec]:
    """The specs of all layers, in order; an error names the layer that is missing, unknown or has another number of heads."""
    count, heads = len(attention_modules(model)), model.config.num_attention_heads
    for layer in given:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < count:
            raise ValueError(f"layer {layer!r}: {type(model).__name__} has layers 0 to {count - 1}")
    missing = [layer for layer in range(count) if layer not in given]
    if missing:
        raise ValueError(f"layer {missing[0]}: has no spec; all of 0 to {count - 1} must have one")
    return [_layer(layer, given[layer], heads) for layer in range(count)]


def _layer(layer: int, given: GivenLayer, heads: int) -> LayerSpec:
    if isinstance(given, (str, SoftermaxSpec, DeferredSpec)):
        return _spec(layer, given)
    specs = tuple(_spec(layer, one) for one in given)
    if len(specs) != heads:
        raise ValueError(
            f"layer {layer}: has {len(specs)} specs; must be one, or one for each of {heads} heads"
        )
    return specs


def _spec(layer: int, given: object) -> AnySpec:
    spec = get_spec(given) if isinstance(given, str) else given
    if not isinstance(spec, (SoftermaxSpec, DeferredSpec)):
        raise TypeError(
            f"layer {layer}: {given!r} must be a SoftermaxSpec, a DeferredSpec or the name of one"
        )
    return spec


def load_layers(path: str | os.PathLike[str]) -> dict[int, LayerSpec]:
    """What `enable` takes, from the ``layers.json`` that ``softermax search --layers --out`` wrote."""
    try:
        values = json.loads(read_text(path))
        return {int(layer): read_layer(entry) for layer, entry in values.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: not specs of layers ({error})") from None


def setting_of(layers: Sequence[LayerSpec]) -> dict[str, Any]:
    """As a config keeps it."""
    return {
        LAYERS: [
            [head.to_dict() for head in layer] if isinstance(layer, tuple) else layer.to_dict()
            for layer in layers
        ]
    }


def read_layers(setting: Mapping[str, Any]) -> list[LayerSpec]:
    return [read_layer(entry) for entry in setting[LAYERS]]


def read_layer(entry: Any) -> LayerSpec:
    return tuple(map(spec_from_dict, entry)) if isinstance(entry, list) else spec_from_dict(entry)


def specs_in(layers: Sequence[LayerSpec]) -> list[AnySpec]:
    """Every spec of all layers and heads."""
    return [spec for layer in layers for spec in (layer if isinstance(layer, tuple) else (layer,))]


def mark(model: nn.Module) -> None:
    """Tell each attention module which layer it is."""
    for number, module in enumerate(attention_modules(model)):
        setattr(module, MARK, number)
