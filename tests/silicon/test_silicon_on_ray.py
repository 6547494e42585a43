"""softermax silicon --ray: the same rows as without, each from a cache of its own, so that all of it is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from softermax.cli import main
from softermax.silicon import table
from softermax.spec import SoftermaxSpec

pytest.importorskip("ray", reason="comes with the extra ray")


@pytest.mark.slow
def test_ray_measures_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "small.json"
    spec.write_text(SoftermaxSpec(slice_width=1).to_json())

    def rows(place: str, *options: str) -> Any:
        monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / place))
        command = ["silicon", "--spec", str(spec), "--baseline", "two-pass", "--json", "--quiet"]
        assert main([*command, *options]) == 0
        return json.loads(capsys.readouterr().out)

    here = rows("processes", "--workers", "1")
    # Workers of Ray import the package anew; nothing is measured in this process or a copy of it.
    monkeypatch.setattr(table, "measure_unit", None)
    assert rows("ray", "--workers", "1", "--ray") == here
    assert here
