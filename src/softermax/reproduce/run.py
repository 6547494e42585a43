"""Running the stages: each in a process of its own, kept when finished, none able to take the others down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from softermax.cache import cache_dir
from softermax.progress import Progress
from softermax.reproduce.stage import Mode, Outcome, Settings, Stage, Status
from softermax.reproduce.worker import FAILED, MISSING
from softermax.results import today

_GRACE = 10.0
"""Seconds that an interrupted stage has to tidy up."""


class Display(Protocol):
    """Who is told how it goes."""

    def begin(self, stage: Stage) -> None: ...

    def progress(self, done: int, total: int, note: str, left: float) -> None:
        """As `softermax.progress` has it, and about how many seconds are left of all stages."""

    def end(self, outcome: Outcome) -> None: ...

    def found(self, outcome: Outcome, findings: Sequence[str]) -> None:
        """What an outcome says, in lines for a reader; told by who makes the report."""


def choose(stages: Sequence[Stage], names: Sequence[str], mode: Mode) -> list[Stage]:
    """The stages of these names (all of the mode without any), in their own order."""
    known = {stage.name: stage for stage in stages}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown stage {name!r}: must be one of {', '.join(known)}")
        if mode == "quick" and known[name].quick is None:
            raise ValueError(f"stage {name!r} is part of --full only: give --full --stage {name}")
    return [
        stage
        for stage in stages
        if (stage.name in names if names else mode == "full" or stage.quick is not None)
    ]


def reproduce(
    stages: Sequence[Stage],
    mode: Mode,
    names: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    fresh: bool = False,
    display: Display | None = None,
) -> Iterator[Outcome]:
    """Run the chosen stages that are not finished yet; also says what there is of the others.

    The outcome of every stage comes as soon as it is there. A finished stage is kept in the cache at once, so that an
    interrupted run goes on after it. Of a quick run, stages that a full run with the same package has finished are
    taken from that.
    """
    options = options or {}
    chosen = {stage.name for stage in choose(stages, names, mode)}
    ready = {
        stage.name: None if fresh and stage.name in chosen else earlier(stage, mode, options)
        for stage in stages
    }
    estimate = Estimate([stage for stage in stages if stage.name in chosen and not ready[stage.name]], mode)
    for stage in stages:
        outcome = ready[stage.name]
        if stage.name in chosen:
            if display:
                display.begin(stage)
            if outcome is None:
                outcome = _run(stage, mode, options, fresh, estimate, display)
            if display:
                display.end(outcome)
        elif outcome is None:
            outcome = Outcome(stage.name, stage.title, "not run", _why_not(stage, mode, names), mode=mode)
        yield outcome


def earlier(stage: Stage, mode: Mode, options: Mapping[str, Any]) -> Outcome | None:
    """The outcome that is kept of a stage, if any."""
    modes: tuple[Mode, ...] = ("full", "quick") if mode == "quick" else ("full",)
    for wanted in modes:
        settings = stage.settings(wanted, options)
        found = Outcome.kept(stage.saved(settings)) if settings is not None else None
        if found is not None:
            return found
    return None


def _why_not(stage: Stage, mode: Mode, names: Sequence[str]) -> str:
    command = f"softermax reproduce{' --full' if mode == 'full' or stage.quick is None else ''} --stage {stage.name}"
    if stage.quick is None and mode == "quick":
        return f"part of a full run only: {command}"
    return f"not asked for: {command}"


def _run(
    stage: Stage,
    mode: Mode,
    options: Mapping[str, Any],
    fresh: bool,
    estimate: Estimate,
    display: Display | None,
) -> Outcome:
    settings = stage.settings(mode, options)
    assert settings is not None
    saved = stage.saved(settings)
    started = time.monotonic()

    def progress(done: int, total: int, note: str = "") -> None:
        if display:
            left = estimate.left(stage, done / max(total, 1), time.monotonic() - started)
            display.progress(done, total, note, left)

    progress(0, 1)
    # Long stages keep their parts; they are told to drop them too.
    answer = _in_process(stage, settings | ({"fresh": True} if fresh else {}), progress)
    seconds = round(time.monotonic() - started, 1)
    estimate.finish(stage, seconds)
    if "error" in answer:
        status: Status = "missing" if answer["kind"] == MISSING else "failed"
        return Outcome(stage.name, stage.title, status, answer["error"], {}, mode, seconds, date=today())
    outcome = Outcome(
        stage.name, stage.title, "done", "", answer["result"], mode, seconds, round(answer["cpu"], 1), today()
    )
    outcome.save(saved)
    return outcome


def log_of(stage: str) -> Path:
    """Where what a stage printed last is found."""
    return cache_dir("reproduce", "logs") / f"{stage}.log"


def _in_process(stage: Stage, settings: Settings, progress: Progress) -> dict[str, Any]:
    """The worker's last message; one that says how it ended where it sent none."""
    read, write = os.pipe()
    order = {"target": stage.target, "settings": settings, "path": sys.path}
    answer: dict[str, Any] = {}
    with open(log_of(stage.name), "wb") as log, open(read, encoding="utf-8") as pipe:
        try:
            worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "softermax.reproduce.worker", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write,),
                start_new_session=True,
            )
        finally:
            os.close(write)
        try:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(order).encode())
            worker.stdin.close()
            for line in pipe:
                message = json.loads(line)
                if "done" in message:
                    progress(message["done"], message["total"], message["note"])
                else:
                    answer = message
            worker.wait()
        finally:
            _end(worker)
    if answer:
        return answer
    code = worker.returncode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {"error": f"its process ended with {how}", "kind": FAILED}


def _end(worker: subprocess.Popen[bytes]) -> None:
    """End the worker and all that it started, kindly first."""
    if worker.poll() is not None:
        return
    for sign, seconds in ((signal.SIGINT, _GRACE), (signal.SIGKILL, None)):
        os.killpg(worker.pid, sign)
        try:
            worker.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue


class Estimate:
    """The time left: what the stages are expected to take, corrected by what those before them took."""

    def __init__(self, stages: Sequence[Stage], mode: Mode) -> None:
        self._expected = {stage.name: stage.seconds[mode == "full"] for stage in stages}
        self._took: dict[str, float] = {}

    def finish(self, stage: Stage, seconds: float) -> None:
        self._took[stage.name] = seconds

    @property
    def _pace(self) -> float:
        expected = sum(self._expected[name] for name in self._took)
        return min(20.0, max(0.1, sum(self._took.values()) / expected)) if expected else 1.0

    def left(self, stage: Stage, share: float, elapsed: float) -> float:
        expected = self._expected[stage.name] * self._pace
        # The first steps say little of the others, but more than an expectation that has passed.
        trusted = share > 0.05 or (share > 0 and elapsed > expected)
        here = elapsed / share * (1 - share) if trusted else max(0.0, expected - elapsed)
        others = [n for n in self._expected if n not in self._took and n != stage.name]
        return here + self._pace * sum(self._expected[name] for name in others)
