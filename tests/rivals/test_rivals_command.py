"""`softermax rivals`: the table, its keys, its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from softermax.cli import main
from softermax.results import Envelope, enveloped
from softermax.rivals.page import SILICON, designs, rivals_page, shown

Capture = pytest.CaptureFixture[str]
TWO = ["rivals", "--names", "ita", "paper+fold", "--no-recorded", "--quiet"]
PLAIN = [*TWO, "--no-silicon"]
BUILT = {
    "unit": "whole", "width": 16, "library": "nangate45", "area_um2": 1234.5, "pj_per_element": 0.5, "slack_ns": 0.1,
}  # fmt: skip


def test_prints_a_row_per_design_and_in_json_the_keys_that_others_read(capsys: Capture) -> None:
    assert main(PLAIN) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["ita", "rival"], ["paper+fold", "ours"]]
    assert main([*PLAIN, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["ita", "paper+fold"]
    for row in rows:
        assert {"name", "kind", "l1_128", "l1_384", "mass_2048"} <= set(row)
        assert "l1_recorded" not in row


def test_writes_an_envelope_and_a_page_with_silicon_that_lies_beside(tmp_path: Path, capsys: Capture) -> None:
    both = [{"name": "ita"} | BUILT | {"width": width} for width in (16, 32)]
    enveloped("silicon", both).save(tmp_path / "rivals-silicon.json")
    assert main([*TWO, "--out", str(tmp_path)]) == 0
    rows = Envelope.load(tmp_path / "rivals.json").rows
    assert [(row["name"], row.get("width")) for row in rows] == [
        ("ita", 16),
        ("ita", 32),
        ("paper+fold", None),
    ]
    assert rows[0]["l1_128"] == rows[1]["l1_128"] < 1
    assert {key: rows[0][key] for key in SILICON} == BUILT
    page = (tmp_path / "rivals.md").read_text(encoding="utf-8")
    assert "## Silicon" in page
    assert "| `ita` | whole | 32 | nangate45 | 1234 | 0.500 | 0.10 |" in page
    assert [row["name"] for row in designs(rows)] == ["ita", "paper+fold"]
    assert "area_um2" in shown(rows)[0]


def test_a_page_without_silicon_says_nothing_of_it(tmp_path: Path, capsys: Capture) -> None:
    assert main([*PLAIN, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert "## Silicon" not in rivals_page(rows)
    assert "area_um2" not in shown(rows)[0]


def test_bad_names_and_seeds_are_bad_input(capsys: Capture) -> None:
    assert main(["rivals", "--names", "nobody"]) == 2
    assert "unknown rival 'nobody'" in capsys.readouterr().err
    assert main(["rivals", "--seed", "-1"]) == 2
    assert "--seed -1: must be 0 or more" in capsys.readouterr().err


def test_silicon_may_be_named_and_units_are_rows_of_their_own(tmp_path: Path, capsys: Capture) -> None:
    units = [{"name": "ita"} | BUILT | {"unit": unit} for unit in ("unnormed", "whole")]
    path = enveloped("silicon", units).save(tmp_path / "measured.json")
    assert main([*TWO, "--silicon", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row.get("unit")) for row in rows] == [
        ("ita", "unnormed"),
        ("ita", "whole"),
        ("paper+fold", None),
    ]
    # A terminal has whole softmaxes only.
    assert [row["name"] for row in shown(rows)] == ["ita", "paper+fold"]
