"""The one command that makes the rivals' page anew."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

import pytest

from softermax.cli import build_parser
from softermax.rivals import all_designs, get_attention, rivals
from softermax.rivals.in_models import in_models

from .blocks import ROOT
from .test_results import save
from .test_site import load


@pytest.fixture
def script() -> ModuleType:
    return load("rivals")


def planned(script: ModuleType, **asked: object) -> list[list[str]]:
    wanted = {"silicon": False, "models": False, "data_dir": None} | asked
    found: list[list[str]] = script.commands(argparse.Namespace(**wanted))
    return found


def test_every_command_is_one_that_softermax_takes(script: ModuleType) -> None:
    parser = build_parser()
    commands = planned(script, silicon=True, models=True, data_dir="DATA")
    ours = [command for command in commands if command[0] == "softermax"]
    assert [command[1] for command in ours] == [
        "silicon", *["finetune", "evaluate"] * len(script.SWAPPED), "finetune",
        *["perplexity"] * len(script.CONTEXTS), "rivals",
    ]  # fmt: skip
    for command in ours:
        parser.parse_args(command[1:])
    copied = [command for command in commands if command[0] == "cp"]
    assert len(ours) + len(copied) == len(commands) - 1
    assert {Path(made).parent.as_posix() for _, made, _ in copied} <= {
        command[command.index("--out") + 1] for command in ours
    }
    assert commands[-1][1:3] == ["docs/_build/results.py", "README.md"]
    assert "docs/rivals.md" in commands[-1]
    assert planned(script) == commands[-2:]


def test_models_get_every_rival(script: ModuleType) -> None:
    names = script.swapped()
    for name in names:
        get_attention(name)
    assert {f"rival:{design.name}" for design in rivals().values() if design.about.kind == "rival"} <= set(
        names
    )
    assert len(set(names)) == len(names)


def test_every_rival_is_stored_with_every_task_and_the_short_context(
    script: ModuleType,
) -> None:
    columns = in_models(load("results").figures.rows)
    tasks = [column for column in columns if column.endswith("points")]
    assert len(tasks) == len(script.SWAPPED)
    for column in [*tasks, "perplexity at 512, %"]:
        assert set(columns[column]) == set(script.swapped()), column


def test_models_without_data_are_refused(script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="--models: needs --data-dir DATA"):
        planned(script, models=True)


def test_every_output_word_has_its_place_and_the_nearest_stands_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = load("results")
    monkeypatch.setattr(tables.figures, "RESULTS", tmp_path)

    def row(name: str, kind: str, gives: str, error: float, retraining: bool = False) -> dict[str, object]:
        errors = dict.fromkeys(("l1_128", "l1_384", "l1_2048", "l1_recorded"), error)
        return {"name": name, "kind": kind, "gives": gives, "needs": {"retraining": retraining}} | errors

    words = {design.gives: design.about.kind for design in all_designs() if design.about.kind != "reference"}
    save(tables, "rivals", [row(f"d{n}", kind, gives, 0.5) for n, (gives, kind) in enumerate(words.items())])
    kinds = {one["output word"] for one in tables.rivals_by_length()}
    assert len(kinds) == 6
    two = [row("far", "rival", "u8, p = y / 256", 0.3), row("near", "rival", "s8, p = y / 128", 0.2)]
    save(tables, "rivals", [*two, row("trained", "rival", "u8, p = y / 256", 0.1, retraining=True)])
    assert [one["128"] for one in tables.rivals_by_length()] == ["`near` 0.200"]


def test_the_stored_table_has_every_design_and_every_one_in_rtl_at_both_widths_within_the_clock() -> None:
    """What `softermax rivals --json` is held to."""
    pytest.importorskip("amaranth")
    from softermax.rtl.rivals.registry import built

    figures = load("results").figures
    assert figures.RESULTS == ROOT / "docs" / "results"
    rows = figures.rows("rivals")
    assert {row["name"] for row in rows} == {design.name for design in all_designs()}
    for row in rows:
        assert {"name", "kind", "l1_128", "l1_384", "mass_2048"} <= set(row)
    silicon = [row for row in rows if "area_um2" in row]
    for row in silicon:
        assert {"width", "library", "area_um2", "pj_per_element", "slack_ns", "unit"} <= set(row)
        assert row["slack_ns"] >= 0, row["name"]
    wholes = {(row["name"], row["width"]) for row in silicon if row["unit"] == "whole"}
    assert {(name, width) for name in built() for width in (16, 32)} <= wholes
