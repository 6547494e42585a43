"""softermax search, as a user types it, on scores of a file."""

from __future__ import annotations

import argparse
import importlib.util
import json

import numpy as np
import pytest

pytest.importorskip("optuna", reason="comes with the extra search")

from softermax.cli import main
from softermax.results import Envelope, enveloped
from softermax.spec import load_spec


@pytest.fixture(scope="module")
def scores(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "mine.npz"
    np.savez(path, scores=rows.scores[:80, :48], layer=rows.layer[:80], head=rows.head[:80])
    return path


@pytest.fixture
def command(scores, tmp_path):
    storage = ["--storage", str(tmp_path / "a.db"), "--workers", "1"]
    return ["search", "--scores", str(scores), "--trials", "8", "--batch", "8", *storage]


def test_it_writes_rows_page_and_a_spec_file_per_point(command, tmp_path, capsys) -> None:
    assert main([*command, "--json", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name", "spec", "area", "energy", "l1"} <= set(rows[0])
    assert {"paper", "lean+fold"} <= {row["name"] for row in rows}
    made = Envelope.load(tmp_path / "out" / "search.json")
    assert made.rows == rows
    assert made.notes["trials"] == 8
    for row in rows:
        if row["front"]:
            assert load_spec(tmp_path / "out" / "specs" / f"{row['name']}.json").to_dict() == row["spec"]


def test_a_budget_picks_one_and_none_is_an_exit_code(command, capsys) -> None:
    assert main([*command, "--quiet", "--json", "--max-loss", "1.5"]) == 0
    (picked,) = json.loads(capsys.readouterr().out)
    assert picked["l1"] <= 1.5
    assert main([*command, "--quiet", "--budget", "area=1"]) == 1
    assert "no spec that was found is within the limits" in capsys.readouterr().err


def test_layers_get_specs_that_a_model_can_be_given(command, tmp_path, capsys) -> None:
    assert main([*command, "--layers", "--json", "--quiet", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["layer"] for row in rows] == [0, 1]
    layers = json.loads((tmp_path / "out" / "layers.json").read_text())
    assert layers == {"0": rows[0]["spec"], "1": rows[1]["spec"]}


def test_heads_get_specs_that_a_model_can_be_given(rows, tmp_path, capsys) -> None:
    scores = tmp_path / "mine.npz"
    head = np.arange(32, dtype=np.int16) % 2
    np.savez(scores, scores=rows.scores[:32, :48], layer=rows.layer[:32], head=head)
    small = ["--trials", "4", "--batch", "4", "--storage", str(tmp_path / "a.db"), "--workers", "1"]
    out = ["--json", "--quiet", "--out", str(tmp_path / "out")]
    assert main(["search", "--scores", str(scores), "--heads", *small, *out]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["layer"], row["head"]) for row in found] == [(0, 0), (0, 1)]
    layers = json.loads((tmp_path / "out" / "layers.json").read_text())
    assert layers == {"0": [row["spec"] for row in found]}


def test_the_space_can_be_read(capsys) -> None:
    assert main(["search", "--space", "--json", "--fix", "base=fold"]) == 0
    rows = {row["dimension"]: row["values"] for row in json.loads(capsys.readouterr().out)}
    assert rows["base"] == "fold"
    assert rows["unnormed_fraction"] == "5 to 16"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fix", "output"], "--fix output: must be like"),
        (["--budget", "area"], "--budget area: must be like"),
        (["--trials", "0"], "--trials 0: must be 1 or more"),
        (["--kind", "both"], "kind 'both': must be rows or deferred"),
        (["--perplexity", "512"], "--perplexity: is for finalists"),
        (["--scores", "missing.npz"], "missing.npz: not recorded scores"),
    ],
)
def test_bad_options_are_named(options, said, capsys) -> None:
    assert main(["search", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def measured_rivals(tmp_path):
    unit = {
        "name": "ita",
        "width": 16,
        "library": "nangate45",
        "area_um2": 6552.91,
        "pj_per_element": 0.65761,
        "slack_ns": 0.1,
    }
    others = [unit | {"unit": "both units"}, unit | {"unit": "both units", "name": "paper+fold"}]
    return enveloped("softermax silicon", others).save(tmp_path / "rivals-silicon.json")


def test_rivals_stand_on_the_same_axes(command, rows, tmp_path, measured_rivals) -> None:
    from softermax.rivals.accuracy import l1
    from softermax.rivals.registry import get_rival

    rivals = ["--rivals-from", str(measured_rivals)]
    assert main([*command, "--quiet", *rivals, "--out", str(tmp_path / "out")]) == 0
    made = Envelope.load(tmp_path / "out" / "search.json")
    (ita,) = made.notes["rivals"]
    assert (ita["name"], ita["area"], ita["energy"], ita["spec"]) == ("ita", 6552.91, 0.65761, None)
    assert "Not the same in all" in ita["note"]
    scores, layer = rows.scores[:80, :48], rows.layer[:80]
    found = np.concatenate([get_rival("ita").compute(scores[layer == n]) for n in (0, 1)])
    exact = get_rival("exact").compute(scores)
    assert ita["l1"] == pytest.approx(l1(found, exact), rel=1e-4)
    assert str(tmp_path) not in made.command


def test_rivals_need_a_file_that_has_them_and_a_place_to_go(command, tmp_path, capsys) -> None:
    empty = enveloped("softermax silicon", [{"name": "ita", "width": 32}]).save(tmp_path / "other.json")
    assert main([*command, "--quiet", "--rivals-from", str(empty)]) == 2
    assert "give --out FOLDER" in capsys.readouterr().err
    assert main([*command, "--quiet", "--rivals-from", str(empty), "--out", str(tmp_path / "out")]) == 2
    assert "has no rival at width 16" in capsys.readouterr().err


@pytest.fixture
def made(command, tmp_path):
    """A search that was made before, one of its points a finalist in a model."""
    assert main([*command, "--quiet", "--json", "--out", str(tmp_path / "before")]) == 0
    path = tmp_path / "before" / "search.json"
    values = json.loads(path.read_text())
    values["notes"]["elapsed_seconds"] = 12.5
    values["rows"][-1] |= {"perplexity": 20.0, "perplexity_lost": 0.25}
    path.write_text(json.dumps(values))
    return path


def test_rivals_join_an_earlier_search_without_a_trial(
    made, scores, tmp_path, measured_rivals, monkeypatch
) -> None:
    monkeypatch.setattr("softermax.search.engine.run_search", None)
    before = Envelope.load(made)
    rivals = ["--rivals-from", str(measured_rivals), "--out", str(tmp_path / "after")]
    assert main(["search", "--from", str(made), "--scores", str(scores), "--quiet", *rivals]) == 0
    after = Envelope.load(tmp_path / "after" / "search.json")
    assert after.rows == before.rows
    assert after.notes["elapsed_seconds"] == 12.5
    assert [rival["name"] for rival in after.notes["rivals"]] == ["ita"]
    (entry,) = after.notes["earlier"]
    assert (entry["command"], entry["date"]) == (before.command, before.date)
    assert f"`{before.command}`" in (tmp_path / "after" / "search.md").read_text()
    assert str(tmp_path) not in after.command


def test_points_of_other_scores_are_refused(made, rows, tmp_path, capsys) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, scores=2 * rows.scores[:80, :48], layer=rows.layer[:80], head=rows.head[:80])
    assert main(["search", "--from", str(made), "--scores", str(other), "--quiet"]) == 2
    assert "the scores must be those of that search" in capsys.readouterr().err


def test_an_earlier_search_is_a_result_and_is_not_searched_on(made, command, measured_rivals, capsys) -> None:
    assert main(["search", "--from", str(measured_rivals), "--quiet"]) == 2
    assert "not a search's result" in capsys.readouterr().err
    assert main([*command, "--from", str(made), "--quiet"]) == 2
    assert "--storage: must be left out with --from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("installed", "options", "place"),
    [
        (True, [], "local"),
        (False, [], None),
        (True, ["--workers", "2"], None),
        (True, ["--workers", "2", "--ray"], "local"),
        (True, ["--ray", "auto"], "auto"),
    ],
)
def test_ray_is_taken_where_it_is_installed(scores, tmp_path, monkeypatch, installed, options, place) -> None:
    from softermax.cli import places, search
    from softermax.executor import executor

    taken = []

    def noted(workers, ray):
        taken.append(ray)
        return executor(1)

    there = importlib.util.find_spec("json" if installed else "no_such_module")
    monkeypatch.setattr(places.importlib.util, "find_spec", lambda name: there)
    monkeypatch.setattr(search, "executor", noted)
    small = ["--trials", "4", "--batch", "4", "--storage", str(tmp_path / "a.db"), "--quiet"]
    assert main(["search", "--scores", str(scores), *small, *options]) == 0
    assert taken == [place]


def test_perplexities_are_kept_as_they_come(made, tmp_path, monkeypatch) -> None:
    """Interrupted after the first of them, the same command measures the rest."""
    perplexity = pytest.importorskip(
        "softermax.models.perplexity", reason="comes with the extra transformers"
    )
    from softermax.cli.search_models import in_models
    from softermax.search.earlier import load_search
    from softermax.search.finals import finalists
    from softermax.search.front import found_of

    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    points = [found_of(row) for row in load_search(made).rows]
    args = argparse.Namespace(
        perplexity=16,
        evaluate=None,
        finalists=1,
        text=None,
        length=8,
        model="mine",
        quiet=True,
        verbose=False,
    )
    asked: list[int] = []

    def losses(model, pieces, note, report):
        asked.append(len(pieces))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return [1.0 + len(asked) / 8, 2.0]

    monkeypatch.setattr(perplexity, "load_text", lambda *given: (torch.arange(64), None, None))
    monkeypatch.setattr(perplexity, "set_variant", lambda network, variant: network)
    monkeypatch.setattr(perplexity, "losses", losses)
    torch = pytest.importorskip("torch")
    with pytest.raises(KeyboardInterrupt):
        in_models(args, points)
    found = in_models(args, points)
    chosen = [point.name for point in finalists(points, 1)]
    assert list(found) == chosen
    # The exact softmax and one finalist before; the others after.
    assert len(asked) == 3 + len(chosen) - 1
    assert found[chosen[0]]["perplexity"] == pytest.approx(np.exp((1.25 + 2.0) / 2))
    assert found[chosen[0]]["perplexity_lost"] == pytest.approx(np.exp(0.125 / 2) - 1)
