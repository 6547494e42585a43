"""How contestants are timed: every round runs each of them once, in turn.

With one thread, time is the thread's own CPU time, so that other programs on the machine disturb it
little. With more it is wall time, and each turn starts alike for everybody: no thread of another runtime is still
looking for work on the cores, and the contestant's own threads are awake. A turn that other programs took part of is run
again. Contestants that bring a runtime each are best `Apart`, in processes of their own, as a user would run them. A result is the ratio of their time to ours: the median over rounds, and between which values eight of ten rounds
lie.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.progress import Progress, silent

OURS = "softermax"
TURN = 2e-3
"""Seconds that a turn lasts at least."""
SHARED_TURN = 0.25
"""The same with several threads: long enough to see other programs in the system's count of ticks."""
LOOK, LOOKS = 0.02, 50
"""Seconds between two looks at whether the process still computes, and how many there are at most."""
WARM = 0.03
"""Seconds of calls that are not timed before a turn."""
DISTURBED, TRIES = 0.05, 4
"""Part of the cores' time that others may have in a turn, and how often a turn with more is run."""
TICKS = Path("/proc/stat")
"""Where Linux counts what its processors do: user, nice, system, idle, waiting, interrupts (two), stolen."""


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


class Turns:
    """What a contestant takes per call, turn by turn. Quick calls are repeated to fill a turn."""

    def __init__(self, call: Callable[[], Any], threads: int) -> None:
        self.call, self.alone = call, threads == 1
        self.clock, least = (time.thread_time, TURN) if self.alone else (time.perf_counter, SHARED_TURN)
        call()
        started = self.clock()
        call()
        self.repeats = max(1, min(1000, int(least / max(self.clock() - started, 1e-7))))

    def take(self) -> float:
        """Seconds per call."""
        if self.alone:
            return self._turn()
        found = []
        for _ in range(TRIES):
            settle()
            warm(self.call)
            before, started = others_seconds(), time.perf_counter()
            found.append(self._turn())
            cores = (time.perf_counter() - started) * (os.cpu_count() or 1)
            if others_seconds() - before <= DISTURBED * cores:
                return found[-1]
        return min(found)  # never undisturbed: the turn that others took least of

    def _turn(self) -> float:
        started = self.clock()
        for _ in range(self.repeats):
            self.call()
        return (self.clock() - started) / self.repeats


class Apart:
    """A contestant in a process of its own, made there by ``make(threads)``, which runs in its turns only."""

    def __init__(self, make: Callable[[int], Callable[..., Any]], threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.process = ProcessPoolExecutor(1, spawn, initializer=_make_apart, initargs=(make, threads))
        self.threads = threads

    def called_with(self, *arguments: Any) -> ApartCall:
        return ApartCall(self, arguments)


@dataclass(frozen=True)
class ApartCall:
    """A call of such a contestant."""

    where: Apart
    arguments: tuple[Any, ...]

    def turns(self) -> Callable[[], float]:
        self.where.process.submit(_prepare_apart, self.arguments, self.where.threads).result()
        return lambda: self.where.process.submit(_take_apart).result()


_apart: Any = None
"""In a contestant's own process: what is called, then its turns."""
_turns: Turns | None = None


def _make_apart(make: Callable[[int], Callable[..., Any]], threads: int) -> None:
    global _apart
    _apart = make(threads)


def _prepare_apart(arguments: tuple[Any, ...], threads: int) -> None:
    global _turns
    _turns = Turns(partial(_apart, *arguments), threads)
    settle()


def _take_apart() -> float:
    assert _turns is not None
    found = _turns.take()
    settle()  # its threads sleep before another's turn
    return found


Contestants = Mapping[str, Callable[[], Any] | ApartCall]


def seconds_of(contestants: Contestants, rounds: int, threads: int) -> dict[str, NDArray[np.float64]]:
    """Seconds per call, a value per round for each contestant."""
    take = {
        name: one.turns() if isinstance(one, ApartCall) else Turns(one, threads).take
        for name, one in contestants.items()
    }
    values: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name in contestants:
            values[name].append(take[name]())
    return {name: np.array(value) for name, value in values.items()}


def settle() -> None:
    """Returns when the process's threads are asleep. onnxruntime's look for work for some 40 ms after their last, on the cores
    of whoever is next, PyTorch's for a few."""
    for _ in range(LOOKS):
        before = time.process_time()
        time.sleep(LOOK)
        if time.process_time() - before < LOOK / 10:
            return


def warm(call: Callable[[], Any]) -> None:
    """Runs the contestant until its threads are awake and its weights in the cache; once if that takes long."""
    started = time.perf_counter()
    while time.perf_counter() - started < WARM:
        call()


def others_seconds() -> float:
    """Processor time that all but this process has had, and what a hypervisor took; 0 where the system does not say."""
    try:
        user, nice, system, _, _, *interrupts = (int(v) for v in TICKS.read_text().split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - time.process_time()
