"""Every body of the algorithm against the golden model, bit by bit.

Up to four things are compared, as far as a body has them: output words of raw words, probabilities of float scores,
int8 attention, and the marks of scores that saturate, which get no gradient. Specs are the presets, each also with
deferred normalisation, and a seeded sample drawn from all that a spec may be.

A body joins by an entry point in the group ``softermax.bodies`` that names a function returning a
list of `Body`. Nothing here knows which bodies there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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
from softermax.spec import DEFERRED, PRESETS, AnySpec, DeferredSpec, SoftermaxSpec

FloatArray: TypeAlias = NDArray[np.floating[Any]]

SPECS: dict[str, AnySpec] = {
    **PRESETS,
    **{name + DEFERRED: DeferredSpec(spec) for name, spec in PRESETS.items()},
}
"""The presets, and each of them with deferred normalisation."""


@dataclass(frozen=True)
class Case:
    """Rows of raw words and the elements that take part."""

    name: str
    raw: IntArray
    mask: BoolArray


@dataclass(frozen=True)
class ScoreCase:
    """Rows of float scores and the elements that take part; the others hold anything."""

    name: str
    scores: FloatArray
    mask: BoolArray


@dataclass(frozen=True)
class AttentionCase:
    """Operands of int8 attention, as `softermax.golden.attention.attention` takes them."""

    name: str
    q: NDArray[np.int8]
    k: NDArray[np.int8]
    v: NDArray[np.int8]
    scale: float
    value_scale: float = 1.0
    mask: BoolArray | None = None
    causal: bool = False


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


def cases(spec: AnySpec, rows: int, seed: int = 0) -> Iterator[Case]:
    """Exhaustive, adversarial and random rows for a spec; ``rows`` is the size of the random part."""
    scores = _scores(spec)
    low, high = scores.input.low, scores.input.high
    rng = np.random.default_rng(seed)

    def whole(name: str, raw: IntArray) -> Case:
        return Case(name, raw, np.ones(raw.shape, dtype=np.bool_))

    if scores.input.bits <= 8:
        words = np.arange(low, high + 1, dtype=np.int64)
        pairs = np.stack(np.meshgrid(words, words, indexing="ij"), axis=-1).reshape(-1, 2)
        yield whole("all pairs", pairs)
        yield whole("all single scores", words[:, None])
    width = scores.slice_width or 16
    for columns in (1, width - 1, width, width + 1, 3 * width + 5, 384):
        if columns < 1:
            continue
        ramp = np.clip(low + np.arange(columns, dtype=np.int64), low, high)
        extremes = np.where(np.arange(columns) % 2 == 0, low, high).astype(np.int64)
        equal = np.repeat(np.array([[low], [0], [1], [high]], dtype=np.int64), columns, axis=1)
        yield whole("rising, falling", np.stack([ramp, ramp[::-1], extremes, extremes[::-1]]))
        yield whole("equal", equal)
        late = np.full((1, columns), low, dtype=np.int64)
        late[0, -1] = high
        yield whole("late maximum", late)
        raw = rng.integers(low, high + 1, size=(16, columns), dtype=np.int64)
        mask = rng.random(raw.shape) < 0.5
        mask[0], mask[1, 1:], mask[2, : columns // 2] = False, False, False
        yield Case("masked", raw, mask)
    longest = 4 * (spec.powsum.high >> spec.powsum.fraction)
    yield whole("PowSum saturates", np.full((2, min(longest, 5000)), high, dtype=np.int64))
    spread = max(1, (high - low) // 16)
    for columns in (64, 128, 384):
        raw = np.clip(np.rint(rng.normal(0, spread, (rows, columns))), low, high).astype(np.int64)
        yield whole("random", raw)
        lengths = rng.integers(0, columns + 1, size=(rows, 1))
        yield Case("random, padded", raw, np.arange(columns) < lengths)


def score_cases(spec: AnySpec, rows: int, dtype: str, seed: int = 0) -> Iterator[ScoreCase]:
    """Float scores where A1 decides: ties and words with their neighbours, both ends of the word, subnormal and huge
    scores; and ``rows`` random rows."""
    scores = _scores(spec)
    kind = np.dtype(dtype).type
    rng = np.random.default_rng(seed)
    low, high = scores.input.low, scores.input.high
    ticks = np.arange(low - 2, high + 3)
    if scores.input.bits > 8:
        near = np.concatenate([tick + np.arange(-3, 4) for tick in (low, 0, high)])
        ticks = np.unique(np.append(near, rng.integers(low, high + 1, 60)))

    def full(name: str, x: FloatArray) -> ScoreCase:
        return ScoreCase(name, x, np.ones(x.shape, dtype=np.bool_))

    def beside(x: FloatArray) -> FloatArray:
        """Each value with two neighbours on either side."""
        down, up = np.nextafter(x, kind(-np.inf)), np.nextafter(x, kind(np.inf))
        return np.stack(
            [np.nextafter(down, kind(-np.inf)), down, x, up, np.nextafter(up, kind(np.inf))], axis=-1
        )

    words = (ticks / scores.input_scale).astype(kind)
    halves = ((ticks + 0.5) / scores.input_scale).astype(kind)
    decided = np.concatenate([beside(words), beside(halves)], axis=1)
    # Beside a word of about the same size, so that one raw unit shows in the result.
    partners = np.broadcast_to(words[:, None], decided.shape)
    yield full("ties, one per row", np.stack([decided.ravel(), partners.ravel()], axis=1))
    # Eight ticks in a row: without a score that saturates all take the vector path.
    together = decided[: len(ticks) // 8 * 8].reshape(-1, 8 * decided.shape[1])
    yield full("ties, side by side", together)
    tiny = np.finfo(kind).smallest_subnormal
    subnormal = np.array(
        [tiny, -tiny, 3 * tiny, -3 * tiny, np.finfo(kind).tiny, -np.finfo(kind).tiny, 0.0, -0.0], kind
    )
    huge = np.array([1, 0.25, 1e-3, -1e-3, -0.25, -1], kind) * np.finfo(kind).max
    limits = np.array([2.0 ** (scores.input.integer - 1), -(2.0 ** (scores.input.integer - 1)), 0.0], kind)
    yield full(
        "subnormal", np.stack([np.append(subnormal, limits[2]), np.append(subnormal, limits[2])[::-1]])
    )
    yield full("huge", np.stack([np.append(huge, limits), np.append(limits, huge)]))
    yield full("huge or subnormal, alone", np.concatenate([subnormal, huge, limits])[:, None])
    spread = 2.0 ** (scores.input.integer - 3)
    for columns in (40, 150):
        x = rng.normal(0, spread, (rows, columns)).astype(kind)
        mask = rng.random(x.shape) < 0.8
        mask[:1] = False
        yield full("random", x)
        yield full("random, wide", x * kind(6))
        hidden = rng.choice([np.nan, np.inf, -np.inf, float(np.finfo(kind).max)], x.shape).astype(kind)
        yield ScoreCase("masked", np.where(mask, x, hidden), mask)


def attention_cases(spec: AnySpec, seed: int = 0) -> Iterator[AttentionCase]:
    """Attention with every kind of mask, with scores on ties and beside them, saturated, rising and all alike."""
    rng = np.random.default_rng(seed)
    scale = _scores(spec).input_scale

    def drawn(heads: int, length: int, size: int, most: int = 127) -> NDArray[np.int8]:
        return rng.integers(-most, most + 1, (2, heads, length, size)).astype(np.int8)

    q, k, v = drawn(4, 19, 24), drawn(2, 45, 24), drawn(2, 45, 24)
    spread = 2.0 ** (_scores(spec).input.integer - 3) / 26_000  # products of 24 such numbers spread by 26,000
    yield AttentionCase("random", q, k, v, spread, 0.01)
    yield AttentionCase("saturated", q, k, v, 100 * spread)
    yield AttentionCase("causal", q, k, v, spread, 0.5, causal=True)
    mask = rng.random((2, 1, 19, 45)) < 0.6
    mask[0, 0, 3] = False
    yield AttentionCase("masked", q, k, v, spread, 0.37, mask)
    small = drawn(3, 9, 4, 3), drawn(3, 70, 4, 3), drawn(3, 70, 4)
    for name, half in (
        ("ties", np.float32(0.5)),
        ("just below ties", np.nextafter(np.float32(0.5), np.float32(0))),
        ("just above ties", np.nextafter(np.float32(0.5), np.float32(1))),
    ):
        yield AttentionCase(name, *small, float(half) / scale)
    columns = 300
    flat = np.zeros((1, 1, 5, 8), np.int8)
    values = rng.integers(-128, 128, (1, 1, columns, 8)).astype(np.int8)
    yield AttentionCase("equal scores", flat, np.zeros_like(values), values, 0.01)
    rising = np.broadcast_to(
        np.linspace(-127, 127, columns).astype(np.int8)[None, None, :, None], values.shape
    )
    over = np.array([1, 100, -100], np.int8).reshape(1, 1, 3, 1).repeat(8, axis=3)
    yield AttentionCase("rising, falling", over, rising, values, 2.0 ** _scores(spec).input.integer / 204_800)


def draw_spec(rng: np.random.Generator, widest: int = 32, eight_bit: bool = False) -> SoftermaxSpec:
    """A valid spec with words of up to ``widest`` bits, of which some are as wide as that; or, ``eight_bit``, one
    whose scores and outputs are the 8-bit words that kernels are made for."""

    def word(
        least_integer: int, most_integer: int, least_fraction: int, most: int = widest
    ) -> tuple[int, int]:
        integer = int(rng.integers(least_integer, most_integer + 1))
        bits = most if rng.random() < 0.2 else int(rng.integers(integer + least_fraction, most + 1))
        return integer, bits - integer

    def choice(*of: str) -> str:
        return str(rng.choice(of))

    nearest = ("truncate", "half-up", "half-even")
    while True:
        score = (6, 2) if eight_bit else word(2, 12, 0)
        fields: dict[str, Any] = {
            "input": score,
            "max": (score[0] + (0 if eight_bit else int(rng.integers(0, 3))), int(rng.integers(0, 3))),
            "unnormed": word(1, 1, 1, 16) if eight_bit else word(1, 3, 1),
            "powsum": word(1, 20, 1),
            "reciprocal": word(1, 1, 1, 16) if eight_bit else word(1, 2, 1),
            "output": word(0, 1, 1, 8) if eight_bit else word(0, 2, 1),
            "slice_width": None if rng.random() < 0.15 else int(rng.integers(1, 40)),
            "pow2_segments": 1 << int(rng.integers(0, 7)),
            "reciprocal_segments": 1 << int(rng.integers(0, 6)),
            "input_rounding": choice(*nearest),
            "max_rounding": choice("ceil", "ceil", "truncate"),
            "unnormed_rounding": "truncate" if eight_bit else choice(*nearest),
            "powsum_rounding": choice(*nearest[: 2 if eight_bit else 3]),
            "output_rounding": choice(*nearest[: 2 if eight_bit else 3]),
            "output_mode": choice("fixed", "fixed", "row-scaled"),
            "base": choice("paper", "fold"),
        }
        try:
            return SoftermaxSpec(**fields)
        except ValueError:
            continue


def draw_deferred(rng: np.random.Generator, widest: int = 32, eight_bit: bool = False) -> DeferredSpec:
    """A valid `DeferredSpec` around a drawn spec; ``eight_bit`` as in `draw_spec`, for weights too."""
    scores = draw_spec(rng, widest, eight_bit)
    if eight_bit:
        scores = scores.replace(slice_width=4 * int(rng.integers(1, 10)) if rng.random() < 0.8 else None)
    most = 8 if eight_bit else widest
    integer = int(rng.integers(0, 2))
    fraction = int(rng.integers(1, min(scores.unnormed.fraction, most - integer) + 1))
    fields: dict[str, Any] = {
        "weight": (integer, fraction),
        "powsum": (int(rng.integers(1, min(20, widest - fraction) + 1)), fraction),
        "reciprocal": (1, int(rng.integers(1, 16 if eight_bit else widest))),
        "reciprocal_segments": 1 << int(rng.integers(0, 6)),
    }
    return DeferredSpec(scores, **fields)


def draw_specs(count: int, seed: int = 0) -> dict[str, AnySpec]:
    """``count`` specs of both kinds, half of them of 8 bits, the same for the same seed."""
    rng = np.random.default_rng(seed)
    made: dict[str, AnySpec] = {}
    for number in range(count):
        draw = draw_deferred if number % 4 >= 2 else draw_spec
        made[f"drawn {number} of seed {seed}"] = draw(rng, eight_bit=number % 2 == 0)
    return made


def _scores(spec: AnySpec) -> SoftermaxSpec:
    return spec.scores if isinstance(spec, DeferredSpec) else spec


def _golden(spec: AnySpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    if isinstance(spec, DeferredSpec):
        weights = golden.deferred(raw, spec, mask)
        return weights.words, weights.leading_one - spec.powsum.fraction
    out = golden.softermax(raw, spec, mask)
    return out.words, out.exponent if spec.output_mode == "row-scaled" else None


Answer: TypeAlias = NDArray[Any]
Comparison: TypeAlias = tuple[str, str, Callable[[], Answer | tuple[Answer, Answer | None]], list[Answer]]
"""What is compared, on which case, what runs the body, and what golden answers."""


def _comparisons(body: Body, spec: AnySpec, rows: int, seed: int) -> Iterator[Comparison]:
    if body.run is not None:
        for case in cases(spec, rows, seed):
            words, exponent = (body.expected or _golden)(spec, case.raw, case.mask)
            want = [words] if exponent is None else [words, np.where(case.mask.any(axis=1), exponent, 0)]
            yield "words", case.name, partial(_run, body, spec, case, len(want)), want
    for dtype in body.floats:
        for score in score_cases(spec, rows, dtype, seed):
            if body.run_scores is not None:
                run: Any = partial(body.run_scores, spec, score.scores, score.mask)
                # Half precision is rounded from single, as processors do.
                values = spec.run(score.scores, score.mask).value
                values = values.astype(np.float32 if dtype == "float16" else dtype).astype(dtype)
                yield "scores", f"{score.name}, {dtype}", run, [values]
            if body.marks is not None:
                run = partial(body.marks, spec, score.scores, score.mask)
                marks = golden.saturates(score.scores, _scores(spec), score.mask)
                yield "marks", f"{score.name}, {dtype}", run, [marks]
    if body.attend is not None:
        for a in attention_cases(spec, seed):
            value = attention(a.q, a.k, a.v, spec, a.scale, a.value_scale, a.mask, a.causal).value
            yield "attention", a.name, partial(body.attend, spec, a), [value]


def _run(body: Body, spec: AnySpec, case: Case, parts: int) -> Any:
    """Words and, where they are wanted, the exponents of the rows that have an element."""
    assert body.run is not None
    words, exponent = body.run(spec, case.raw, case.mask)
    if parts == 1:
        return words
    if exponent is None:
        raise ValueError(f"{body.name}: a row-scaled output needs its exponents")
    return words, np.where(case.mask.any(axis=1), exponent, 0)


def check(
    body: Body,
    specs: Mapping[str, AnySpec],
    rows: int,
    seed: int = 0,
    drawn: Mapping[str, AnySpec] | None = None,
    tell: Callable[[str], None] = lambda spec: None,
) -> Verdict:
    """Run one body on every case of every spec that it supports and count the elements that differ.

    ``drawn`` specs are for a body that says so. ``tell`` is called with the name of each spec before it is run.
    """
    count = mismatches = 0
    elements = dict.fromkeys(KINDS, 0)
    seconds = 0.0
    first = ""
    covered = supported(body, specs)
    more = supported(body, drawn or {}) if body.drawn else {}
    for name, spec in (covered | more).items():
        tell(name)
        for kind, case, run, want in _comparisons(body, spec, max(1, int(rows * body.share)), seed):
            started = time.perf_counter()
            try:
                answer = run()
            except Exception as error:
                error.add_note(f"{body.name}: {kind} of {name}, {case}")
                raise
            seconds += time.perf_counter() - started
            count += 1
            elements[kind] += want[0].size
            for got, expected in zip(answer if isinstance(answer, tuple) else (answer,), want, strict=True):
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
        body.name, count, mismatches, len(covered) + len(more), *elements.values(), rate, note, first
    )


def supported(body: Body, specs: Mapping[str, AnySpec]) -> dict[str, AnySpec]:
    return {name: spec for name, spec in specs.items() if body.supports(spec)}


def _bits(values: Answer) -> Answer:
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values


def verify(
    rows: int = 200,
    drawn: int = 24,
    seed: int = 0,
    specs: Mapping[str, AnySpec] = SPECS,
    progress: Progress = silent,
) -> tuple[list[Verdict], dict[str, str]]:
    """Check every installed body on every one of ``specs`` and on ``drawn`` more that are drawn with ``seed``.

    Also says which bodies are missing and why.
    """
    bodies, missing = find_bodies()
    more = draw_specs(drawn, seed)
    total = sum(len(supported(body, {**specs, **more} if body.drawn else specs)) for body in bodies)
    done = 0

    def tell(body: Body, name: str) -> None:
        nonlocal done
        progress(done, total, f"{body.name}: {name}")
        done += 1

    verdicts = [check(body, specs, rows, seed, more, partial(tell, body)) for body in bodies]
    progress(total, total, "")
    return verdicts, missing
