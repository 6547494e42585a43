"""The explorer's page in headless Chromium: every control, every number, the keyboard, no errors."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from softermax import golden
from softermax import spec as spec_module
from softermax.cache import cache_dir
from softermax.explorer.server import Explorer
from softermax.explorer.state import fragment
from softermax.files import write_text
from softermax.fixedpoint import shift_right
from softermax.spec import PRESETS, AnySpec, DeferredSpec, SoftermaxSpec, get_spec, load_spec

SCORES = [2, 1, 3, 0.5, -1.25, 4.75, 3.5, None, 1.5, 6.25, 5, 2.5, 33, -3, 0, 2.125, 7, 9.5, 1, 4]
FIRST = SoftermaxSpec(slice_width=8)


class Page:
    """The page as a user has it: controls by id, text by id, tables as lists of rows."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, spec: AnySpec = FIRST, scores: list[float | None] = SCORES) -> None:
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

    def value(self, control: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).value", control))

    def visible(self, selector: str) -> bool:
        return bool(self.element(selector).is_displayed())

    def shows_deferred(self, spec: DeferredSpec, scores: list[float | None] = SCORES) -> None:
        """Every number on the page, as raw words, is the golden model's for this spec."""
        self.set("show", "raw")
        mask = [score is not None for score in scores]
        x = [score or 0.0 for score in scores]
        out = spec.run(x, mask=mask, trace=True)
        t = out.trace
        assert t is not None
        slices = self.table("slices-table")
        sums = t.weight.sum(axis=-1)
        for at, words in ((1, t.local_max), (2, t.running_max), (4, sums), (5, t.powsum)):
            assert [row[at] for row in slices] == [str(word) for word in words]
        assert [row[3] for row in slices][1:] == [f"≫ {shift}" for shift in t.renorm_shift[1:]]
        width = spec.scores.slice_width or len(x)
        assert [row[6] for row in slices] == [f"≫ {shift}" for shift in out.shift[::width]]
        assert self.text("powsum") == str(t.powsum[-1])
        assert self.text("leading-one") == f"bit {out.leading_one}"
        assert self.text("reciprocal") == str(out.reciprocal)
        raw = golden.quantize(x, spec.scores, mask)
        for s in range(len(slices)):
            self.set("slice", s + 1)
            for row in self.table("lanes-table"):
                i = int(row[0]) - 1
                if not mask[i]:
                    assert row[1] == "masked"
                    continue
                integer = int(golden.int_max(raw[i], spec.scores))
                difference = raw[i] - (t.running_max[s] << spec.scores.input.fraction)
                expected = [raw[i], integer, difference, t.unnormed[s, i % width], out.words[i]]
                assert row[2:7] == [str(word) for word in expected]
                assert row[7] == f"≫ {out.shift[i]}"
                assert float(row[8]) == pytest.approx(out.value[i], rel=1e-2)

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
        products = spec.normalization == "row-products"
        later = [] if products else [f"≫ {shift}" for shift in t.numerator_shift]
        assert [cell for row in slices for cell in row[7:]] == later
        if products:
            assert f"products are {', '.join(map(str, t.products))}:" in self.text("tables-note")
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
                if products:
                    shift = int(row.pop(7).removeprefix("≫ "))
                    shifted = shift_right(t.numerator[lane], shift, spec.output_rounding)
                    assert min(int(shifted), spec.output.high) == out.words[i]
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


@pytest.mark.parametrize("name", ["paper:deferred", "whole-row:deferred"])
def test_deferred_presets_show_the_golden_models_words(page: Page, name: str) -> None:
    spec = get_spec(name)
    assert isinstance(spec, DeferredSpec)
    page.set("preset", name)
    assert page.state == fragment(spec, SCORES)
    page.shows_deferred(spec)


def test_a_folded_preset_is_called_by_its_name(page: Page) -> None:
    chosen = "return document.getElementById('preset').selectedOptions[0].text"
    for name in ("paper+fold", "paper+fold:deferred"):
        page.open(get_spec(name))
        assert page.run(chosen) == name
    page.set("powsum-integer", 12)
    assert page.run(chosen) == "changed"


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
    "product-integer": (2, {"product": "Q(2,9)"}),
    "product-fraction": (12, {"product": "Q(1,12)"}),
    "output-integer": (0, {"output": "Q(0,7)"}),
    "output-fraction": (12, {"output": "Q(1,12)"}),
    "pow2_segments": (1, {"pow2_segments": 2}),
    "reciprocal_segments": (4, {"reciprocal_segments": 16}),
    "slice-slider": (5, {"slice_width": 5}),
    "slice-width": (3, {"slice_width": 3}),
    "whole-row": (True, {"slice_width": None}),
    "output_mode": ("row-scaled", {"output_mode": "row-scaled"}),
    "normalization": ("row-products", {"normalization": "row-products"}),
    "base": ("fold", {"base": "fold"}),
}
_DEFERRED_SLIDERS = {
    "weight-integer": (1, {"weight": "Q(1,8)"}),
    # PowSum adds up weights: its fraction follows theirs.
    "weight-fraction": (10, {"weight": "Q(0,10)", "powsum": "Q(16,10)"}),
    "powsum-integer": (12, {"powsum": "Q(12,8)"}),
    "reciprocal-fraction": (11, {"reciprocal": "Q(1,11)"}),
    "reciprocal_segments": (2, {"reciprocal_segments": 4}),
    "input-fraction": (4, {"scores": FIRST.replace(input="Q(6,4)")}),
    "unnormed_rounding": ("half-up", {"scores": FIRST.replace(unnormed_rounding="half-up")}),
    "slice-width": (3, {"scores": FIRST.replace(slice_width=3)}),
    "base": ("fold", {"scores": FIRST.replace(base="fold")}),
}
_CHOICES = {
    f"{field}={option}": (field, option)
    for field, options in spec_module.CHOICES.items()
    for option in options
    if field not in ("output_mode", "normalization", "base")
}


def test_every_control_is_tested(page: Page) -> None:
    """So that a control added to the page without a test is noticed."""
    there = page.run(
        "return [...document.querySelectorAll('#controls input, #controls select')].map((c) => c.id)"
    )
    others = {"preset", "unit", "spec-file"}
    assert set(there) == {
        *_SLIDERS, *_DEFERRED_SLIDERS, *(field for field, _ in _CHOICES.values()), *others
    }  # fmt: skip
    for field, options in spec_module.CHOICES.items():
        offered = page.run(
            "return [...document.getElementById(arguments[0]).options].map((o) => o.value)", field
        )
        more = ["deferred"] if field == "output_mode" else []
        assert sorted(offered) == sorted([*options, *more])


@pytest.mark.parametrize("control", _SLIDERS)
def test_a_control_changes_the_spec(page: Page, control: str) -> None:
    value, changes = _SLIDERS[control]
    if control == "input-integer":
        page.set("max-integer", value)  # which must not be narrower
    page.set(control, value)
    spec = FIRST.replace(**changes)
    assert page.state == fragment(spec, SCORES)
    page.shows(spec)


@pytest.mark.parametrize("control", _DEFERRED_SLIDERS)
def test_a_control_changes_the_spec_of_deferred_normalisation(page: Page, control: str) -> None:
    page.set("output_mode", "deferred")
    value, changes = _DEFERRED_SLIDERS[control]
    page.set(control, value)
    spec = DeferredSpec(scores=FIRST).replace(**changes)
    assert page.state == fragment(spec, SCORES)
    page.shows_deferred(spec)


def test_deferred_normalisation_has_its_own_words_and_goes_back(page: Page) -> None:
    page.set("output-fraction", 9)
    assert not page.visible("#weight-fraction")
    page.set("output_mode", "deferred")
    assert page.visible("#weight-fraction")
    for hidden in ("#output-fraction", "#exponent"):
        assert not page.visible(hidden)
    assert page.text("powsum-format") == "Q(16,8)"
    assert not page.element("#powsum-fraction").is_enabled()
    page.set("output_mode", "fixed")
    page.shows(FIRST.replace(output="Q(1,9)"))


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


@pytest.mark.parametrize(
    ("control", "value", "field"),
    [
        ("weight-fraction", 16, "weight"),
        ("slice-width", 0, "slice_width"),
        # A word that deferred normalisation does not use has no control to stand beside.
        ("unnormed-fraction", 5, "spec"),
    ],
)
def test_what_cannot_work_with_deferred_normalisation_is_said(
    page: Page, control: str, value: object, field: str
) -> None:
    page.set("output_mode", "deferred")
    page.set("weight-fraction", 5 if field == "spec" else 8)
    good = page.value(control)
    page.set(control, value)
    said = page.problem(field)
    assert said is not None
    assert said.startswith(("weight = ", "scores.slice_width = ", "scores.powsum = Q(10,6): "))
    assert page.visible(f"#{field}-problem")
    page.set(control, good)
    assert page.problem(field) is None


def test_without_a_result_none_is_shown_and_none_is_saved(page: Page) -> None:
    page.set("powsum-fraction", 16)
    for part in ("#result-chart", "#row-sum", "#slices-table", "#lanes-table"):
        assert not page.visible(part)
    assert page.visible("#no-result")
    assert page.text("no-result").startswith("No result: powsum = Q(10,16)")
    assert page.text("summary") == page.text("no-result")
    page.element("#link").click()
    assert page.text("status").startswith("No link was copied: powsum = Q(10,16)")
    page.element("#save-spec").click()
    page.until(
        "document.getElementById('status').textContent.startsWith('Nothing was saved: powsum = Q(10,16)')"
    )
    page.set("powsum-fraction", 6)
    assert page.visible("#result-chart")
    assert not page.visible("#no-result")
    assert page.text("summary").startswith("Row sum ")


def test_scores_that_cannot_be_read_show_no_result_of_their_beginning(page: Page) -> None:
    """Also while the answer to what stood there before is on its way, and whatever is moved afterwards."""
    page.run(
        "const box = document.getElementById('scores');"
        "for (const text of ['1 2', '1 2 f', '1 2 foo']) {"
        " box.value = text; box.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    says = "foo is not a score: must be numbers, and x where masked"
    for _ in range(2):
        page.settle()
        assert page.problem("scores") == says
        assert page.visible("#scores-problem")
        for part in ("#score-chart", "#result-chart", "#row-sum", "#lanes-table"):
            assert not page.visible(part)
        assert page.text("summary") == f"No result: {says}"
        page.set("powsum-integer", 12)
    page.element("#link").click()
    assert page.text("status") == f"No link was copied: {says}"
    page.set("scores", "1 2 3")
    assert page.problem("scores") is None
    page.shows(FIRST.replace(powsum="Q(12,6)"), [1, 2, 3])


def test_a_link_with_scores_that_cannot_be_read_can_be_mended(page: Page) -> None:
    page.browser.get("about:blank")
    page.browser.get(f"{page.url}#scores=1,2,foo&slice_width=8")
    page.settle()
    assert page.value("scores") == "1,2,foo"
    assert "foo is not a score" in str(page.problem("scores"))
    page.set("scores", "1, 2")
    page.shows(FIRST, [1, 2])


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


@pytest.mark.parametrize("base", ["paper", "fold"])
def test_the_running_max_is_drawn_on_the_scores_own_scale(page: Page, base: str) -> None:
    score = 2.0 if base == "paper" else 2 * math.log(2)
    page.open(FIRST.replace(base=base), [score, -1])
    assert page.table("slices-table")[0][2] == "2"
    line, bar = page.run(
        "return [document.querySelector('.running-max').getAttribute('d').match(/M[^ ]+ ([0-9.]+)/)[1],"
        " document.querySelector('#score-chart .scores rect').getAttribute('y')].map(Number)"
    )
    assert line == pytest.approx(bar, abs=1e-6)


@pytest.mark.parametrize("base", ["paper", "fold"])
def test_errors_are_against_the_exact_softmax_of_the_base(page: Page, base: str) -> None:
    page.set("base", base)
    exact = {"paper": "base two", "fold": "softmax"}[base]
    largest = page.text("error-two" if base == "paper" else "error-exact")
    said = page.text("summary")
    assert said.endswith(f" against {exact}")
    shown = float(said.split("largest error ")[1].split()[0])
    assert shown == pytest.approx(float(largest), rel=1e-2)
    errors = []
    for s in range(3):
        page.set("slice", s + 1)
        errors += [abs(float(row[11])) for row in page.table("lanes-table")]
    assert max(errors) == pytest.approx(float(largest), rel=1e-2)


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
        ".filter((c) => !c.disabled && c.id && c.offsetParent !== null).map((c) => c.id)"
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
    # The focus goes down the page as the eye does.
    order = [c for c in page.run("return window.reached") if c in wanted]
    assert order[: len(wanted)] == wanted


def test_links_to_sections_go_there_and_leave_the_state_alone(page: Page) -> None:
    from selenium.webdriver import Keys

    state = page.state
    for link, section in (
        (".bar a[data-section='steps']", "steps"),
        (".bar a[data-section='scores-panel']", "scores-panel"),
        (".skip", "result"),
    ):
        page.element(link).send_keys(Keys.ENTER)
        page.until(f"document.activeElement.id === '{section}'")
        assert page.state == state
    page.shows(FIRST)


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
    assert page.visible("#silicon-note")
    energy = {"stimulus": "attention", "mode": "glitches", "pj_per_element": 0.7123}
    measured = {
        "unit": "unnormed", "design": "softermax", "preset": "own", "spec": PRESETS["paper"].to_dict(),
        "library": "nangate45", "clock_ns": 1.0, "wire": "small", "area_um2": 5437.2, "slack_ns": -0.1,
        "energy": [energy],
    }  # fmt: skip
    write_text(cache_dir("silicon", "results") / "made.json", json.dumps(measured))
    page.set("powsum_rounding", "half-even")
    assert page.visible("#silicon-note")
    page.set("powsum_rounding", "half-up")
    assert page.table("silicon") == [
        ["UnnormedSoftmax", "nangate45", "1 ns, missed", "5437 µm²", "0.712 pJ", "attention"]
    ]
    bare = measured | {"wire": "no wires", "area_um2": 5000}
    write_text(cache_dir("silicon", "results") / "bare.json", json.dumps(bare))
    page.set("base", "fold")
    assert [row[1] for row in page.table("silicon")] == ["nangate45, no wires", "nangate45, small"]


def test_the_spec_can_be_saved(page: Page) -> None:
    page.set("base", "fold")
    page.element("#save-spec").click()
    assert SoftermaxSpec.load(_downloaded(page, "spec.json")) == FIRST.replace(base="fold")


def test_a_saved_spec_can_be_opened(page: Page, tmp_path: Path) -> None:
    spec = DeferredSpec(scores=FIRST.replace(base="fold"), reciprocal="Q(1,11)")  # type: ignore[arg-type]
    page.open(spec)
    page.element("#save-spec").click()
    saved = _downloaded(page, "spec.json")
    assert load_spec(saved) == spec
    page.open()
    page.element("#spec-file").send_keys(str(saved))
    page.until("document.getElementById('status').textContent === 'spec.json is open.'")
    assert page.state == fragment(spec, SCORES)
    page.shows_deferred(spec)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "mine.json is not a spec: must be a JSON object."),
        ("[]", "mine.json is not a spec: must be a JSON object."),
        ('{"width": 3}', "mine.json: width = 3: no such field"),
        ('{"scores": {"max": "Q(5,2)"}}', "mine.json: scores.max = Q(5,2): needs at least"),
    ],
)
def test_a_file_that_is_no_spec_changes_nothing(page: Page, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.json").write_text(text)
    page.element("#spec-file").send_keys(str(tmp_path / "mine.json"))
    page.until("document.getElementById('status').textContent !== ''")
    assert page.text("status").startswith(says)
    page.shows(FIRST)


def test_the_unit_can_be_saved_as_verilog(page: Page) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    page.set("slice-width", 2)
    for unit, name in (("normalization", "normalization"), ("top", "softermax_top")):
        page.set("unit", unit)
        page.element("#save-verilog").click()
        text = _downloaded(page, f"{name}.v").read_text(encoding="utf-8")
        assert f"module {name} (" in text
        assert "slice_width = 2" in text


def test_a_whole_row_has_no_verilog(page: Page) -> None:
    page.set("whole-row", True)
    page.element("#save-verilog").click()
    page.until("!document.getElementById('save-verilog').disabled")
    assert "slice_width" in page.text("status") or "not installed" in page.text("status")


@contextmanager
def _screen(page: Page, width: int, scheme: str) -> Iterator[None]:
    """The page opened anew on a screen of this width, in light or dark."""
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
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("width", [360, 390, 800, 1300])
def test_nothing_is_wider_than_the_screen(page: Page, width: int) -> None:
    with _screen(page, width, "light"):
        for mode in ("fixed", "deferred"):
            page.set("output_mode", mode)
            assert page.run("return document.documentElement.scrollWidth <= window.innerWidth"), mode


def test_every_section_is_in_reach_on_a_phone(page: Page) -> None:
    with _screen(page, 390, "light"):
        page.run("window.scrollTo(0, document.body.scrollHeight)")
        for name, section in (
            ("Scores", "scores-panel"),
            ("Steps", "steps"),
            ("Result", "result"),
            ("Spec", "controls"),
        ):
            link = page.element(f".bar a[data-section='{section}']")
            assert link.text == name
            link.click()
            page.until(f"document.querySelector(\".bar a[data-section='{section}']\").ariaCurrent === 'true'")
            # Its heading stands below the bar and on the screen.
            bar, top = page.run(
                "return [document.querySelector('.bar').getBoundingClientRect().bottom,"
                " document.querySelector(`#${arguments[0]} h2`).getBoundingClientRect().top]",
                section,
            )
            assert bar <= top < 400


_FAINTEST = """
const channel = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);
function ground(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = rgb(getComputedStyle(e).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
}
let faintest = [99, ''];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility({ visibilityProperty: true }) || element.closest(':disabled')) continue;
  const style = getComputedStyle(element);
  const ink = luminance(rgb(element.closest('svg') ? style.fill : style.color));
  const paper = luminance(ground(element));
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < faintest[0]) faintest = [ratio, node.data.trim()];
}
return faintest;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_its_ground(page: Page, scheme: str) -> None:
    """By the 4.5 of WCAG AA, in both schemes, with a result and with a problem."""
    with _screen(page, 1300, scheme):
        ground, ink = page.run(
            "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
            ".map((c) => c.match(/[0-9]+/g).slice(0, 3).map(Number))"
        )
        assert (sum(ground) > sum(ink)) == (scheme == "light")
        for powsum in (6, 16):
            page.set("powsum-fraction", powsum)
            page.element("#link").click()
            page.until("document.getElementById('status').textContent !== ''")
            ratio, text = page.run(_FAINTEST)
            assert ratio >= 4.5, text


def _downloaded(page: Page, name: str) -> Path:
    """The file, taken away: another of the same name would get a number."""
    path: Path = page.browser.downloads / name
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{name} was not downloaded: {page.text('status')}"
        time.sleep(0.05)
    return path.rename(Path(tempfile.mkdtemp(dir=path.parent)) / name)
