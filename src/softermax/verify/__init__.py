"""Every body of the algorithm against the golden model, bit by bit.

Up to four things are compared, as far as a body has them: output words of raw words, probabilities of float scores,
int8 attention, and the marks of scores that saturate, which get no gradient. Specs are the presets, each also with
deferred normalisation, and a seeded sample drawn from all that a spec may be.

A body joins by an entry point in the group ``softermax.bodies`` that names a function returning a
list of `Body`. Nothing here knows which bodies there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.golden.attention import attention
from softermax.progress import Progress, silent
from softermax.spec import SPECS, AnySpec, DeferredSpec, SoftermaxSpec
from softermax.verify.cases import (
    AttentionCase,
    Case,
    FloatArray,
    ScoreCase,
    attention_cases,
    cases,
    score_cases,
    scores_of,
)
from softermax.verify.drawn import NEAREST, draw_deferred, draw_spec, draw_specs

__all__ = [
    "AttentionCase",
    "Body",
    "Case",
    "FloatArray",
    "ScoreCase",
    "Verdict",
    "attention_cases",
    "cases",
    "check",
    "draw_deferred",
    "draw_spec",
    "draw_specs",
    "find_bodies",
    "score_cases",
    "verify",
]

Run: TypeAlias = Callable[[Any, IntArray, BoolArray], tuple[IntArray, IntArray | None]]


@dataclass(frozen=True)
class Body:
    """One implementation: what it computes, each function for all the specs that it supports.

    Masks are True where an element takes part.
    """

    name: str
    run: Run | None = None
    """Of raw words (rows, columns): output words (rows, columns) and, for row-scaled output, exponents (rows).
    With a `DeferredSpec`: weights, and the exponents of PowSum."""
    supports: Callable[[Any], bool] = lambda spec: isinstance(spec, SoftermaxSpec)
    share: float = 1.0
    """The share of the random rows that a slow body gets."""
    expected: Run | None = None
    """The model of a body whose words are not those of the golden model."""
    run_scores: Callable[[Any, FloatArray, BoolArray], FloatArray] | None = None
    """Of float scores: probabilities of the same type; with a `DeferredSpec` what values are multiplied by."""
    floats: tuple[str, ...] = ("float32",)
    """The types of scores that ``run_scores`` and ``marks`` take."""
    attend: Callable[[Any, AttentionCase], NDArray[np.float32]] | None = None
    marks: Callable[[Any, FloatArray, BoolArray], BoolArray] | None = None
    """Of float scores: where they saturate, so that no gradient passes."""
    drawn: bool = False
    """Whether drawn specs are for it too. Not for a body that takes seconds to be built for a spec."""


KINDS = ("words", "scores", "attention", "marks")


@dataclass(frozen=True)
class Verdict:
    """What was compared, in elements of each kind, and how many of all these differ."""

    body: str
    cases: int
    mismatches: int
    specs: int
    words: int
    scores: int
    attention: int
    marks: int
    elements_per_second: float
    note: str = ""
    first: str = ""
    """Where the first mismatch is."""


def find_bodies() -> tuple[list[Body], dict[str, str]]:
    """The registered bodies, and for those that cannot be loaded the reason."""
    bodies: list[Body] = []
    missing: dict[str, str] = {}
    for entry in sorted(entry_points(group="softermax.bodies"), key=lambda e: e.name):
        try:
            bodies += entry.load()()
        except ImportError as error:
            missing[entry.name] = str(error)
    return bodies, missing


def _golden(spec: AnySpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    if isinstance(spec, DeferredSpec):
        weights = golden.deferred(raw, spec, mask)
        return weights.words, weights.leading_one - spec.powsum.fraction
    out = golden.softermax(raw, spec, mask)
    return out.words, out.exponent if spec.output_mode == "row-scaled" else None


Answer: TypeAlias = NDArray[Any]
Comparison: TypeAlias = tuple[str, str, Callable[[], list[Answer]], list[Answer]]
"""What is compared, on which case, what runs the body, and what golden answers."""


def _comparisons(body: Body, spec: AnySpec, rows: int, seed: int, pairs: float) -> Iterator[Comparison]:
    if body.run is not None:
        for case in cases(spec, rows, seed, pairs):
            words, exponent = (body.expected or _golden)(spec, case.raw, case.mask)
            want = [words] if exponent is None else [words, np.where(case.mask.any(axis=1), exponent, 0)]
            run = partial(_words, body, body.run, spec, case, exponent is not None)
            yield "words", case.name, run, want
    # Every rounding of scores on every spec: the spec's own on all cases, the others where rounding decides.
    for rounding in NEAREST:
        rounded = _rounded(spec, rounding)
        if rounded == spec:
            yield from _score_comparisons(body, spec, rows, seed)
        elif body.supports(rounded):
            for kind, name, answer, golds in _score_comparisons(body, rounded, 0, seed):
                yield kind, f"{name}, {rounding}", answer, golds


def _rounded(spec: AnySpec, rounding: str) -> AnySpec:
    scores = scores_of(spec).replace(input_rounding=rounding)
    return spec.replace(scores=scores) if isinstance(spec, DeferredSpec) else scores


def _score_comparisons(body: Body, spec: AnySpec, rows: int, seed: int) -> Iterator[Comparison]:
    """What starts before A1. Without ``rows`` only cases in which a score lies on or beside a tie or a limit."""
    for dtype in body.floats if body.run_scores or body.marks else ():
        for case in score_cases(spec, rows, dtype, seed):
            if body.run_scores is not None:
                run = partial(_only, body.run_scores, spec, case.scores, case.mask)
                # Half precision is rounded from single, as processors do.
                values = spec.run(case.scores, case.mask).value
                values = values.astype(np.float32 if dtype == "float16" else dtype).astype(dtype)
                yield "scores", f"{case.name}, {dtype}", run, [values]
            if body.marks is not None:
                run = partial(_only, body.marks, spec, case.scores, case.mask)
                marks = golden.saturates(case.scores, scores_of(spec), case.mask)
                yield "marks", f"{case.name}, {dtype}", run, [marks]
    if body.attend is not None:
        for a in attention_cases(spec, seed):
            if rows or "ties" in a.name:
                value = attention(a.q, a.k, a.v, spec, a.scale, a.value_scale, a.mask, a.causal).value
                yield "attention", a.name, partial(_only, body.attend, spec, a), [value]


def _only(run: Callable[..., Answer], *arguments: object) -> list[Answer]:
    return [run(*arguments)]


def _words(body: Body, run: Run, spec: AnySpec, case: Case, exponents: bool) -> list[Answer]:
    """Words and, where they are wanted, the exponents of the rows that have an element."""
    words, exponent = run(spec, case.raw, case.mask)
    if not exponents:
        return [words]
    if exponent is None:
        raise ValueError(f"{body.name}: a row-scaled output needs its exponents")
    return [words, np.where(case.mask.any(axis=1), exponent, 0)]


def check(
    body: Body,
    specs: Mapping[str, AnySpec],
    rows: int,
    seed: int = 0,
    drawn: Mapping[str, AnySpec] | None = None,
    pairs: float = 1.0,
    tell: Callable[[str], None] = lambda spec: None,
) -> Verdict:
    """Run one body on every case of every spec that it supports and count the elements that differ.

    ``drawn`` specs are for a body that says so; ``pairs`` is for `cases`. ``tell`` is called with the name of each
    spec before it is run.
    """
    count = mismatches = 0
    elements = dict.fromkeys(KINDS, 0)
    seconds = 0.0
    first = ""
    covered = supported(body, specs)
    more = supported(body, drawn or {}) if body.drawn else {}
    for name, spec in (covered | more).items():
        tell(name)
        for kind, case, run, want in _comparisons(body, spec, max(1, int(rows * body.share)), seed, pairs):
            started = time.perf_counter()
            try:
                answer = run()
            except Exception as error:
                error.add_note(f"{body.name}: {kind} of {name}, {case}")
                raise
            seconds += time.perf_counter() - started
            count += 1
            elements[kind] += want[0].size
            for got, expected in zip(answer, want, strict=True):
                if got.shape != expected.shape or (
                    expected.dtype.kind in "bf" and got.dtype != expected.dtype
                ):
                    raise ValueError(
                        f"{body.name}: {kind} of shape {got.shape} and type {got.dtype}, "
                        f"expected {expected.shape} and {expected.dtype}"
                    )
                differs = _bits(got) != _bits(expected)
                mismatches += int(differs.sum())
                if not first and differs.any():
                    at = tuple(int(i) for i in np.argwhere(differs)[0])
                    first = f"{kind} of {name}, {case}: {got[at]} at {at}, golden {expected[at]}"
    kinds = {type(spec) for spec in covered.values()}
    whole = all(name in covered for name, spec in specs.items() if type(spec) in kinds or not kinds)
    note = "" if whole else "covers " + (", ".join(covered) or "nothing")
    rate = sum(elements.values()) / max(seconds, 1e-9)
    return Verdict(
        body.name, count, mismatches, len(covered) + len(more), **elements,
        elements_per_second=rate, note=note, first=first,
    )  # fmt: skip


def supported(body: Body, specs: Mapping[str, AnySpec]) -> dict[str, AnySpec]:
    return {name: spec for name, spec in specs.items() if body.supports(spec)}


def _bits(values: Answer) -> Answer:
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values


def verify(
    rows: int = 100,
    drawn: int = 24,
    seed: int = 0,
    specs: Mapping[str, AnySpec] | None = None,
    exhaustive: bool = False,
    progress: Progress = silent,
    only: Sequence[str] = (),
) -> tuple[list[Verdict], dict[str, str]]:
    """Check every installed body on ``specs`` (`SPECS` unless given) and on ``drawn`` more that are drawn with ``seed``.

    A slow body gets its share of all pairs of scores, or, ``exhaustive``, all of them. ``only`` are parts of names: of
    each at least one body must have it. Also says which bodies are missing and why.
    """
    specs = SPECS if specs is None else specs
    bodies, missing = find_bodies()
    for part in only:
        if not any(part.lower() in body.name.lower() for body in bodies):
            raise ValueError(
                f"no installed body is called {part!r}; there are {', '.join(body.name for body in bodies)}"
            )
    if only:
        bodies = [body for body in bodies if any(part.lower() in body.name.lower() for part in only)]
    more = draw_specs(drawn, seed)
    total = sum(len(supported(body, {**specs, **more} if body.drawn else specs)) for body in bodies)
    done = 0

    def tell(body: Body, name: str) -> None:
        nonlocal done
        progress(done, total, f"{body.name}: {name}")
        done += 1

    verdicts = [
        check(body, specs, rows, seed, more, 1.0 if exhaustive else body.share, partial(tell, body))
        for body in bodies
    ]
    progress(total, total, "")
    return verdicts, missing
