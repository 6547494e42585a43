"""The front of a search on the explorer's page, in headless Chromium: a click shows a point and puts its spec into the page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from softermax.explorer.server import Explorer
from softermax.spec import get_spec

from .test_page import Page

FOUND = get_spec("lean+fold").replace(unnormed="Q(1,9)")
POINTS = [
    {"name": "trial-7", "area": 5000.0, "energy": 0.5, "l1": 0.21, "front": True, "trial": 7, "spec": FOUND.to_dict()},
    {"name": "paper", "area": 20000.0, "energy": 1.9, "l1": 0.6, "front": False, "trial": None, "spec": get_spec("paper").to_dict()},
]  # fmt: skip


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    with Explorer(front=POINTS) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        page = Page(browser, server.url)
        page.open()
        page.until("document.querySelectorAll('#front-chart .point').length === 2")
        browser.get_log("browser")
        yield page
        assert browser.get_log("browser") == []
        server.shutdown()
        thread.join()


def test_a_point_shows_its_figures_and_puts_its_spec_into_the_page(page: Page) -> None:
    page.element("#front-chart [data-name='trial-7']").click()
    page.settle()
    said = page.text("front-note")
    assert "trial-7" in said
    assert "5,000" in said
    assert "softermax rtl --spec trial-7.json" in said
    page.shows(FOUND)


def test_axes_have_numbers(page: Page) -> None:
    labels = page.run("return [...document.querySelectorAll('#front-chart text')].map((e) => e.textContent)")
    assert {"5,000", "10,000", "20,000", "0.5"} <= set(labels)


@pytest.mark.parametrize("width", [420, 1200])
def test_nothing_lies_on_the_picture(page: Page, width: int) -> None:
    page.browser.set_window_size(width, 900)
    page.element("#front-chart [data-name='trial-7']").click()
    page.settle()
    boxes = (
        "const box = (id) => document.getElementById(id).getBoundingClientRect();"
        "const chart = box('front-chart'), picture = document.querySelector('#front-chart svg').getBoundingClientRect();"
        "const note = box('front-note');"
        "return [picture.bottom <= chart.bottom + 1, note.left >= chart.right || note.top >= chart.bottom - 1]"
    )
    assert page.run(boxes) == [True, True]
    page.browser.set_window_size(1200, 900)
