"""The report's content: every table and figure of the paper, the same values in every rendering."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from made_outcomes import without

from softermax.paper import figures as paper
from softermax.report import charts, render, stored
from softermax.report.document import Chart, Document, Series, shown
from softermax.report.render import write
from softermax.report.sections import compose
from softermax.report.sections.accuracy import means
from softermax.reproduce.stage import Outcome
from softermax.reproduce.stages import MODEL
from softermax.results import Envelope


class _Text(HTMLParser):
    """What a reader sees of a page, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.loads: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        for name, value in attributes:
            if name in ("src", "href", "data", "action", "poster", "srcset") and value is not None:
                self.loads.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data + "\n"


def read(html: str) -> _Text:
    parser = _Text()
    parser.feed(html)
    return parser


def test_every_table_and_figure_of_the_paper_has_its_section(report: Document) -> None:
    places = {section.where for section in report.sections}
    assert places >= {
        *(f"Figure {n}" for n in range(1, 6)),
        *(f"Table {n}" for n in ("I", "II", "III", "IV")),
    }
    for section in report.sections:
        assert not section.missing
        if section.where and section.name != "layer":
            assert section.comparisons, section.name


def test_all_renderings_show_the_same_figures(report: Document, tmp_path: Path) -> None:
    html, text, data = (path.read_text(encoding="utf-8") for path in write(report, tmp_path))
    seen = read(html).text
    values = json.loads(data)
    for section, made in zip(values["sections"], report.sections, strict=True):
        assert section["title"] == made.title
        for table in [*made.tables, *(chart.table() for chart in made.charts)]:
            for row in table.rows:
                for cell in row:
                    assert shown(cell) in seen
                    assert shown(cell).replace("|", "\\|") in text
        for entry, comparison in zip(section["comparisons"], made.comparisons, strict=True):
            assert entry["verdict"] == comparison.verdict
            assert (entry["paper"], entry["ours"]) == (comparison.paper, comparison.ours)
            line = next(line for line in text.splitlines() if line.startswith(f"| {comparison.name} |"))
            assert f"| {shown(comparison.paper)} | {shown(comparison.ours)} | {comparison.verdict} |" in line
            assert comparison.name in seen
            assert shown(comparison.ours) in seen
    assert values["tally"] == report.tally
    for word, count in report.tally.items():
        assert f"{count} {word}" in text
        assert values["tally"][word] == sum(
            c["verdict"] == word for s in values["sections"] for c in s["comparisons"]
        )


@pytest.mark.parametrize("use_stored", [False, True])
def test_every_comparison_has_a_name_of_its_own(use_stored: bool, outcomes: list[Outcome]) -> None:
    for section in compose(outcomes, "quick", "", use_stored).sections:
        names = [comparison.name for comparison in section.comparisons]
        assert len(names) == len(set(names)), section.name


def test_verdicts_change_with_the_figures(outcomes: list[Outcome]) -> None:
    def verdicts(area: float) -> list[str]:
        changed = json.loads(json.dumps(next(o for o in outcomes if o.name == "units").result))
        for row in changed["rows"]:
            row["area_ratio"] = area
        some = [Outcome("units", "", "done", "", changed)]
        report = compose(some, "quick", "", use_stored=False)
        section = next(s for s in report.sections if s.name == "units")
        return [c.verdict for c in section.comparisons if "area" in c.name]

    assert verdicts(0.2) == ["better", "better"]
    assert verdicts(0.6) == ["not reached", "reproduced"]
    assert verdicts(0.9) == ["not reached", "not reached"]


@pytest.mark.parametrize(
    "stage", ["ladder", "drop-in", "finetune", "rtl", "units", "pe", "breakdown", "kernels"]
)
def test_a_stage_without_a_result_is_named_with_its_reason(
    stage: str, outcomes: list[Outcome], tmp_path: Path
) -> None:
    report = compose(without(outcomes, stage), "quick", "softermax reproduce", use_stored=False)
    html, text, data = (path.read_text(encoding="utf-8") for path in write(report, tmp_path))
    said = f"The stage {stage} could not run: a tool is not there"
    for rendering in (read(html).text, text, data):
        assert said in rendering
    touched = [s for s in report.sections if stage in s.stages and s.missing]
    assert touched
    assert not [
        c for s in touched if s.stages == [stage] for c in s.comparisons if c.verdict != "not measured"
    ]


def test_nothing_measured_still_makes_a_report(outcomes: list[Outcome], tmp_path: Path) -> None:
    report = compose(without(outcomes, *(o.name for o in outcomes)), "quick", "", use_stored=False)
    write(report, tmp_path)
    assert set(report.tally) <= {"not measured", "reproduced"}  # the sizes of Table II need no stage


def test_the_page_is_whole_by_itself(report: Document) -> None:
    html = render.page(report)
    assert all(target.startswith(("#", "data:")) for target in read(html).loads)
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|import\(", html)
    assert "default-src 'none'" in html
    assert 'name="viewport"' in html


def test_neither_folders_nor_hosts_are_in_the_report(report: Document, tmp_path: Path) -> None:
    import getpass
    import socket

    for path in write(report, tmp_path):
        text = path.read_text(encoding="utf-8")
        assert str(Path.home()) not in text
        assert str(Path.cwd()) not in text
        assert socket.gethostname() not in text or len(socket.gethostname()) < 6
        assert f"/{getpass.getuser()}/" not in text


def test_text_is_escaped(outcomes: list[Outcome]) -> None:
    report = compose(
        without(outcomes, "rtl", reason="<script>alert(1)</script> | & \n"), "quick", "", use_stored=False
    )
    assert "<script>alert" not in render.page(report)
    assert "&lt;script&gt;alert" in render.page(report)
    row = next(line for line in render.markdown(report).splitlines() if line.startswith("| rtl |"))
    assert row.count(" | ") == 7


def test_stored_results_are_labelled_with_date_and_command(outcomes: list[Outcome]) -> None:
    if stored.folder() is None:
        pytest.skip("not run from the source tree")
    report = compose(without(outcomes, "units", "pe", "perplexity"), "quick", "", use_stored=True)
    for name in ("units", "pe", "perplexity"):
        section = next(s for s in report.sections if s.name == name)
        assert [origin.what for origin in section.origins] == ["stored result"]
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", section.origins[0].date)
        assert section.origins[0].command.startswith("softermax ")
        assert section.tables


def test_what_was_measured_now_goes_before_what_is_stored(outcomes: list[Outcome]) -> None:
    if stored.folder() is None:
        pytest.skip("not run from the source tree")
    report = compose(outcomes, "quick", "", use_stored=True)
    section = next(s for s in report.sections if s.name == "units")
    mine = [c for c in section.comparisons if "over lean FP16, 45 nm (NanGate), 16 wide" in c.name]
    assert [c.note for c in mine] == ["this run"] * 4
    assert any("over generic IEEE components, 45 nm" in c.name for c in section.comparisons)
    assert all(" over " in c.name for c in section.comparisons), "no figure without its baseline"
    assert {c.note.split(",")[0] for c in section.comparisons} == {"this run", "stored"}


def test_outside_the_source_tree_it_is_said_how_to_measure(outcomes: list[Outcome]) -> None:
    wanted = ("accuracy", "perplexity")
    some = [
        Outcome(
            o.name,
            o.title,
            "not run",
            f"part of a full run only: softermax reproduce --full --stage {o.name}",
        )
        if o.name in wanted
        else o
        for o in outcomes
    ]
    text = render.markdown(compose(some, "quick", "", use_stored=False))
    for name in wanted:
        assert f"softermax reproduce --full --stage {name}" in text
    assert "PE, energy, 32 wide, fixed output | 0.43 |  | not measured" in text


def test_stored_intervals_stand_beside_the_entries(
    outcomes: list[Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(name: str, rows: list[dict[str, Any]]) -> None:
        Envelope("softermax accuracy --out FOLDER", "2026-11-16", {}, {}, rows).save(
            tmp_path / f"{name}.json"
        )

    entry = {"task": "stsb", "model": MODEL, "seeds": [0]}
    other = {"task": "stsb", "model": "another", "arm": "int8", "preset": None, "mean": 1.0, "seeds": [0]}
    int8, ours = (
        entry | {"arm": arm, "preset": preset, "mean": mean}
        for arm, preset, mean in (("int8", None, 85.0), ("softermax", "paper", 84.88))
    )
    save("accuracy", [other, int8, ours])
    save("accuracy-differences", [entry | {"preset": "paper", "mean": -0.12, "low": -0.5, "high": 0.25}])
    monkeypatch.setattr(stored, "folder", lambda: tmp_path)
    report = compose(without(outcomes, "accuracy"), "quick", "")
    section = next(s for s in report.sections if s.name == "accuracy")
    assert section.origins[-1].command == "softermax accuracy --out FOLDER"
    (found,) = [c for c in section.comparisons if c.name.startswith("STS-B")]
    assert found.ours == pytest.approx(-0.12)
    assert found.note == "stored, 2026-11-16; 1 seed, 95 % between -0.50 and +0.25"


def test_means_stand_where_all_nine_tasks_do() -> None:
    base = paper()["accuracy"]["models"]["BERT-Base"]
    tasks = [*base["baseline"], "average"]
    differences = [
        {"task": task, "preset": preset, "mean": mean, "low": mean - 0.2, "high": mean + 0.2}
        for preset, mean in (("paper", -3.0), ("paper+fold", 0.1))
        for task in tasks
    ]
    words, folded = means({"differences": differences}, 0.5)
    assert (words.paper, words.ours, words.verdict) == (0.51, -3.0, "not reached")
    assert (folded.ours, folded.verdict) == (0.1, "reproduced")
    (alone,) = means({"differences": differences[1:11]}, 0.5)
    assert (alone.ours, alone.verdict) == (None, "not measured")


def test_axes_have_round_numbers_that_hold_all_values() -> None:
    assert charts.ticks(0, 0.93) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    for low, high in ((0, 1e-5), (-3.2, 7), (0, 99.9), (0, 43512)):
        marks = charts.ticks(low, high)
        assert marks[0] <= low
        assert marks[-1] >= high
        assert 3 <= len(marks) <= 9


@pytest.mark.parametrize("kind", ["bars", "stacked", "lines", "points"])
def test_a_chart_has_a_mark_for_every_value(kind: str) -> None:
    x = [1, 10, 100] if kind in ("lines", "points") else ["a", "b <", "c"]
    chart = Chart("c", "t", kind, x, [Series("s", [1.0, None, 2.5]), Series("&", [0.5, 0.25, 4.0])])  # type: ignore[arg-type]
    for width in (charts.WIDE, charts.NARROW):
        drawing = charts.draw(chart, width)
        tips = [shape.tip for kind in ("Bar", "Dot") for shape in drawing.of(kind) if shape.tip]  # type: ignore[union-attr]
        assert len(tips) == 5
        assert drawing.width == width


def test_the_sweep_shows_the_ratio_of_its_curves(report: Document) -> None:
    """Over seven decades of energy two curves look like one."""
    (chart,) = next(section for section in report.sections if section.name == "sweep").charts
    assert (chart.mark, chart.mark_label) == (1.0, "lean FP16, two passes")
    assert {series.name: [round(v or 0, 4) for v in series.values] for series in chart.series} == {
        "Softermax, fixed output, 16 wide": [0.6531] * 3,
        "Softermax, deferred normalisation, 16 wide": [0.4421] * 3,
    }


def test_long_names_below_bars_are_wrapped_and_none_is_cut() -> None:
    names = ["Unnormed Softmax unit", "Normalization unit"]
    drawing = charts.draw(Chart("c", "t", "bars", names, [Series("s", [1.0, 2.0])]), charts.NARROW)
    ticks = [text.text for text in drawing.of("Text") if text.anchor == "middle"]  # type: ignore[union-attr]
    assert ticks == ["Unnormed Softmax", "unit", "Normalization unit"]
    long = ["incomprehensibilities" * 2, "b", "c", "d"]
    drawing = charts.draw(Chart("c", "t", "bars", long, [Series("s", [1.0] * 4)]), charts.NARROW)
    tilted = [text.text for text in drawing.of("Text") if text.is_tilted]  # type: ignore[union-attr]
    assert tilted == long


def test_the_table_and_the_sweep_have_stored_files_of_their_own(
    outcomes: list[Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(name: str, ratios: dict[int, float]) -> None:
        row = {
            "width": 32,
            "library": "nangate45",
            "scheme": "fixed",
            "baseline": "two-pass",
            "area_ratio": 0.9,
        }
        rows = [
            row | {"sequence": n, "energy_ratio": ratio, "energy_pj": 1e6 * n * ratio}
            for n, ratio in ratios.items()
        ]
        Envelope(f"softermax {name}", "2026-11-16", {}, {}, rows).save(tmp_path / f"{name}.json")

    save("pe", {384: 0.5})
    save("pe-sweep", {64: 0.25, 384: 0.125, 2048: 0.75})
    monkeypatch.setattr(stored, "folder", lambda: tmp_path)
    sections = {s.name: s for s in compose(without(outcomes, "pe"), "quick", "").sections}
    (chart,) = sections["sweep"].charts
    assert chart.series[0].values == pytest.approx([0.25, 0.125, 0.75])
    assert [origin.command for origin in sections["sweep"].origins] == ["softermax pe-sweep"]
    assert [origin.command for origin in sections["pe"].origins] == ["softermax pe"]
    assert [c.ours for c in sections["pe"].comparisons if "energy" in c.name] == [0.5]
