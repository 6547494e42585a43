"""Optional dependencies: what is missing, and how to get it."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, extra: str) -> Any:
    """Import ``module``, or say which extra of the package brings it.

    >>> need("no_such_module", "torch")
    Traceback (most recent call last):
    ...
    ImportError: no_such_module is not installed; it comes with: pip install '.[torch]' in the source tree
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        raise ImportError(
            f"{top} is not installed; it comes with: pip install '.[{extra}]' in the source tree"
        ) from None
