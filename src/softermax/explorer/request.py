"""What a request to the explorer says, read and checked.

A request is ``{"scores": [2, null, 3.5], "spec": {"slice_width": 32}}``: null is a masked element, fields that the
spec leaves out have the paper's values. A spec that has ``scores`` is one of deferred normalisation, as in its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.golden import BoolArray
from softermax.spec import AnySpec, SoftermaxSpec, spec_from_dict

MAX_SCORES = 4096
MAX_SCORE = 1e6
"""Largest magnitude of a score: far beyond any input word, and its powers still have logarithms."""

FloatArray = NDArray[np.float64]


class RequestError(ValueError):
    """A request that gets an error for an answer; ``field`` names the part of it that is wrong."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY

    def __init__(self, message: str, field: str | None = None, status: HTTPStatus | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.status = status or self.status


class Impossible(RequestError):
    """A well-formed question whose answer is that it cannot be: a spec that cannot work.

    An answer, not a fault of the request: the page asks at every step of a slider.
    """

    status = HTTPStatus.OK

    @classmethod
    def because(cls, error: object, inside: str = "") -> Impossible:
        """From a refusal that begins with "field = value:", as a spec's does."""
        field, equals, _ = str(error).partition(" = ")
        return cls(f"{inside}{error}", inside + field if equals else None)


def require_only(request: Mapping[str, Any], *fields: str) -> None:
    unknown = sorted(set(request) - set(fields))
    if unknown:
        raise RequestError(f"{unknown[0]}: no such field; a request has {' and '.join(fields)}", unknown[0])


def read_spec(request: Mapping[str, Any]) -> AnySpec:
    """The spec of a request; an impossible one is refused with the name of the field at fault."""
    values = request.get("spec", {})
    if not isinstance(values, dict):
        raise RequestError(f"spec must be an object, got {type(values).__name__}", "spec")
    scores = values.get("scores", {})
    if not isinstance(scores, dict):
        raise RequestError(f"spec.scores must be an object, got {type(scores).__name__}", "spec")
    try:
        # First, so that its refusals are told from those of the spec around it, which has fields of the same names.
        SoftermaxSpec.from_dict(scores)
    except ValueError as error:
        raise Impossible.because(error, "scores.") from None
    try:
        return spec_from_dict(values)
    except ValueError as error:
        raise Impossible.because(error) from None


def read_scores(request: Mapping[str, Any]) -> tuple[FloatArray, BoolArray]:
    """Scores, 0 where masked, and a mask that is True where an element takes part."""
    scores = request.get("scores")
    if not isinstance(scores, list):
        raise RequestError(f"scores must be a list of numbers, got {type(scores).__name__}", "scores")
    if not 1 <= len(scores) <= MAX_SCORES:
        raise RequestError(f"{len(scores)} scores: must be 1 to {MAX_SCORES}", "scores")
    for index, score in enumerate(scores):
        if score is None:
            continue
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise RequestError(f"score {index} = {score!r}: must be a number, or null where masked", "scores")
        if not abs(score) <= MAX_SCORE:
            raise RequestError(f"score {index} = {score!r}: must be -1e6 to 1e6", "scores")
    mask = np.array([score is not None for score in scores])
    return np.array([0.0 if score is None else score for score in scores], dtype=np.float64), mask
