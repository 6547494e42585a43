"""The search: the same front for the same seed, whatever is interrupted and wherever it runs."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("optuna", reason="comes with the extra search")

from softermax.executor import executor
from softermax.search import engine
from softermax.search.engine import Search, run_search
from softermax.search.presets import presets_at
from softermax.search.silicon_model import SiliconModel
from softermax.search.space import Space

PRESETS = presets_at("rows", 16)


@pytest.fixture(scope="module", autouse=True)
def few_random_trials() -> Iterator[None]:
    """The sampler begins to model early, so that these tests see it do so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "RANDOM_TRIALS", 8)
        yield


@pytest.fixture(scope="module")
def search(rows) -> Search:
    return Search(Space.of(), rows, SiliconModel.load(), seed=1, batch=8)


@pytest.fixture(scope="module")
def place():
    with executor(1) as found:
        yield found


@pytest.fixture(scope="module")
def whole(search, place, tmp_path_factory):
    """What an undisturbed search of 24 trials finds."""
    return run_search(search, 24, tmp_path_factory.mktemp("whole") / "a.db", place, PRESETS)


def test_points_are_judged_in_full_and_have_the_presets_among_them(whole, search) -> None:
    by_name = {point.name: point for point in whole}
    assert set(PRESETS) <= set(by_name)
    drawn = [point for point in whole if point.trial is not None]
    assert 0 < len(drawn) < 24
    assert len({point.spec.to_json() for point in whole}) == len(whole)
    assert any(point.on_front for point in whole)
    paper = by_name["paper"]
    assert paper.figures.l1 == pytest.approx(engine.golden_error(PRESETS["paper"], search.rows).l1)


def test_another_seed_finds_others(search, place, tmp_path, whole) -> None:
    other = Search(search.space, search.rows, search.silicon, seed=2, batch=8)
    found = run_search(other, 8, tmp_path / "a.db", place, PRESETS)
    assert [p.spec for p in found] != [p.spec for p in whole]


@pytest.mark.parametrize("at", [3, 20])
def test_an_interrupted_search_goes_on_to_the_same_points(search, place, tmp_path, whole, at) -> None:
    """Interrupted while it draws, and between the rounds of its second batch."""
    calls = 0

    def interrupt(done: int, total: int, note: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_search(search, 24, tmp_path / "a.db", place, PRESETS, interrupt)
    assert run_search(search, 24, tmp_path / "a.db", place, PRESETS) == whole


@pytest.mark.parametrize("random_trials", [8, 1000])
def test_interrupted_in_the_middle_of_a_draw_it_draws_the_rest_as_it_would_have(
    search, place, tmp_path, random_trials, monkeypatch
) -> None:
    """Of a trial that the sampler models, and of one that is drawn evenly."""
    monkeypatch.setattr(engine, "RANDOM_TRIALS", random_trials)
    whole = run_search(search, 16, tmp_path / "whole.db", place, PRESETS)
    calls, drawn = 0, engine._suggested

    def interrupt(*args):
        nonlocal calls
        calls += 1
        if calls == (len(PRESETS) + 2) * len(search.space.dimensions) + 10:
            raise KeyboardInterrupt
        return drawn(*args)

    monkeypatch.setattr(engine, "_suggested", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_search(search, 16, tmp_path / "a.db", place, PRESETS)
    assert run_search(search, 16, tmp_path / "a.db", place, PRESETS) == whole


def test_more_trials_go_on_from_those_that_are_there(search, place, tmp_path, whole) -> None:
    run_search(search, 8, tmp_path / "a.db", place, PRESETS)
    assert run_search(search, 24, tmp_path / "a.db", place, PRESETS) == whole


def test_a_finished_search_draws_nothing(search, place, tmp_path, monkeypatch) -> None:
    found = run_search(search, 8, tmp_path / "a.db", place, PRESETS)
    monkeypatch.setattr(engine, "_judge_and_tell", None)
    assert run_search(search, 8, tmp_path / "a.db", place, PRESETS) == found


STALLED = """
import pickle, signal, sys, time
from pathlib import Path
from softermax.executor import executor
from softermax.search import engine
from softermax.search.engine import run_search
from softermax.search.presets import presets_at

engine.RANDOM_TRIALS = 8
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started the tests ignores it
search = pickle.loads(Path(sys.argv[1]).read_bytes())

def report(done, total, note):
    Path(sys.argv[3]).write_text(f"{done} {note}")
    if done >= 8 and "rows" in note:
        time.sleep(600)

with executor(1) as place:
    run_search(search, 24, Path(sys.argv[2]), place, presets_at("rows", 16), report)
"""


@pytest.fixture
def stalled(search, tmp_path):
    """Another process that has a batch of eight trials told and the next one under way, and goes no further."""
    (tmp_path / "search.pickle").write_bytes(pickle.dumps(search))
    seen = tmp_path / "seen"
    arguments = [str(tmp_path / "search.pickle"), str(tmp_path / "a.db"), str(seen)]
    child = subprocess.Popen([sys.executable, "-c", STALLED, *arguments])
    deadline = time.monotonic() + 120
    while not (seen.exists() and seen.read_text().startswith("8") and "rows" in seen.read_text()):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield child
    child.kill()
    child.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_search_loses_nothing(search, place, tmp_path, whole, stalled, how) -> None:
    """Killed, or stopped by Ctrl-C."""
    stalled.send_signal(how)
    stalled.wait()
    assert run_search(search, 24, tmp_path / "a.db", place, PRESETS) == whole


def test_two_processes_share_a_storage(search, place, tmp_path, stalled) -> None:
    """The second leaves what the first has under way alone; when the first is dead, that is judged too."""
    judged = []
    run_search(search, 16, tmp_path / "a.db", place, PRESETS, lambda done, *_: judged.append(done))
    assert judged[0] == 8
    assert judged[-1] == 16
    stalled.kill()
    stalled.wait()
    run_search(search, 24, tmp_path / "a.db", place, PRESETS, lambda done, *_: judged.append(done))
    assert judged[-1] == 24


@pytest.mark.slow
def test_ray_finds_the_same_front(search, tmp_path, whole) -> None:
    pytest.importorskip("ray", reason="comes with the extra ray")
    with executor(2, "local") as cluster:
        assert run_search(search, 24, tmp_path / "a.db", cluster, PRESETS) == whole


def test_bad_settings_are_named(search, place, tmp_path) -> None:
    with pytest.raises(ValueError, match="trials = 0: must be 1 or more"):
        run_search(search, 0, tmp_path / "a.db", place, PRESETS)
    with pytest.raises(ValueError, match="batch = 1: must be 2 or more"):
        Search(search.space, search.rows, search.silicon, batch=1)
