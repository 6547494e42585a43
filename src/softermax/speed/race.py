"""How contestants are timed: every round runs each of them once, in turn.

With one thread, time is the thread's own CPU time, so that other programs on the machine disturb it
little; with more it is wall time. A result is the ratio of their time to ours: the median over rounds,
and between which values eight of ten rounds lie.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.progress import Progress, silent

Contestants = Mapping[str, Callable[[], Any]]
OURS = "softermax"
SETTLED = 0.25
"""Seconds after which it no longer matters what another runtime's threads did before."""


@dataclass(frozen=True)
class Race:
    """One case of a bench: who takes part is made when its turn comes."""

    bench: str
    case: str
    columns: int
    elements: int
    make: Callable[..., Contestants]
    share: float = 1.0
    """Of the rounds: less where a call takes long."""


@dataclass(frozen=True)
class Ratio:
    """One contestant's time over ours."""

    bench: str
    case: str
    columns: int
    versus: str
    ratio: float
    low: float
    high: float
    threads: int
    nanoseconds: float
    """Our time per element, for the plot."""

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        del values["nanoseconds"]
        return values


def chosen(races: Sequence[Race], cases: Sequence[str]) -> list[Race]:
    """The races whose case has one of these texts in it; all where none is named."""
    return [race for race in races if not cases or any(text in race.case for text in cases)]


def run_races(races: Sequence[Race], rounds: int, threads: int, progress: Progress = silent) -> list[Ratio]:
    """Everyone's time over ours, race after race."""
    found: list[Ratio] = []
    for number, race in enumerate(races):
        progress(number, len(races), f"{race.case}, {race.columns}")
        found += _ratios(race, seconds_of(race.make(), max(2, round(rounds * race.share)), threads), threads)
    progress(len(races), len(races), "")
    return found


def _ratios(race: Race, seconds: dict[str, NDArray[np.float64]], threads: int) -> list[Ratio]:
    ours = seconds.pop(OURS)
    nanoseconds = float(np.median(ours)) / race.elements * 1e9
    found = []
    for versus, theirs in seconds.items():
        low, middle, high = (float(v) for v in np.percentile(theirs / ours, [10, 50, 90]))
        found.append(
            Ratio(race.bench, race.case, race.columns, versus, middle, low, high, threads, nanoseconds)
        )
    return found


def seconds_of(
    contestants: Contestants, rounds: int, threads: int, each: float = 2e-3
) -> dict[str, NDArray[np.float64]]:
    """Seconds per call, a value per round for each contestant. Quick calls are repeated to last about ``each`` seconds.

    With several threads a call that is not timed comes first, unless it takes long: every runtime's threads look for work
    for some milliseconds after their last, on the cores of whoever is next.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeats: dict[str, int] = {}
    settles: set[str] = set()
    for name, call in contestants.items():
        call()
        started = clock()
        call()
        took = max(clock() - started, 1e-7)
        repeats[name] = max(1, min(1000, int(each / took)))
        if threads > 1 and took < SETTLED:
            settles.add(name)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            if name in settles:
                call()
            started = clock()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((clock() - started) / repeats[name])
    return {name: np.array(values) for name, values in seconds.items()}
