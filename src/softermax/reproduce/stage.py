"""A stage of the reproduction: what it runs, what its result depends on, and what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import softermax
from softermax.cache import cache_dir
from softermax.files import write_text
from softermax.results import machine, versions

Mode = Literal["quick", "full"]
Settings = dict[str, Any]
Progress = Callable[[float, str], None]
"""Called with the share that is done, 0 to 1, and what is being done."""
Measure = Callable[[Settings, Progress], dict[str, Any]]
"""What a stage runs: plain values in, plain values out, for both travel as JSON."""

Status = Literal["done", "failed", "missing", "not run"]
"""``missing``: an extra, a tool or data is not there. ``not run``: not asked for, or part of --full."""

FORMAT = 1
"""Raised when the form of a stage's result changes without its settings."""

_SOURCES = (".py", ".cpp", ".h", ".json")


@dataclass(frozen=True)
class Stage:
    name: str
    title: str
    target: str
    """``module:function``, a `Measure`; it runs in a process of its own."""
    quick: Settings | None
    """None: the stage is part of --full only."""
    full: Settings
    seconds: tuple[float, float]
    """About how long it takes on two cores, quick and full: for the time left, nothing else."""
    parts: tuple[str, ...] = ()
    """Sub-packages that the result depends on, besides the modules at the top of the package."""
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

    def key(self, settings: Settings) -> str:
        """Changes with everything that the result depends on."""
        depends = {
            "format": FORMAT,
            "target": self.target,
            "settings": settings,
            "content": content(self.parts),
            "packages": versions(self.packages),
            "machine": machine() if self.timed else None,
        }
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:20]

    def saved(self, settings: Settings) -> Path:
        return cache_dir("reproduce") / f"{self.name}-{self.key(settings)}.json"


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
    def load(cls, path: Path) -> Outcome | None:
        """A kept outcome; None where there is none that can be read, and the stage is run again."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.is_done and isinstance(found.result, dict) else None


@lru_cache(maxsize=32)
def content(parts: tuple[str, ...]) -> str:
    """A fingerprint of the package's sources: the modules at its top, and these sub-packages."""
    root = Path(softermax.__file__).parent
    files = [path for path in root.iterdir() if path.suffix in _SOURCES]
    for part in parts:
        here = root / part
        if not here.exists():
            raise ValueError(f"stage part {part!r}: there is no such part of the package")
        files += [path for path in here.rglob("*") if path.suffix in _SOURCES] if here.is_dir() else [here]
    digest = hashlib.sha256(softermax.__version__.encode())
    for path in sorted(files):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
