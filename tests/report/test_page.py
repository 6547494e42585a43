"""The report's page in headless Chromium: values on hover, the keyboard, downloads, dark, narrow, no errors."""

from __future__ import annotations

import csv
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softermax.report.document import Document, shown
from softermax.report.render import write


@pytest.fixture(scope="module")
def opened(browser: Any, report: Document, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("report")
    browser.url = write(report, folder)[0].as_uri()
    browser.get("about:blank")
    browser.get_log("browser")
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(browser.downloads)}
    )
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def page(opened: Any) -> Iterator[Any]:
    """The page, loaded anew in a wide window with light colours; whatever was done, it logged no error."""
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    prefer(opened, "light")
    opened.get(opened.url)
    assert opened.execute_script("return document.body.dataset.ready") == "yes"
    yield opened
    assert opened.get_log("browser") == []


def prefer(browser: Any, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def narrow(browser: Any, width: int = 360) -> None:
    metrics = {"width": width, "height": 720, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def tip(browser: Any) -> str | None:
    return browser.execute_script(  # type: ignore[no-any-return]
        "const t = document.getElementById('tip'); return t.hidden ? null : t.textContent"
    )


def test_hovering_a_bar_shows_its_value(page: Any, report: Document) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for name in ("ladder", "mass", "pe-energy"):
        chart = next(c for s in report.sections for c in s.charts if c.name == name)
        mark = page.find_element("css selector", f"#{name} .wide .mark")
        page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", mark)
        ActionChains(page).move_to_element(mark).perform()
        text = tip(page)
        assert text is not None
        assert text == mark.get_attribute("data-tip")
        series = next(s for s in chart.series if text.startswith(s.name))
        assert shown(float(series.values[0] or 0.0)) in text
        ActionChains(page).move_to_element(page.find_element("css selector", f"#{name} figcaption")).perform()
        assert tip(page) is None


def test_the_keyboard_reaches_every_value_and_button(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    chart = page.find_element("css selector", "#mass .wide svg")
    page.execute_script("arguments[0].focus()", chart)
    marks = page.find_elements("css selector", "#mass .wide .mark")
    for mark in marks:
        chart.send_keys(Keys.ARROW_RIGHT)
        assert tip(page) == mark.get_attribute("data-tip")
    chart.send_keys(Keys.ARROW_LEFT)
    assert tip(page) == marks[-2].get_attribute("data-tip")
    chart.send_keys(Keys.ESCAPE)
    assert tip(page) is None
    reached = set()
    for _ in range(60):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        reached.add((active.tag_name, active.get_attribute("data-save") or active.get_attribute("class")))
    assert {("button", "svg"), ("button", "png"), ("button", "csv"), ("svg", "chart")} <= reached


def fetched(browser: Any, name: str) -> Path:
    path: Path = browser.downloads / name
    deadline = time.monotonic() + 30
    while not path.is_file() or path.stat().st_size == 0:
        assert time.monotonic() < deadline, f"{name} never came"
        time.sleep(0.05)
    return path


def test_charts_can_be_downloaded_with_their_colours(page: Any, report: Document) -> None:
    chart = next(c for s in report.sections for c in s.charts if c.name == "ladder")
    for kind in ("svg", "png", "csv"):
        (page.downloads / f"ladder.{kind}").unlink(missing_ok=True)
        page.execute_script("document.querySelector(`#ladder [data-save=${arguments[0]}]`).click()", kind)
    drawing = ET.parse(fetched(page, "ladder.svg")).getroot()
    fills = {rect.get("style", "") for rect in drawing.iter("{http://www.w3.org/2000/svg}rect")}
    assert any("fill: rgb(" in style for style in fills)
    assert not any("var(" in style for style in fills)
    picture = fetched(page, "ladder.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == 2 * int(drawing.get("viewBox", "").split()[2])
    with fetched(page, "ladder.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == [series.name for series in chart.series]
    assert [float(row[1]) for row in rows[1:]] == list(chart.series[0].values)


def test_dark_follows_the_system_until_it_is_chosen(page: Any) -> None:
    def ground() -> str:
        return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = ground()
    prefer(page, "dark")
    page.get(page.url)
    dark = ground()
    assert dark != light
    page.find_element("id", "theme").click()
    assert ground() == light
    page.find_element("id", "theme").click()
    assert ground() == dark


@pytest.mark.parametrize("width", [320, 360, 412])
def test_a_phone_scrolls_tables_not_the_page(page: Any, width: int) -> None:
    narrow(page, width)
    page.get(page.url)
    page.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    wider = page.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth).length"
    )
    assert wider > 0
    shown_charts = page.execute_script(
        "return [...document.querySelectorAll('svg.chart')].filter((s) => s.getClientRects().length)"
        ".map((s) => s.closest('.narrow') !== null)"
    )
    assert shown_charts
    assert all(shown_charts)


def test_text_in_a_phones_charts_is_large_enough_to_read(page: Any) -> None:
    narrow(page)
    page.get(page.url)
    scale = page.execute_script(
        "const s = document.querySelector('#ladder .narrow svg');"
        "return s.getBoundingClientRect().width / s.viewBox.baseVal.width"
    )
    assert scale > 0.9


def test_headings_links_and_names_are_in_order(page: Any, report: Document) -> None:
    links = page.execute_script(
        "return [...document.querySelectorAll('.overview a')].map((a) => document.querySelector(a.hash) !== null)"
    )
    assert links == [True] * len(report.sections)
    assert page.execute_script("return document.querySelectorAll('h1').length") == 1
    ids = page.execute_script("return [...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_a_phone_has_a_menu_at_hand_everywhere(page: Any, report: Document) -> None:
    narrow(page)
    page.get(page.url)
    menu = page.find_element("css selector", "#contents summary")
    last = report.sections[-1].name
    page.execute_script("window.scrollTo({top: document.body.scrollHeight / 2, behavior: 'instant'})")
    link = page.find_element("css selector", f"#contents a[href='#{last}']")
    assert menu.is_displayed()
    assert not link.is_displayed()
    assert page.execute_script("return arguments[0].getBoundingClientRect().top", menu) >= 0
    menu.click()
    assert link.is_displayed()
    page.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    link.click()
    assert not link.is_displayed(), "the menu closes when it is used"
    heading = page.find_element("css selector", f"#{last} h2")
    bar = page.find_element("id", "contents")
    top, bottom = page.execute_script(
        "return [arguments[0].getBoundingClientRect().top, arguments[1].getBoundingClientRect().bottom]",
        heading, bar,
    )  # fmt: skip
    assert bottom <= top < 720


def test_contents_stand_beside_a_wide_page_and_mark_the_place(page: Any, report: Document) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1300, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    page.get(page.url)
    links = page.find_elements("css selector", "#contents a")
    assert len(links) == len(report.sections) + 2
    assert all(link.is_displayed() for link in links)
    assert page.execute_script(
        "return document.querySelector('#contents').getBoundingClientRect().right"
        " <= document.querySelector('main').getBoundingClientRect().left"
    )
    page.execute_script("document.getElementById('units').scrollIntoView({behavior: 'instant'})")
    deadline = time.monotonic() + 10
    while not page.find_elements("css selector", "#contents a.here[href='#units']"):
        assert time.monotonic() < deadline, "the place is not marked"
        time.sleep(0.05)


@pytest.mark.parametrize("width", [320, 390, 1300])
def test_badges_do_not_touch(page: Any, width: int) -> None:
    narrow(page, width)
    page.get(page.url)
    gap = page.execute_script(
        """
        let least = 1e9;
        for (const group of document.querySelectorAll('.chips, tbody')) {
          const boxes = [...group.querySelectorAll('.verdict')].map((chip) => chip.getBoundingClientRect());
          boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
            const x = Math.max(a.left - b.right, b.left - a.right);
            const y = Math.max(a.top - b.bottom, b.top - a.bottom);
            least = Math.min(least, Math.max(x, y));
          }));
        }
        return least;
        """
    )
    assert 3 <= gap < 1e9
