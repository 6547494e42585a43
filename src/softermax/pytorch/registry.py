"""Specs as text, which is what an operator's schema can hold.

The text is the spec's JSON, so an exported program finds its spec in any process.

>>> from softermax import PRESETS
>>> spec_of(spec_text(PRESETS["paper"])) == PRESETS["paper"]
True
"""

from __future__ import annotations

import json
from functools import lru_cache

import torch

from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, spec_from_dict


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def spec_text(spec: AnySpec) -> str:
    """The text by which the operators know a spec; the same for equal specs."""
    check_spec(spec)
    return _text(spec)


def check_spec(spec: object) -> None:
    if not isinstance(spec, SoftermaxSpec | DeferredSpec):
        raise TypeError(
            f"spec must be a SoftermaxSpec or a DeferredSpec, got {type(spec).__name__}; get_spec(name) makes one"
        )


@lru_cache(maxsize=256)
def _text(spec: AnySpec) -> str:
    return json.dumps(spec.to_dict(), separators=(",", ":"))


@lru_cache(maxsize=256)
def spec_of(text: str) -> AnySpec:
    """The spec that a text of `spec_text` stands for; the same object for equal texts."""
    try:
        return spec_from_dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{text!r} is not the text of a spec, which spec_text(spec) makes: {error}"
        ) from None


def rows_spec_of(text: str) -> SoftermaxSpec:
    """Like `spec_of`, for operators that normalise every element."""
    spec = spec_of(text)
    if not isinstance(spec, SoftermaxSpec):
        raise TypeError(f"spec must be a SoftermaxSpec, got {type(spec).__name__}: attention takes both")
    return spec
