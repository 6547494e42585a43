"""presets, tables, verify: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_verify import everything, honest, one_word_off

from softermax import verify
from softermax.cli import main
from softermax.spec import PRESETS, SPECS, AnySpec, SoftermaxSpec, spec_from_dict
from softermax.tables import pow2_table
from softermax.verify import Body

Capture = pytest.CaptureFixture[str]


def test_presets_text(capsys: Capture) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["field", *PRESETS]
    end = lines.index("")
    table = {line.split()[0]: line for line in lines[2:end]}
    assert set(table) == set(SoftermaxSpec().to_dict())
    assert table["powsum"].split()[1:] == [str(spec.powsum) for spec in PRESETS.values()]
    assert table["slice_width"].count("whole row") == 1
    deferred = [line.split() for line in lines[end + 1 :]]
    assert deferred[0] == ["field", "any", "preset:deferred"]
    assert ["weight", "Q(0,8)"] in deferred


def test_presets_json_is_the_presets(capsys: Capture) -> None:
    assert main(["presets", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert {name: spec_from_dict(values) for name, values in read.items()} == SPECS


def test_tables_text(capsys: Capture) -> None:
    assert main(["tables"]) == 0
    out = capsys.readouterr().out
    assert "max error" in out.splitlines()[0]
    for name in PRESETS:
        assert sum(line.startswith(f"{name} ") for line in out.splitlines()) == 2
    assert "deferred (A8)" in out


def test_tables_verbose_prints_the_words(capsys: Capture) -> None:
    assert main(["tables", "--spec", "paper", "--verbose"]) == 0
    out = capsys.readouterr().out
    for c in ("32,768", "38,968", "46,341", "55,109"):
        assert c in out


def test_tables_json(capsys: Capture) -> None:
    assert main(["tables", "--json", "--spec", "paper"]) == 0
    power, reciprocal = json.loads(capsys.readouterr().out)
    assert (power["function"], reciprocal["function"]) == ("2^x", "1/x")
    assert power["c_lut"] == [32768, 38968, 46341, 55109]
    assert power["max error"] == pow2_table(PRESETS["paper"]).max_error()
    assert reciprocal["m-table"] is True
    assert reciprocal["in units"] == reciprocal["max error"] * 128


def test_tables_of_a_spec_file(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "mine.json"
    SoftermaxSpec(input="Q(6,8)", pow2_segments=8).save(path)
    assert main(["tables", "--json", "--spec", str(path)]) == 0
    power, _ = json.loads(capsys.readouterr().out)
    assert (power["segments"], power["argument bits"], power["m-table"]) == (8, 8, True)


def test_tables_of_deferred_normalisation(capsys: Capture) -> None:
    assert main(["tables", "--json", "--spec", "paper:deferred"]) == 0
    power, reciprocal = json.loads(capsys.readouterr().out)
    assert power["c_lut"] == [32768, 38968, 46341, 55109]
    assert (reciprocal["spec"], reciprocal["segments"], reciprocal["fraction"]) == ("paper:deferred", 16, 15)


def test_verify_text_and_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found = [
        everything("good"),
        Body("other", honest, supports=lambda spec: spec == PRESETS["paper-32"]),
    ]
    monkeypatch.setattr(verify, "find_bodies", lambda: (found, {"rtl": "amaranth is not installed"}))
    assert main(["verify", "--rows", "2"]) == 0
    out, err = capsys.readouterr()
    header, _, good, other = (line.split() for line in out.splitlines()[:4])
    assert header == ["body", "specs", "words", "scores", "attention", "marks", "mismatches", "per", "second"]
    assert (good[:2], len(good)) == (["good", str(len(PRESETS))], 8)
    assert (other[:2], len(other)) == (["other", "1"], 5)  # nothing where nothing was compared
    assert "other covers paper-32" in out
    assert "rtl: not installed (amaranth is not installed)" in out
    done = len(PRESETS) + 1
    assert f"verify: {done}/{done}" in err


def test_verify_json(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(verify, "SPECS", {"paper": PRESETS["paper"]})
    monkeypatch.setattr(verify, "find_bodies", lambda: ([everything("good")], {}))
    assert main(["verify", "--rows", "2", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert {"body", "cases", "mismatches", "elements_per_second", *verify.KINDS} <= set(row)
    assert (row["body"], row["mismatches"]) == ("good", 0)
    assert all(row[kind] > 0 for kind in verify.KINDS)
    assert err == ""


def test_verify_of_one_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    seen: list[SoftermaxSpec] = []

    def run(spec: SoftermaxSpec, *rows: Any) -> Any:
        seen.append(spec)
        return honest(spec, *rows)

    monkeypatch.setattr(verify, "find_bodies", lambda: ([Body("good", run)], {}))
    SoftermaxSpec(slice_width=5).save(tmp_path / "mine.json")
    assert main(["verify", "--rows", "1", "--spec", str(tmp_path / "mine.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["specs"] == 1
    assert set(seen) == {SoftermaxSpec(slice_width=5)}
    none = Body("other", honest, supports=lambda spec: False)
    monkeypatch.setattr(verify, "find_bodies", lambda: ([Body("good", run), none], {}))
    assert main(["verify", "--rows", "1", "--spec", "paper"]) == 0
    out = capsys.readouterr().out
    assert "take none of these specs: other" in out
    assert not any(line.startswith("other") for line in out.splitlines())
    monkeypatch.setattr(verify, "find_bodies", lambda: ([none], {}))
    assert main(["verify", "--spec", "paper"]) == 2
    assert "softermax verify: --spec paper: no installed body computes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "count", "seed"),
    [([], 24, 0), (["--specs", "3", "--seed", "9"], 3, 9), (["--spec", "paper"], 0, 0)],
)
def test_verify_draws_as_many_specs_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, options: list[str], count: int, seed: int
) -> None:
    told: list[int] = []

    def drawn(*arguments: int) -> dict[str, AnySpec]:
        told.extend(arguments)
        return {}

    monkeypatch.setattr(verify, "draw_specs", drawn)
    some = Body("some", honest, supports=lambda spec: spec == PRESETS["paper"])
    monkeypatch.setattr(verify, "find_bodies", lambda: ([some], {}))
    assert main(["verify", "--rows", "1", *options]) == 0
    assert told == [count, seed]


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_a_mismatch_gives_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, json_flag: list[str]
) -> None:
    found = [Body("good", honest), Body("broken", one_word_off)]
    monkeypatch.setattr(verify, "SPECS", {"paper": PRESETS["paper"]})
    monkeypatch.setattr(verify, "find_bodies", lambda: (found, {}))
    assert main(["verify", "--rows", "2", *json_flag]) == 1
    out = capsys.readouterr().out
    if json_flag:
        good, broken = json.loads(out)
        assert (good["mismatches"], broken["mismatches"]) == (0, broken["cases"])
    else:
        assert "broken: the first mismatch is in words of paper, all pairs: " in out


def test_no_bodies_at_all(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(verify, "find_bodies", lambda: ([], {"torch": "not there"}))
    assert main(["verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tables", "--spec", "papre"], "softermax tables: unknown spec 'papre': must be one of paper, "),
        (["tables", "--spec", "no-such.json"], "no-such.json"),
        (["verify", "--rows", "0"], "softermax verify: --rows 0: must be 1 or more"),
        (["verify", "--specs", "-1"], "softermax verify: --specs -1: must be 0 or more"),
        (["verify", "--seed", "-3"], "softermax verify: --seed -3: must be 0 or more"),
        (["verify", "--spec", "papre"], "softermax verify: unknown spec 'papre': must be one of paper, "),
    ],
)
def test_bad_input_gives_exit_code_two_and_a_message(capsys: Capture, argv: list[str], message: str) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_a_corrupt_spec_file_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"input": ')
    assert main(["tables", "--spec", str(path)]) == 2
    assert f"{path}: not a spec: JSON is broken at line 1" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["verify", "--rows", "many"], ["nonsense"], ["presets", "-q", "-v"]])
def test_the_parser_refuses(capsys: Capture, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert "usage: softermax" in capsys.readouterr().err


def test_help_and_version(capsys: Capture) -> None:
    assert main([]) == 0
    assert "presets" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("softermax ")


def test_verbose_shows_the_traceback_of_bad_input(capsys: Capture) -> None:
    assert main(["tables", "--spec", "papre", "--verbose"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "unknown spec 'papre'" in err.splitlines()[-1]
