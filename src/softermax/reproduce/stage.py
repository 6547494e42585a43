"""A stage of the reproduction: what it runs, what its result depends on, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from softermax import cache
from softermax.files import write_text
from softermax.progress import Progress
from softermax.results import machine, versions

Mode = Literal["quick", "full"]
Settings = dict[str, Any]
StageFunction = Callable[[Settings, Progress], dict[str, Any]]
"""What a stage runs: plain values in, plain values out, for both travel as JSON."""

Status = Literal["done", "failed", "missing", "not run"]
"""``missing``: an extra, a tool or data is not there. ``not run``: not asked for, or part of --full."""


@dataclass(frozen=True)
class Stage:
    name: str
    title: str
    target: str
    """``module:function``, a `StageFunction`; it runs in a process of its own."""
    quick: Settings | None
    """None: the stage is part of --full only."""
    full: Settings
    seconds: tuple[float, float]
    """About how long it takes on two cores, quick and full: for the time left, nothing else."""
    sources: tuple[str, ...] = ()
    """The parts of the package that compute the result, as `softermax.cache.fingerprint` names them."""
    packages: tuple[str, ...] = ("numpy",)
    """Installed packages whose versions the result depends on."""
    takes: tuple[str, ...] = ()
    """Options of the command that it is given: ``data_dir``, ``pdk_root``."""
    timed: bool = False
    """The result is a time, and depends on the machine."""

    def settings(self, mode: Mode, options: Mapping[str, Any]) -> Settings | None:
        chosen = self.quick if mode == "quick" else self.full
        if chosen is None:
            return None
        return chosen | {name: options[name] for name in self.takes if options.get(name) is not None}

    def saved(self, settings: Settings) -> Path:
        """Where its outcome with these settings is kept; another place after any change of what it depends on."""
        depends = [self.target, settings, versions(self.packages), machine() if self.timed else None]
        key = cache.key(json.dumps(depends, sort_keys=True), sources=self.sources)
        return cache.cache_dir("reproduce") / f"{self.name}-{key}.json"


@dataclass(frozen=True)
class Outcome:
    """What came of a stage, and of which mode it is."""

    name: str
    title: str
    status: Status
    reason: str = ""
    """Why there is no result."""
    result: dict[str, Any] = field(default_factory=dict)
    mode: Mode = "quick"
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    date: str = ""
    earlier: bool = False
    """From the cache, not from this run."""

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self) | {"earlier": True}, indent=1) + "\n")

    @classmethod
    def kept(cls, path: Path) -> Outcome | None:
        """The outcome in the cache; None where there is none that can be read, and the stage is run again."""
        return cache.look_up(path, lambda there: cls(**json.loads(there.read_text(encoding="utf-8"))))
