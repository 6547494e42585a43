"""The explorer's page in headless Chromium: every control, every number, the keyboard, no errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softermax import golden
from softermax import spec as spec_module
from softermax.cache import cache_dir
from softermax.explorer.server import Explorer
from softermax.explorer.state import fragment
from softermax.files import write_text
from softermax.spec import PRESETS, SoftermaxSpec

SCORES = [2, 1, 3, 0.5, -1.25, 4.75, 3.5, None, 1.5, 6.25, 5, 2.5, 33, -3, 0, 2.125, 7, 9.5, 1, 4]
FIRST = SoftermaxSpec(slice_width=8)


class Page:
    """The page as a user has it: controls by id, text by id, tables as lists of rows."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, spec: SoftermaxSpec = FIRST, scores: list[float | None] = SCORES) -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}#{fragment(spec, scores)}")
        self.settle()

    def settle(self) -> None:
        self.until("document.body.dataset.ready === 'yes'")

    def until(self, condition: str) -> None:
        deadline = time.monotonic() + 60
        while not self.run(f"return {condition}"):
            assert time.monotonic() < deadline, f"never happened: {condition}"
            time.sleep(0.02)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def element(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def keys(self, selector: str, *keys: str) -> None:
        self.element(selector).send_keys(*keys)
        self.settle()

    def set(self, control: str, value: object) -> None:
        """Set a control as a hand would, with the events that it brings."""
        self.run(
            "const c = document.getElementById(arguments[0]);"
            "c.type === 'checkbox' ? c.checked = arguments[1] : c.value = arguments[1];"
            "c.dispatchEvent(new Event('input', {bubbles: true}));"
            "c.dispatchEvent(new Event('change', {bubbles: true}));",
            control,
            value,
        )
        self.settle()

    def text(self, control: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).textContent", control))

    def table(self, control: str) -> list[list[str]]:
        return self.run(  # type: ignore[no-any-return]
            "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))",
            control,
        )

    def problem(self, field: str) -> str | None:
        return self.run(  # type: ignore[no-any-return]
            "const p = document.getElementById(`${arguments[0]}-problem`); return p.hidden ? null : p.textContent",
            field,
        )

    @property
    def state(self) -> str:
        return str(self.run("return decodeURIComponent(location.hash.slice(1))"))

    def shows(self, spec: SoftermaxSpec, scores: list[float | None] = SCORES) -> None:
        """Every number on the page, as raw words, is the golden model's for this spec."""
        self.set("show", "raw")
        mask = [score is not None for score in scores]
        x = [score or 0.0 for score in scores]
        out = spec.run(x, mask=mask, trace=True)
        t = out.trace
        assert t is not None
        slices = self.table("slices-table")
        assert [row[0] for row in slices] == [str(s + 1) for s in range(spec.slices(len(x)))]
        for at, words in (
            (1, t.local_max),
            (2, t.running_max),
            (4, t.slice_sum),
            (5, t.slice_powsum),
            (6, t.powsum),
        ):
            assert [row[at] for row in slices] == [str(word) for word in words]
        assert [row[3] for row in slices][1:] == [f"≫ {shift}" for shift in t.renorm_shift[1:]]
        assert [row[7] for row in slices] == [f"≫ {shift}" for shift in t.numerator_shift]
        assert self.text("powsum") == str(t.powsum[-1])
        assert self.text("leading-one") == f"bit {t.leading_one}"
        assert self.text("reciprocal") == str(t.reciprocal)
        assert float(self.text("row-sum")) == pytest.approx(out.value.sum(), rel=1e-4)
        raw = golden.quantize(x, spec, mask)
        width = spec.slice_width or len(x)
        for s in range(len(slices)):
            self.set("slice", s + 1)
            for row in self.table("lanes-table"):
                i = int(row[0]) - 1
                assert i // width == s
                if not mask[i]:
                    assert row[1] == "masked"
                    continue
                lane = (s, i % width)
                integer = int(golden.int_max(raw[i], spec))
                difference = raw[i] - (t.running_max[s] << spec.input.fraction)
                expected = [raw[i], integer, difference, t.unnormed[lane], t.numerator[lane], out.words[i]]
                assert row[2:8] == [str(word) for word in expected]
                assert float(row[8]) == pytest.approx(out.value[i], rel=1e-2)


@pytest.fixture
def page(browser: Any, explorer: Explorer) -> Iterator[Page]:
    page = Page(browser, explorer.url)
    page.open()
    browser.get_log("browser")
    yield page
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("name", PRESETS)
def test_presets_show_the_golden_models_words(page: Page, name: str) -> None:
    page.set("preset", name)
    page.shows(PRESETS[name])


def test_real_values_are_the_words_times_their_unit(page: Page) -> None:
    out = FIRST.run([score or 0.0 for score in SCORES], mask=[s is not None for s in SCORES], trace=True)
    assert out.trace is not None
    assert float(page.text("powsum")) == pytest.approx(out.trace.powsum[-1] / 2**6, rel=1e-4)
    assert float(page.text("reciprocal")) == pytest.approx(out.trace.reciprocal / 2**7, rel=1e-4)
    rows = page.table("lanes-table")
    assert float(rows[1][5]) == pytest.approx(out.trace.unnormed[0, 1] / 2**15, rel=1e-2)
    assert page.run("return document.querySelectorAll('#result-chart .values rect').length") == len(SCORES)


_SLIDERS = {
    "input-integer": (7, {"input": "Q(7,2)", "max": "Q(7,2)"}),
    "input-fraction": (4, {"input": "Q(6,4)"}),
    "max-integer": (8, {"max": "Q(8,2)"}),
    "max-fraction": (0, {"max": "Q(6,0)"}),
    "unnormed-integer": (2, {"unnormed": "Q(2,15)"}),
    "unnormed-fraction": (12, {"unnormed": "Q(1,12)"}),
    "powsum-integer": (5, {"powsum": "Q(5,6)"}),
    "powsum-fraction": (9, {"powsum": "Q(10,9)"}),
    "reciprocal-integer": (2, {"reciprocal": "Q(2,7)"}),
    "reciprocal-fraction": (11, {"reciprocal": "Q(1,11)"}),
    "output-integer": (0, {"output": "Q(0,7)"}),
    "output-fraction": (12, {"output": "Q(1,12)"}),
    "pow2_segments": (1, {"pow2_segments": 2}),
    "reciprocal_segments": (4, {"reciprocal_segments": 16}),
    "slice-slider": (5, {"slice_width": 5}),
    "slice-width": (3, {"slice_width": 3}),
    "whole-row": (True, {"slice_width": None}),
    "output_mode": ("row-scaled", {"output_mode": "row-scaled"}),
    "base": ("fold", {"base": "fold"}),
}
_CHOICES = {
    f"{field}={option}": (field, option)
    for field, options in spec_module._CHOICES.items()
    for option in options
    if field not in ("output_mode", "base")
}


def test_every_control_is_tested(page: Page) -> None:
    """So that a control added to the page without a test is noticed."""
    there = page.run(
        "return [...document.querySelectorAll('#controls input, #controls select')].map((c) => c.id)"
    )
    assert set(there) == {*_SLIDERS, *(field for field, _ in _CHOICES.values())}
    for field, options in spec_module._CHOICES.items():
        offered = page.run(
            "return [...document.getElementById(arguments[0]).options].map((o) => o.value)", field
        )
        assert sorted(offered) == sorted(options)


@pytest.mark.parametrize("control", _SLIDERS)
def test_a_control_changes_the_spec(page: Page, control: str) -> None:
    value, changes = _SLIDERS[control]
    if control == "input-integer":
        page.set("max-integer", value)  # which must not be narrower
    page.set(control, value)
    spec = FIRST.replace(**changes)
    assert page.state == fragment(spec, SCORES)
    page.shows(spec)


def test_roundings_change_the_spec(page: Page) -> None:
    for field, option in _CHOICES.values():
        if option == getattr(FIRST, field):
            continue
        page.set(field, option)
        spec = FIRST.replace(**{field: option})
        assert page.state == fragment(spec, SCORES), (field, option)
        page.set("slice", 1)
        page.shows(spec)
        page.set(field, getattr(FIRST, field))


@pytest.mark.parametrize(
    ("control", "value", "field"),
    [
        ("powsum-fraction", 16, "powsum"),
        ("max-integer", 5, "max"),
        ("output-fraction", 24, "output"),
        ("slice-width", 0, "slice_width"),
        ("slice-width", "", "slice_width"),
    ],
)
def test_what_cannot_work_is_said_beside_the_control(
    page: Page, control: str, value: object, field: str
) -> None:
    good = page.run(f"return document.getElementById('{control}').value")
    page.set(control, value)
    said = page.problem(field)
    assert said is not None
    assert said.startswith(f"{field} = ")
    assert page.element(f"#{control}").get_attribute("aria-invalid") == "true"
    assert page.element(f"#{field}-problem").is_displayed()
    page.set(control, good)
    assert page.problem(field) is None
    page.shows(FIRST)


def test_scores_can_be_typed(page: Page) -> None:
    page.set("scores", "2, 1; 3\n-0.5 x")
    page.shows(FIRST, [2, 1, 3, -0.5, None])
    page.set("scores", "2 one 3")
    assert page.problem("scores") == "one is not a score: must be numbers, and x where masked"
    page.set("scores", "")
    assert page.problem("scores") == "at least one score is needed"
    page.set("scores", "4 4")
    assert page.problem("scores") is None
    page.shows(FIRST, [4, 4])


def test_random_rows(page: Page) -> None:
    page.set("count", 1024)
    page.element("#random").click()
    page.settle()
    scores = json.loads("[" + page.state.split("&")[0].removeprefix("scores=") + "]")
    assert len(scores) == 1024
    out = FIRST.run(scores, trace=True)
    assert out.trace is not None
    page.set("show", "raw")
    assert page.text("powsum") == str(out.trace.powsum[-1])
    assert [row[6] for row in page.table("slices-table")] == [str(d) for d in out.trace.powsum]


def test_a_bar_can_be_dragged(page: Page) -> None:
    from selenium.webdriver import ActionChains

    bar = page.element("#score-chart .scores rect:nth-child(3)")
    ActionChains(page.browser).move_to_element(bar).click_and_hold().move_by_offset(
        0, -20
    ).release().perform()
    page.settle()
    raised = page.run("return document.getElementById('scores').value").split()[2]
    assert float(raised) > 3
    page.shows(FIRST, [*SCORES[:2], float(raised), *SCORES[3:]])


def test_the_whole_page_works_from_the_keyboard(page: Page) -> None:
    from selenium.webdriver import Keys

    page.keys("#score-chart rect[tabindex='0']", Keys.ARROW_UP, Keys.PAGE_UP, Keys.ARROW_RIGHT)
    page.keys("#score-chart rect:focus", Keys.ARROW_DOWN, Keys.END)
    page.keys("#score-chart rect:focus", "x")
    scores = [SCORES[0] + 1.25, 0.75, *SCORES[2:-1], None]  # type: ignore[operator]
    page.shows(FIRST, scores)
    page.keys("#score-chart rect:focus", "x", Keys.HOME)
    page.keys("#powsum-integer", Keys.ARROW_RIGHT)
    page.keys("details:not([open]) > summary", Keys.ENTER)
    page.keys("#pow2_segments", Keys.ARROW_LEFT)
    page.keys("#output_mode", Keys.ARROW_DOWN)
    page.keys("#slice-back", Keys.ENTER)
    assert page.table("lanes-table")[0][0] == "9"
    page.keys("#whole-row", Keys.SPACE)
    spec = FIRST.replace(powsum="Q(11,6)", pow2_segments=2, output_mode="row-scaled", slice_width=None)
    assert page.state == fragment(spec, [*scores[:-1], 0])


def test_tab_reaches_every_control_and_each_has_a_name(page: Page) -> None:
    from selenium.webdriver import ActionChains, Keys

    for details in page.browser.find_elements("css selector", "details:not([open]) > summary"):
        details.click()
    wanted = page.run(
        "return [...document.querySelectorAll('button, input, select, textarea')]"
        ".filter((c) => !c.disabled && c.id).map((c) => c.id)"
    )
    page.run(
        "window.reached = []; document.addEventListener('focusin', (event) =>"
        " window.reached.push(event.target.id || event.target.getAttribute('aria-label')));"
        "document.querySelector('.skip').focus()"
    )
    ActionChains(page.browser).send_keys(Keys.TAB * (len(wanted) + 30)).perform()
    reached = set(page.run("return window.reached"))
    assert set(wanted) <= reached
    assert "score 1" in reached
    nameless = [c for c in wanted if not page.element(f"#{c}").accessible_name]
    assert nameless == []


def test_slices_can_be_chosen(page: Page) -> None:
    page.element("#slice-next").click()
    assert page.table("lanes-table")[0][0] == "9"
    page.element("#slices-table tbody tr:nth-child(3) button").click()
    assert page.table("lanes-table")[0][0] == "17"
    assert page.run("return document.getElementById('slice-next').disabled")
    page.element("#slice-back").click()
    assert page.run("return document.getElementById('slice').value") == "2"


def test_a_link_brings_the_state_back(page: Page) -> None:
    spec = PRESETS["row-scaled"].replace(input="Q(14,3)", max="Q(14,0)", base="fold", slice_width=4)
    page.open(spec, [1.5, None, 3])
    assert page.state == fragment(spec, [1.5, None, 3])
    page.shows(spec, [1.5, None, 3])
    page.run("location.hash = arguments[0]", fragment(FIRST, [7, 8]))
    page.until("document.getElementById('scores').value === '7 8'")
    page.settle()
    page.shows(FIRST, [7, 8])
    page.element("#link").click()
    page.until("document.getElementById('status').textContent.includes('ink')")


def test_area_and_energy_are_shown_where_they_are_cached(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.set("preset", "paper-32")
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    page.set("preset", "paper")
    assert page.element("#silicon-note").is_displayed()
    energy = {"stimulus": "attention", "mode": "glitches", "pj_per_element": 0.7123}
    saved = {
        "unit": "unnormed",
        "design": "softermax",
        "preset": "paper",
        "width": 16,
        "library": "nangate45",
    }
    figures = {"clock_ns": 1.0, "area_um2": 5437.2, "slack_ns": -0.1, "energy": [energy]}
    write_text(cache_dir("silicon", "results") / "made.json", json.dumps(saved | figures))
    page.set("output_rounding", "half-even")
    assert page.element("#silicon-note").is_displayed()
    page.set("output_rounding", "half-up")
    assert page.table("silicon") == [
        ["UnnormedSoftmax", "nangate45", "1 ns, missed", "5437 µm²", "0.712 pJ", "attention"]
    ]


def test_the_spec_can_be_saved(page: Page) -> None:
    page.set("base", "fold")
    page.element("#save-spec").click()
    assert SoftermaxSpec.load(_downloaded(page, "spec.json")) == FIRST.replace(base="fold")


def test_the_unit_can_be_saved_as_verilog(page: Page) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    page.set("slice-width", 2)
    for unit, name in (("normalization", "normalization"), ("top", "softermax_top")):
        page.set("unit", unit)
        page.element("#save-verilog").click()
        text = _downloaded(page, f"{name}.v").read_text(encoding="utf-8")
        assert f"module {name}(" in text
        assert "slice_width = 2" in text


def test_a_whole_row_has_no_verilog(page: Page) -> None:
    page.set("whole-row", True)
    page.element("#save-verilog").click()
    page.until("!document.getElementById('save-verilog').disabled")
    assert "slice_width" in page.text("status") or "not installed" in page.text("status")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1300, "light")])
def test_fits_a_phone_and_both_schemes(page: Page, width: int, scheme: str) -> None:
    browser = page.browser
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 800},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    try:
        page.open()
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")
        ground, ink = page.run(
            "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
            ".map((c) => c.match(/[0-9]+/g).slice(0, 3).map(Number))"
        )
        assert (sum(ground) > sum(ink)) == (scheme == "light")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def _downloaded(page: Page, name: str) -> Any:
    path = page.browser.downloads / name
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{name} was not downloaded: {page.text('status')}"
        time.sleep(0.05)
    return path
