"""Links that carry a state: scores and what differs from the paper's spec, behind the ``#``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from softermax.spec import SoftermaxSpec


def fragment(spec: SoftermaxSpec, scores: Sequence[float | None] = ()) -> str:
    """The part of a link behind ``#``. A masked score is ``x``, a slice of a whole row ``row``.

    >>> fragment(SoftermaxSpec(slice_width=None), [2, None, 3.5])
    'scores=2,x,3.5&slice_width=row'
    """
    usual = SoftermaxSpec().to_dict()
    pairs: dict[str, object] = {}
    if scores:
        pairs["scores"] = ",".join("x" if score is None else f"{score:g}" for score in scores)
    for name, value in spec.to_dict().items():
        if value != usual[name]:
            pairs[name] = "row" if value is None else value
    return urlencode(pairs, safe=",()")
