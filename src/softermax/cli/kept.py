"""``--keep``: some designs are measured, and what a folder has of the others stays, with a note of where it comes from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from softermax.results import Envelope, enveloped


def to_keep(path: Path, packages: Sequence[str]) -> Envelope:
    """What is stored at ``path``, if it was made by the tools that are here."""
    before = Envelope.load(path)
    now = enveloped("", [], packages).versions
    if before.versions != now:
        raise ValueError(f"{path}: has versions {dict(before.versions)}, here are {now}: measure all designs")
    return before


def sources_of(before: Envelope, stays: Collection[str], name: str) -> list[dict[str, Any]]:
    """Where rows that stay come from, for the notes: each command with its date, machine and designs.

    ``name`` is the field of a row that names its design.
    """
    earlier = before.notes.get("kept", [])
    told = {design for entry in earlier for design in entry["designs"]}
    own = [design for design in dict.fromkeys(row[name] for row in before.rows) if design not in told]
    own_entry = {
        "command": before.command,
        "date": before.date,
        "machine": dict(before.machine),
        "designs": own,
    }
    entries = [
        entry | {"designs": [design for design in entry["designs"] if design in stays]}
        for entry in [*earlier, own_entry]
    ]
    return [entry for entry in entries if entry["designs"]]
