"""Softermax: a softmax in base two, fixed point and one pass, from paper to silicon.

>>> import softermax
>>> softermax.SoftermaxSpec().compute([2.0, 1.0, 3.0])
array([0.2890625, 0.140625 , 0.5703125])
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from softermax.fixedpoint import QFormat
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec, get_spec

if TYPE_CHECKING:
    from softermax.models.deployment import deploy as deploy
    from softermax.nn import Softermax as Softermax

__all__ = ["PRESETS", "DeferredSpec", "QFormat", "Softermax", "SoftermaxSpec", "deploy", "get_spec"]

try:
    __version__ = version("softermax")
except PackageNotFoundError:  # used from a source tree that is not installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    # These need torch: only who asks for them pays for importing it.
    if name == "Softermax":
        from softermax.nn import Softermax

        return Softermax
    if name == "deploy":
        from softermax.models.deployment import deploy

        return deploy
    raise AttributeError(f"module 'softermax' has no attribute {name!r}")
