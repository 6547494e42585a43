"""A processing element of one's own: what a file says, what is refused, and what its choices change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")

from test_pe import measured  # noqa: F401

from softermax.cli import main
from softermax.silicon.pe import measurement
from softermax.silicon.pe.architecture import Architecture
from softermax.silicon.pe.measurement import PEFigures

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-pe.json"


def written(folder: Path, **values: Any) -> Path:
    path = folder / "mine.json"
    path.write_text(json.dumps(values))
    return path


def test_the_example_says_everything_that_a_file_can_say() -> None:
    own = Architecture.load(EXAMPLE)
    assert (own.name, own.config.lanes, own.sequence) == ("edge", 16, 512)
    fields = set(json.loads(EXAMPLE.read_text()))
    assert fields == {"name", "head_size", "sequence", "normalization_shared_by", "normalize", "keeps", "baseline_max"} | {
        "lanes", "vector_size", "input_bytes", "weight_bytes", "collector_bytes", "scale_bits"
    }  # fmt: skip


def test_a_file_without_fields_is_the_papers_pe(tmp_path: Path) -> None:
    own = Architecture.load(written(tmp_path))
    assert (own.name, own.config.lanes, own.head_size, own.sequence) == ("mine", 32, 64, 384)
    assert own.normalization_shared_by == 4


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lane": 8}, "mine.json: lane = 8: no such field; fields are name, head_size, "),
        ({"lanes": 0}, "mine.json: lanes = 0: must be an integer from 1 to 1024"),
        ({"lanes": "8"}, "mine.json: lanes = '8': must be an integer from 1 to 1024"),
        ({"weight_bytes": 1000}, "mine.json: weight_bytes = 1000: must be a multiple of 1024 from 2048 on"),
        ({"sequence": True}, "mine.json: sequence = True: must be an integer from 1 to 65536"),
        ({"normalization_shared_by": 0}, "normalization_shared_by = 0: must be an integer from 1 to 256"),
        ({"normalize": "never"}, "normalize = 'never': must be 'when written' or 'on read'"),
        ({"keeps": 3}, "keeps = 3: must be 'scores' or 'unnormed'"),
        ({"baseline_max": ""}, "baseline_max = '': must be 'second pass' or 'while written'"),
        ({"name": 7}, "name = 7: must be a text"),
        ({"head_size": 1024, "input_bytes": 64}, "head size 1024: its 32 vectors do not fit the buffers"),
    ],
)
def test_what_is_wrong_is_named_by_field_value_and_what_is_permitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], said: str
) -> None:
    assert main(["silicon", "--pe", str(written(tmp_path, **values))]) == 2
    assert said in capsys.readouterr().err


def test_broken_files_and_widths_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"lanes": 8,\n')
    assert main(["silicon", "--pe", str(path)]) == 2
    assert "mine.json: not a PE: JSON is broken at line 2" in capsys.readouterr().err
    path.write_text("[]")
    assert main(["silicon", "--pe", str(path)]) == 2
    assert "a PE is an object with fields such as lanes" in capsys.readouterr().err
    assert main(["silicon", "--pe", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    assert main(["silicon", "--pe", str(EXAMPLE), "--width", "16"]) == 2
    assert "a PE of your own is as wide as the lanes" in capsys.readouterr().err


def test_choices_change_what_they_say(tmp_path: Path, measured: PEFigures) -> None:  # noqa: F811
    def cost(**values: Any) -> dict[str, Any]:
        rows = Architecture.load(written(tmp_path, **values)).rows(measured, ["two-pass"])
        return next(row.to_json() for row in rows if str(row.scheme).startswith("fixed"))

    plain = cost()
    shared = cost(normalization_shared_by=2)
    unit = "normalization"
    assert shared["breakdown"][unit]["area_um2"] == 2 * plain["breakdown"][unit]["area_um2"]
    on_read = cost(normalize="on read")
    assert on_read["scheme"] == "fixed, on read"
    assert "global buffer, probabilities" not in on_read["breakdown"]
    early = cost(baseline_max="while written")["breakdown"]["global buffer, scores"]
    assert early["baseline_energy_pj"] < plain["breakdown"]["global buffer, scores"]["baseline_energy_pj"]
    kept = cost(keeps="unnormed")["breakdown"]["global buffer, scores"]
    assert kept["energy_pj"] > plain["breakdown"]["global buffer, scores"]["energy_pj"]
    longer = cost(sequence=768)
    assert longer["energy_pj"] > 3.5 * plain["energy_pj"]
    wider = cost(head_size=128)
    assert wider["breakdown"]["MACs"]["energy_pj"] == pytest.approx(
        2 * plain["breakdown"]["MACs"]["energy_pj"]
    )


def test_the_command_prints_rows_and_writes_them_under_the_files_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measured: PEFigures,  # noqa: F811
) -> None:
    monkeypatch.setattr(measurement, "measure_pe", lambda *args: measured)
    path = written(tmp_path, sequence=64, name="own")
    assert (
        main(
            ["silicon", "--pe", str(path), "--baseline", "two-pass", "--json", "--out", str(tmp_path / "out")]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert {(row["pe"], row["sequence"], row["baseline"]) for row in rows} == {("own", 64, "two-pass")}
    assert {"fixed", "lean", "deferred"} <= {row["scheme"] for row in rows}
    assert "own, sequence 64" in (tmp_path / "out" / "pe-mine.md").read_text()
    assert (
        main(["silicon", "--pe", str(path), "--baseline", "two-pass", "--memories", "published", "--json"])
        == 0
    )
    older = json.loads(capsys.readouterr().out)
    assert [row["energy_pj"] for row in older] != [row["energy_pj"] for row in rows], (
        "by CACTI unless told otherwise"
    )
    assert main(["silicon", "--memories", "cacti"]) == 2
    assert "--memories cacti: only --pe and --sweep take it" in capsys.readouterr().err
    assert main(["silicon", "--pe", str(path), "--baseline", "two-pass"]) == 0
    assert "own, sequence 64" in capsys.readouterr().out
