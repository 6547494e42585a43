"""Measured results travel with the command, date, versions and machine that they come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from softermax import kernels, progress
from softermax.results import Envelope, enveloped, versions


def test_an_envelope_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    made = enveloped(
        "softermax bench kernels", [{"columns": 384, "ratio": 2.5}], ("numpy", "no-such"), {"data": "drawn"}
    )
    path = made.save(tmp_path / "new" / "bench.json")
    assert path == tmp_path / "new" / "bench.json"
    read = Envelope.load(path)
    assert read == made
    assert read.rows == [{"columns": 384, "ratio": 2.5}]
    assert (read.command, read.notes) == ("softermax bench kernels", {"data": "drawn"})


def test_an_envelope_says_what_made_it() -> None:
    made = enveloped("softermax silicon", [])
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", made.date)
    assert list(made.versions) == ["softermax", "numpy"]
    assert versions(["no-such-package"]) == {"no-such-package": None}
    assert made.machine["kernels"] == (kernels.isa() or "none")
    assert set(made.machine) == {"system", "architecture", "cores", "memory_gb", "kernels", "python"}


def test_an_envelope_without_notes_is_read(tmp_path: Path) -> None:
    values = {"command": "c", "date": "2026-01-01", "versions": {}, "machine": {}, "rows": []}
    (tmp_path / "a.json").write_text(json.dumps(values))
    assert Envelope.load(tmp_path / "a.json").notes == {}


WHOLE: dict[str, Any] = {
    "command": "c",
    "date": "2026-01-01",
    "versions": {},
    "machine": {},
    "rows": [],
    "notes": {},
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a result file: JSON is broken at line 1"),
        (b'{"command": "c",\n "rows": [}', "not a result file: JSON is broken at line 2"),
        (b"[1, 2]", "not a result file: its fields must be command, date, versions, machine, rows, notes"),
        (b"\xff{}", r"line 1: not UTF-8 \(byte 0xff"),
        (json.dumps({k: v for k, v in WHOLE.items() if k != "machine"}).encode(), "its fields must be"),
        (json.dumps(WHOLE | {"rwos": []}).encode(), "its fields must be"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        Envelope.load(path)
    assert str(error.value).startswith(str(path))


def test_silent_progress_takes_what_any_progress_takes(capsys: pytest.CaptureFixture[str]) -> None:
    report: progress.Progress = progress.silent
    report(1, 2, "half")
    progress.silent(2, 2)
    assert capsys.readouterr() == ("", "")


def test_several_works_count_as_one() -> None:
    told: list[tuple[int, int, str]] = []
    for number in range(3):
        report = progress.within(lambda *step: told.append(step), number, of=3)
        for done in range(2):
            report(done, 2, f"work {number}")
    report(2, 2, "")
    assert told == [*((i, 6, f"work {i // 2}") for i in range(6)), (6, 6, "")]
