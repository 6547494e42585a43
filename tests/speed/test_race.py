"""Turns with several threads, on a clock that a test moves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from softermax.speed import race


class Machine:
    """A process whose runtimes' threads spin on after a call, and now and then another program beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.own = self.others = self.spin_end = 0.0
        self.spinner = ""
        self.busy_calls: set[int] = set()
        """Calls, counted from 0, beside which another program runs."""
        self.calls = 0
        clocks = {"perf_counter": lambda: self.now, "process_time": lambda: self.own, "sleep": self.sleep}
        for name, clock in clocks.items():
            monkeypatch.setattr(race.time, name, clock)
        monkeypatch.setattr(race, "others_seconds", lambda: self.others)

    def sleep(self, seconds: float) -> None:
        self.own += min(seconds, max(0.0, self.spin_end - self.now))
        self.now += seconds

    def runtime(self, name: str, seconds: float, spins: float = 0.0) -> Callable[[], None]:
        """Takes twice as long beside another runtime's spinning threads, or another program."""

        def call() -> None:
            busy = self.calls in self.busy_calls
            shared = busy or (self.spinner != name and self.now < self.spin_end)
            took = seconds * (2 if shared else 1)
            self.calls += 1
            self.now += took
            self.own += took
            self.others += took if busy else 0.0
            self.spinner, self.spin_end = name, self.now + spins

        return call


def test_a_turn_waits_until_the_threads_of_another_runtime_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    both = {
        race.OURS: machine.runtime("ours", 0.006),
        "other": machine.runtime("other", 0.3, spins=0.2),
    }
    found = race.seconds_of(both, 3, 2)
    assert found[race.OURS] == pytest.approx([0.006] * 3)
    assert found["other"] == pytest.approx([0.3] * 3)


def test_threads_that_never_sleep_do_not_hold_up_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.spin_end = 1e9
    race.settle()
    assert machine.now == pytest.approx(race.LOOK * race.LOOKS)


def test_a_turn_beside_another_program_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.busy_calls = {
        3,
        5,
    }  # after two calls to count repeats, each turn is one to warm up and one that counts
    found = race.seconds_of({race.OURS: machine.runtime("ours", 0.3)}, 2, 2)
    assert found[race.OURS] == pytest.approx([0.3] * 2)
    assert machine.calls == 2 + 2 * (2 + 2)


def test_a_machine_that_is_never_free_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.busy_calls = set(range(100))
    found = race.seconds_of({race.OURS: machine.runtime("ours", 0.3)}, 1, 2)
    assert found[race.OURS] == pytest.approx([0.6])
    assert machine.calls == 2 + 2 * race.TRIES


def test_others_have_what_is_neither_idle_nor_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(race.time, "process_time", lambda: 0.5)
    monkeypatch.setattr(race.os, "sysconf", lambda _: 100)
    monkeypatch.setattr(race, "TICKS", tmp_path / "stat")
    assert race.others_seconds() == 0.0  # a system that does not say
    (tmp_path / "stat").write_text("cpu  100 20 30 9999 9999 1 2 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert race.others_seconds() == pytest.approx(1.57 - 0.5)


def sleeper(threads: int) -> Callable[[float], None]:
    """Made in the contestant's own process; a module's function, so that the process finds it."""
    here = os.getpid()

    def call(seconds: float) -> None:
        assert os.getpid() == here
        time.sleep(seconds * threads)

    return call


def test_a_contestant_apart_takes_its_turns_in_its_own_process() -> None:
    apart = race.Apart(sleeper, 2)
    try:
        found = race.seconds_of({race.OURS: apart.called_with(0.15)}, 2, 2)
    finally:
        apart.process.shutdown()
    assert (found[race.OURS] >= 0.3).all()
