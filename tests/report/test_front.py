"""The front of a search on the page: points to be clicked, by the script that the explorer has."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from softermax.report.document import Document, Front, Section
from softermax.report.render import page, write
from softermax.spec import get_spec


@pytest.fixture
def points() -> list[dict]:
    common = {"kl": 0.1, "mass": 1.0, "front": True, "trial": 3}
    paper = {
        "name": "paper+fold",
        "area": 20000.0,
        "energy": 1.6,
        "l1": 0.4,
        "spec": get_spec("paper+fold").to_dict(),
    }
    rival = {
        "name": "ita",
        "area": 6500.0,
        "energy": 0.6,
        "l1": 0.44,
        "spec": None,
        "note": "A rival </script>.",
    }
    found = {"name": "trial-3", "area": 5000.0, "energy": 0.4, "l1": 0.3, "spec": get_spec("lean").to_dict()}
    return [
        common | found,
        common | paper | {"trial": None, "front": False},
        common | rival | {"trial": None},
    ]


@pytest.fixture
def report(points) -> Document:
    section = Section(
        "search", "", "Specs found by machine", "claim", fronts=[Front("a-front", "A front", points)]
    )
    return Document("quick", "2026-11-17", "softermax reproduce", "0", "paper", {"cores": 2, "architecture": "x", "kernels": "y"}, {}, [], [section])  # fmt: skip


def test_the_page_has_the_points_and_the_explorers_script(report, points) -> None:
    html = page(report)
    script = files("softermax.search").joinpath("static/front.js").read_text(encoding="utf-8")
    assert script in html
    found = re.search(r'<script type="application/json">(.*?)</script>', html, re.S)
    assert found is not None
    assert json.loads(found[1]) == points  # whatever stands in a note


def test_a_report_without_a_search_has_no_such_script(report) -> None:
    empty = Document(**{**vars(report), "sections": [Section("search", "", "t", "c")]})
    assert "showFront" not in page(empty)


CLICKED = """
<script>addEventListener("load", () => setTimeout(() => {
  document.querySelector('[data-name="%s"]').dispatchEvent(new MouseEvent("click", { bubbles: true }));
}, 50));</script>
"""


@pytest.mark.tool("chromium")
@pytest.mark.parametrize("name", ["trial-3", "ita"])
def test_a_click_shows_figures_spec_and_verilog(report, points, tmp_path: Path, name: str) -> None:
    write(report, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    (tmp_path / "clicked.html").write_text(
        html.replace("</body>", CLICKED % name + "</body>"), encoding="utf-8"
    )
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        "--dump-dom",
    ]
    done = subprocess.run([*command, (tmp_path / "clicked.html").as_uri()], capture_output=True, text=True, timeout=120, check=True)  # fmt: skip
    note = re.search(r'<div class="front-note".*?<script', done.stdout, re.S)
    assert note is not None
    assert f"<h4>{name}</h4>" in note[0]
    point = next(point for point in points if point["name"] == name)
    assert f"{point['area']:,.0f}" in note[0]
    assert ("softermax rtl --spec trial-3.json" in note[0]) == (name == "trial-3")
    assert ('"normalization": "row-products"' in note[0]) == (name == "trial-3")
    assert ("A rival &lt;/script&gt;." in note[0]) == (name == "ita")
