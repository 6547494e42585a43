"""Every body of the algorithm against the golden model, word by word.

A body joins by an entry point in the group ``softermax.bodies`` that names a function returning a
list of `Body`. Nothing here knows which bodies there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

import numpy as np

from softermax import golden
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray, Output
from softermax.spec import PRESETS, SoftermaxSpec


@dataclass(frozen=True)
class Case:
    """Rows of raw words and the elements that take part."""

    name: str
    raw: IntArray
    mask: BoolArray


Run = Callable[[SoftermaxSpec, IntArray, BoolArray], tuple[IntArray, IntArray | None]]


@dataclass(frozen=True)
class Body:
    """One implementation. ``run`` takes raw words (rows, columns) and a mask, True where an element
    takes part, and returns words (rows, columns) and, for row-scaled output, exponents (rows)."""

    name: str
    run: Run
    supports: Callable[[SoftermaxSpec], bool] = lambda spec: True
    share: float = 1.0
    """The share of the random rows that a slow body gets."""
    expected: Run | None = None
    """The model of a body that computes something else than the probabilities of Softermax."""


@dataclass(frozen=True)
class Verdict:
    body: str
    cases: int
    mismatches: int
    elements_per_second: float
    note: str = ""


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


def cases(spec: SoftermaxSpec, rows: int, seed: int = 0) -> Iterator[Case]:
    """Exhaustive, adversarial and random rows for a spec; ``rows`` is the size of the random part."""
    low, high = spec.input.low, spec.input.high
    rng = np.random.default_rng(seed)

    def whole(name: str, raw: IntArray) -> Case:
        return Case(name, raw, np.ones(raw.shape, dtype=np.bool_))

    if spec.input.bits <= 8:
        words = np.arange(low, high + 1, dtype=np.int64)
        pairs = np.stack(np.meshgrid(words, words, indexing="ij"), axis=-1).reshape(-1, 2)
        yield whole("all pairs", pairs)
        yield whole("all single scores", words[:, None])
    width = spec.slice_width or 16
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


def _golden(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
    out: Output = golden.softermax(raw, spec, mask)
    return out.words, out.exponent


def check(body: Body, specs: dict[str, SoftermaxSpec], rows: int) -> Verdict:
    """Run one body on every case of every spec that it supports and count the words that differ."""
    count = mismatches = elements = 0
    seconds = 0.0
    covered = [name for name, spec in specs.items() if body.supports(spec)]
    for name in covered:
        spec = specs[name]
        for case in cases(spec, max(1, int(rows * body.share))):
            expected, exponents = (body.expected or _golden)(spec, case.raw, case.mask)
            started = time.perf_counter()
            words, exponent = body.run(spec, case.raw, case.mask)
            seconds += time.perf_counter() - started
            count += 1
            elements += case.raw.size
            if words.shape != expected.shape:
                raise ValueError(f"{body.name}: words of shape {words.shape}, expected {expected.shape}")
            mismatches += int((words != expected).sum())
            if exponent is not None and exponents is not None:
                live = case.mask.any(axis=1)
                mismatches += int((exponent[live] != exponents[live]).sum())
            elif exponents is not None and spec.output_mode == "row-scaled":
                raise ValueError(f"{body.name}: a row-scaled output needs its exponents")
    note = "" if len(covered) == len(specs) else "covers " + ", ".join(covered)
    return Verdict(body.name, count, mismatches, elements / max(seconds, 1e-9), note)


def verify(rows: int = 200) -> tuple[list[Verdict], dict[str, str]]:
    """Check every installed body on every preset; also says which bodies are missing and why."""
    bodies, missing = find_bodies()
    return [check(body, PRESETS, rows) for body in bodies], missing
