"""The machinery of the reproduction, with stages that take no time."""

from __future__ import annotations

import ast
import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import softermax
from softermax import cache as package_cache
from softermax.reproduce import run as running
from softermax.reproduce.run import reproduce as reproducing
from softermax.reproduce.stage import Outcome, Stage
from softermax.reproduce.stages import STAGES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SOFTERMAX_CACHE", str(folder))
    return folder


def stub(name: str, function: str = "count", full_only: bool = False, **settings: Any) -> Stage:
    values = {"name": name} | settings
    return Stage(
        name, name.upper(), f"stub_stages:{function}", None if full_only else values, values, (1.0, 1.0)
    )


def reproduce(*arguments: Any, **options: Any) -> list[Outcome]:
    return list(reproducing(*arguments, **options))


class Heard:
    """A display that writes down what it is told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []
        self.left: list[float] = []
        self.ended: list[Outcome] = []

    def begin(self, stage: Stage) -> None:
        self.begun.append(stage.name)

    def progress(self, done: int, total: int, note: str, left: float) -> None:
        assert 0 <= done <= total
        self.notes.append(note)
        self.left.append(left)

    def end(self, outcome: Outcome) -> None:
        self.ended.append(outcome)

    def found(self, outcome: Outcome, findings: Sequence[str]) -> None:
        """Told by the command, not by the run."""


def test_stages_run_once_and_are_kept(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stages = [stub(name, runs=str(runs)) for name in ("first", "second")]
    heard = Heard()
    outcomes = reproduce(stages, "quick", display=heard)
    assert [o.status for o in outcomes] == ["done", "done"]
    assert outcomes[0].result["name"] == "first"
    assert heard.begun == ["first", "second"]
    assert "half way" in heard.notes
    assert all(seconds >= 0 for seconds in heard.left)
    assert not any(o.earlier for o in outcomes)
    again = reproduce(stages, "quick")
    assert all(o.earlier and o.is_done for o in again)
    assert [o.result for o in again] == [o.result for o in outcomes]
    assert runs.read_text().split() == ["first", "second"]


def test_one_stage_alone_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stages = [stub(name, runs=str(runs)) for name in ("first", "second")]
    outcomes = reproduce(stages, "quick", ["second"])
    assert [o.status for o in outcomes] == ["not run", "done"]
    assert "softermax reproduce --stage first" in outcomes[0].reason
    assert reproduce(stages, "quick", ["first"])[1].earlier
    assert runs.read_text().split() == ["second", "first"]


@pytest.mark.parametrize(
    ("function", "status", "reason"),
    [
        ("fail", "failed", "RuntimeError: it broke"),
        ("need_what_is_not_there", "missing", "pip install '.[nothing]'"),
        ("die", "failed", "SIGKILL"),
        ("no_number", "failed", "ValueError"),
        ("no_such_function", "failed", "no_such_function"),
    ],
)
def test_a_broken_stage_takes_none_down_and_says_why(
    function: str, status: str, reason: str, tmp_path: Path
) -> None:
    stages = [stub("broken", function), stub("after", runs=str(tmp_path / "runs"))]
    broken, after = reproduce(stages, "quick")
    assert (broken.status, after.status) == (status, "done")
    assert reason in broken.reason
    assert broken.result == {}
    # It is tried again, the other one is not.
    broken, after = reproduce(stages, "quick")
    assert (broken.status, after.earlier) == (status, True)


def test_what_a_stage_prints_is_in_its_log(tmp_path: Path) -> None:
    reproduce([stub("talking", runs=str(tmp_path / "runs"))], "quick")
    assert "noise" in running.log_of("talking").read_text()


def test_fresh_runs_again_and_says_so_to_the_stage(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    stages = [stub("first", runs=str(runs))]
    assert reproduce(stages, "quick")[0].result["fresh"] is False
    assert reproduce(stages, "quick", fresh=True)[0].result["fresh"] is True
    assert runs.read_text().split() == ["first", "first"]


def test_other_settings_other_code_or_a_damaged_file_run_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"

    def times(**changed: Any) -> int:
        reproduce([stub("first", runs=str(runs), **changed)], "quick")
        return len(runs.read_text().split())

    assert times() == 1
    assert times(rows=2) == 2
    assert times(rows=2) == 2
    monkeypatch.setattr(package_cache, "fingerprint", lambda sources: "changed")
    assert times(rows=2) == 3
    for path in cache.glob("reproduce/first-*.json"):
        path.write_text("{")
    with pytest.warns(UserWarning, match=r"first-\w+\.json in the cache cannot be read"):
        assert times(rows=2) == 4


def test_a_quick_run_takes_what_a_full_one_has_done(tmp_path: Path) -> None:
    stage = Stage(
        "sized", "SIZED", "stub_stages:count",
        {"name": "small", "runs": str(tmp_path / "runs")}, {"name": "large", "runs": str(tmp_path / "runs")}, (1.0, 1.0),
    )  # fmt: skip
    assert reproduce([stage], "full")[0].mode == "full"
    outcome = reproduce([stage], "quick")[0]
    assert (outcome.mode, outcome.earlier, outcome.result["name"]) == ("full", True, "large")


def test_stages_of_the_full_run_are_named_in_a_quick_one(tmp_path: Path) -> None:
    stages = [stub("long", full_only=True), stub("short", runs=str(tmp_path / "runs"))]
    long, short = reproduce(stages, "quick")
    assert (long.status, short.status) == ("not run", "done")
    assert "softermax reproduce --full --stage long" in long.reason
    with pytest.raises(ValueError, match="'long' is part of --full only"):
        reproduce(stages, "quick", ["long"])


def test_an_unknown_stage_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown stage 'laddr': must be one of ladder, drop-in, finetune"):
        reproduce(STAGES, "quick", ["laddr"])


def test_an_interrupted_run_leaves_nothing_broken_and_goes_on(tmp_path: Path, cache: Path) -> None:
    runs, go = tmp_path / "runs", tmp_path / "go"
    stages = [
        stub("first", runs=str(runs)),
        stub("second", "wait", go=str(go)),
        stub("third", runs=str(runs)),
    ]
    script = textwrap.dedent(
        """
        import sys
        from test_run import Heard, reproduce, stub

        class Loud(Heard):
            def progress(self, done, total, note, left):
                if note.startswith("worker"):
                    print(note, flush=True)

        runs, go = sys.argv[1:]
        stages = [stub("first", runs=runs), stub("second", "wait", go=go), stub("third", runs=runs)]
        reproduce(stages, "quick", display=Loud())
        """
    )
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(runs), str(go)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": path},
    ) as command:  # fmt: skip
        assert command.stdout is not None
        worker = int(command.stdout.readline().split()[1])
        command.send_signal(signal.SIGINT)
        assert command.wait(60) != 0
    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline, "the stage outlives the command"
        time.sleep(0.05)
    assert not list(cache.rglob("*.part"))
    for kept in cache.glob("reproduce/*.json"):
        json.loads(kept.read_text())
    go.touch()
    outcomes = reproduce(stages, "quick")
    assert [o.status for o in outcomes] == ["done"] * 3
    assert [o.earlier for o in outcomes] == [True, False, False]
    assert runs.read_text().split() == ["first", "third"]


def test_the_time_left_follows_the_pace_of_what_is_done() -> None:
    stages = [stub(name) for name in ("a", "b", "c")]
    estimate = running.Estimate(stages, "quick")
    assert estimate.left(stages[0], 0.0, 0.0) == pytest.approx(3.0)
    estimate.finish(stages[0], 4.0)
    assert estimate.left(stages[1], 0.0, 0.0) == pytest.approx(8.0)
    assert estimate.left(stages[1], 0.5, 2.0) == pytest.approx(2.0 + 4.0)
    # A stage that takes longer than expected is not nearly done.
    assert estimate.left(stages[1], 0.01, 8.0) == pytest.approx(792.0 + 4.0)


def test_outcomes_come_one_by_one(tmp_path: Path) -> None:
    """So that the first is shown while the next one runs."""
    runs = tmp_path / "runs"
    outcomes = reproducing([stub(name, runs=str(runs)) for name in ("first", "second")], "quick")
    assert next(outcomes).name == "first"
    assert runs.read_text().split() == ["first"]
    assert next(outcomes).name == "second"


def test_every_stage_has_a_target_and_sources_that_exist() -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    for stage in STAGES:
        module, _, function = stage.target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
        assert package_cache.fingerprint(stage.sources)
        assert stage.settings("full", {}) is not None


@pytest.mark.parametrize("module", ["arithmetic", "hardware", "models", "speed"])
def test_a_stage_depends_on_every_module_that_it_imports(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages import what is heavy when they run: it must be among their sources all the same."""
    target = f"softermax.reproduce.stages.{module}"
    stages = [stage for stage in STAGES if stage.target.startswith(f"{target}:")]
    path = importlib.import_module(target).__file__
    assert path is not None
    imported = {
        node.module.removeprefix("softermax.")
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("softermax.")
    }
    seen: set[Path] = set()

    def noted(read: Any) -> Any:
        def reading(self: Path, *arguments: Any, **options: Any) -> Any:
            seen.add(self)
            return read(self, *arguments, **options)

        return reading

    for method in ("read_bytes", "read_text"):
        monkeypatch.setattr(Path, method, noted(getattr(Path, method)))
    package_cache.fingerprint.cache_clear()
    for stage in stages:
        package_cache.fingerprint(stage.sources)
    for name in imported - {"cache", "extras", "files", "finetune", "progress"}:
        base = Path(softermax.__file__).parent.joinpath(*name.split("."))
        files = {base.with_suffix(".py"), base / "__init__.py"}
        assert files & seen, f"{name} is not among the sources of {', '.join(s.name for s in stages)}"
