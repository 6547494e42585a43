"""Links that carry a state: scores and what differs from the paper's spec, after the ``#``.

``static/state.js`` reads and writes the same links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec


def fragment(spec: AnySpec, scores: Sequence[float | None] = ()) -> str:
    """The part of a link after ``#``. A masked score is ``x``, a slice of a whole row ``row``.

    >>> fragment(SoftermaxSpec(slice_width=None), [2, None, 3.5])
    'scores=2,x,3.5&slice_width=row'
    >>> fragment(DeferredSpec(scores=SoftermaxSpec(base="fold"), reciprocal="Q(1,11)"))
    'base=fold&normalisation=deferred&deferred.reciprocal=Q(1,11)'
    """
    pairs: dict[str, Any] = {}
    if scores:
        pairs["scores"] = ",".join("x" if score is None else _shortest(score) for score in scores)
    if isinstance(spec, DeferredSpec):
        pairs |= _changes(spec.scores, SoftermaxSpec())
        own = _changes(spec, DeferredSpec(scores=spec.scores))
        pairs |= {"normalisation": "deferred"} | {f"deferred.{name}": value for name, value in own.items()}
    else:
        pairs |= _changes(spec, SoftermaxSpec())
    return urlencode(pairs, safe=",()")


def _changes(spec: AnySpec, usual: AnySpec) -> dict[str, Any]:
    before = usual.to_dict()
    return {
        name: "row" if value is None else value
        for name, value in spec.to_dict().items()
        if value != before[name]
    }


def _shortest(score: float) -> str:
    """All digits that tell a score from its neighbours, as JavaScript writes them."""
    return str(int(score)) if score == int(score) else repr(float(score))
