"""How the reproduction goes, on standard error: bars with the time left on a terminal, lines in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from softermax.reproduce.run import Display
from softermax.reproduce.stage import Outcome, Stage

_EVERY = 10.0
"""Seconds between two lines of a stage in a pipe."""
_FINDINGS = 4
"""Lines that are shown of what a stage found."""


def duration(seconds: float) -> str:
    """
    >>> duration(7.4), duration(215), duration(7300)
    ('7 s', '3 min 35 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def said(outcome: Outcome) -> str:
    """A line about an outcome."""
    if outcome.is_done:
        return f"done before, {outcome.date}" if outcome.earlier else duration(outcome.seconds)
    return f"{outcome.status}: {outcome.reason}"


def shortened(findings: Sequence[str]) -> list[str]:
    """As many as a reader follows while the rest runs."""
    more = len(findings) - _FINDINGS
    return [*findings[:_FINDINGS], *([f"and {more} more in the report"] if more > 0 else [])]


class Lines:
    """For pipes and logs."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [stage.name for stage in stages]
        self._name, self._last = "", 0.0

    def begin(self, stage: Stage) -> None:
        self._name = f"[{self._stages.index(stage.name) + 1}/{len(self._stages)}] {stage.name}"
        self._last = time.monotonic()
        self._print(stage.title)

    def progress(self, done: int, total: int, note: str, left: float) -> None:
        if time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            self._print(f"{done / max(total, 1):.0%} {note}, about {duration(left)} left in all")

    def end(self, outcome: Outcome) -> None:
        self._print(said(outcome))

    def found(self, outcome: Outcome, findings: Sequence[str]) -> None:
        for line in shortened(findings):
            print(f"  {line}", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)


class Bars:
    """For terminals: a bar per stage, and one for all with the time left."""

    def __init__(self, stages: Sequence[Stage], progress: Any) -> None:
        """``progress`` is rich's; its columns show the fields ``note`` and ``left`` as they are."""
        self._progress = progress
        self._all = progress.add_task("all", total=len(stages), note="", left="")
        self._tasks = {
            s.name: progress.add_task(s.name, total=1.0, note=s.title, left="", start=False) for s in stages
        }
        self._done = 0
        self._now = ""

    def begin(self, stage: Stage) -> None:
        self._now = stage.name
        self._progress.start_task(self._tasks[stage.name])

    def progress(self, done: int, total: int, note: str, left: float) -> None:
        share = done / max(total, 1)
        self._progress.update(self._tasks[self._now], completed=share, **({"note": note} if note else {}))
        self._progress.update(self._all, completed=self._done + share, left=f"about {duration(left)} left")

    def end(self, outcome: Outcome) -> None:
        self._done += 1
        task = self._tasks[outcome.name]
        self._progress.update(task, note=said(outcome), **({"completed": 1.0} if outcome.is_done else {}))
        self._progress.stop_task(task)
        self._progress.update(self._all, completed=self._done)

    def found(self, outcome: Outcome, findings: Sequence[str]) -> None:
        for line in shortened(findings):
            self._progress.console.print(f"{outcome.name}: {line}", markup=False, highlight=False)


@contextlib.contextmanager
def display(stages: Sequence[Stage], quiet: bool) -> Iterator[Display | None]:
    """Bars where there are a terminal and rich, lines elsewhere, nothing when quiet."""
    if quiet:
        yield None
        return
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            pass
        else:
            columns = (
                TextColumn("{task.description:10}"), BarColumn(bar_width=24), TimeElapsedColumn(),
                TextColumn("{task.fields[note]}{task.fields[left]}", markup=False),
            )  # fmt: skip
            with Progress(*columns, console=Console(stderr=True)) as progress:
                yield Bars(stages, progress)
            return
    yield Lines(stages)
