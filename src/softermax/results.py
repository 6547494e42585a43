"""Measured results in an envelope: the rows, and the command, date, versions and machine that they come from.

Every measuring command writes one with ``--out FOLDER``; the site, the README and the report read nothing else.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from softermax.files import read_text, write_text


@dataclass(frozen=True)
class Envelope:
    """What a command measured, and how."""

    command: str
    date: str
    versions: Mapping[str, str | None]
    machine: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What holds for all rows: data, settings, and what a reader must know."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Envelope:
        try:
            values = json.loads(read_text(path))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{os.fspath(path)}: not a result file: JSON is broken at line {error.lineno}: {error.msg}"
            ) from None
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or {*values, "notes"} != set(names):
            raise ValueError(f"{os.fspath(path)}: not a result file: its fields must be {', '.join(names)}")
        return cls(**values)


def enveloped(
    command: str,
    rows: Sequence[Mapping[str, Any]],
    packages: Sequence[str] = ("numpy",),
    notes: Mapping[str, Any] | None = None,
) -> Envelope:
    """Rows that were measured just now, by this command, with these packages."""
    return Envelope(command, today(), versions(("softermax", *packages)), machine(), rows, notes or {})


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def versions(packages: Sequence[str]) -> dict[str, str | None]:
    """Installed versions, None for what is not there."""
    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, Any]:
    """The class of this machine: nothing that tells which one it is."""
    from softermax import kernels

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory),
        "kernels": kernels.isa() or "none",
        "python": platform.python_version(),
    }
