"""The site: it builds without a warning, its links lead somewhere, it loads nothing from the network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from .blocks import ROOT, pages

SCHEMES = ("http", "https")


def load(name: str) -> ModuleType:
    """A script of docs/_build, which finds those beside it as when it is run."""
    folder = str(ROOT / "docs" / "_build")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / "_build" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(HTMLParser):
    """What a page links to, loads, and can be linked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site")
    quiet = {
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def built(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_built_and_in_the_menu(site: Path, built: dict[Path, Page]) -> None:
    menu = {
        (site / unquote(link)).resolve() for link in built[site / "index.html"].links if urlsplit(link).path
    }
    for page in sorted((ROOT / "docs").rglob("*.md")):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert made.is_file(), page
        assert made.resolve() in menu, page


def test_links_lead_to_pages_and_anchors_that_exist(site: Path, built: dict[Path, Page]) -> None:
    broken = []
    for path, page in built.items():
        if path.name == "404.html":
            continue
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in SCHEMES:
                assert parts.netloc, link
                continue
            if parts.scheme in ("mailto", "data"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if not target.is_file() or (
                parts.fragment and target in built and unquote(parts.fragment) not in built[target].ids
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_pages_load_nothing_from_the_network(built: dict[Path, Page], site: Path) -> None:
    for path, page in built.items():
        assert [url for url in page.loads if urlsplit(url).netloc] == [], path
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(.?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_tables_of_results_are_filled(site: Path) -> None:
    text = (site / "against-the-paper.html").read_text(encoding="utf-8")
    assert "results:" not in re.sub(r"<p>.*?</p>", "", text, flags=re.DOTALL)
    made = load("results")
    for row in made.units():
        assert f"<td>{row['here']}</td>" in text
        assert row["verdict"] in ("reproduced", "better", "not reached")


def test_the_api_has_the_public_names(built: dict[Path, Page], site: Path) -> None:
    ids = {name for path, page in built.items() if path.parent.name == "api" for name in page.ids}
    for name in (
        "softermax.spec.SoftermaxSpec.compute",
        "softermax.golden.softermax",
        "softermax.functional.softermax",
        "softermax.integrations.transformers.enable",
        "softermax.models.quantization.quantize",
        "softermax.models.onnx.export_model",
        "softermax.rtl.units.create",
        "softermax.silicon.flow.measure_unit",
    ):
        assert name in ids, name
    text = (site / "api" / "arithmetic.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in text, "an example in a docstring is shown as a quotation"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_the_figures_of_the_results(page: Path) -> None:
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT)
    again = f"python docs/_build/results.py {name}"
    assert load("results").filled(text) == text, f"figures in {name} are old: run {again}"


MADE = r"<!-- figure: .*?<!-- /figure -->|<!-- results: .*?<!-- end -->|```.*?```|`[^`]*`|\]\([^)]*\)"
"""A marker, a table from results, code, an address."""


def test_no_figure_of_the_readme_is_typed_by_hand() -> None:
    """A decimal number or a per cent."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    left = re.sub(MADE, "", text, flags=re.DOTALL)
    assert set(re.findall(r"\d+\.\d+|\d+ ?%", left)) <= {"3.11", "2.0"}  # Python, Apache


NOT_MEASURED = {
    "arithmetic.md": {"0.29 %", "0.012 %"},  # counted by tests over all words
    "how-it-works.md": {"9 %"},  # 2^(1/8)
    "models.md": {"95 %"},  # an interval
    "onnx.md": {"5 %"},  # a limit
    "search.md": {"10 %"},  # the goal that errors are counted against
    "silicon.md": {"100 %"},
}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: str(page.name))
def test_no_measured_figure_of_a_page_is_typed_by_hand(page: Path) -> None:
    """A per cent, an energy, or a ratio in times."""
    left = re.sub(MADE, "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = set(re.findall(r"[\d.]+ ?%|[\d.]+ (?:ms|[pnµ]J)\b|\d+\.\d+ times as (?:fast|many|much)", left))
    assert found <= NOT_MEASURED.get(page.name, set())


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site(name: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in SCHEMES
            assert parts.netloc, link
        else:
            assert (ROOT / parts.path).exists(), f"{name}: {link}"


def test_pictures_are_what_the_golden_model_gives(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pictures = load("pictures")
    kept = {name: (pictures.PICTURES / f"{name}.svg").read_text(encoding="utf-8") for name in pictures.DRAWN}
    drawn_with = re.search(r"Matplotlib v([\w.]+)", next(iter(kept.values())))
    assert drawn_with is not None
    if drawn_with[1] != matplotlib.__version__:
        pytest.skip(f"pictures were drawn with matplotlib {drawn_with[1]}, here is {matplotlib.__version__}")
    pictures.main(tmp_path)
    for name, text in kept.items():
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8") == text, f"{name}.svg is old"
