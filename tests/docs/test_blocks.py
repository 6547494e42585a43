"""Every code block of the README and the site: it runs, and prints what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import ROOT, Reader, blocks, check_command, commands, pages

# A page shows how a unit is made, not always what is done with it.
pytestmark = pytest.mark.filterwarnings("ignore:.*created but never used")

LANGUAGES = {"python", "pycon", "console", "commands", "json", "text", "verilog", ""}
PAGES = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """In an empty folder, but for a small model where the pages name one of the hub."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return Reader()


@pytest.fixture(scope="session")
def small_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    folder = tmp_path_factory.mktemp("hub") / "bert-base-uncased"
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def prepare(page: Path, request: pytest.FixtureRequest) -> None:
    """from_pretrained takes a folder of that name before it asks the hub."""
    if "bert-base-uncased" in page.read_text(encoding="utf-8"):
        Path("bert-base-uncased").symlink_to(request.getfixturevalue("small_bert"))


@PAGES
def test_blocks_run_as_shown(page: Path, reader: Reader, request: pytest.FixtureRequest) -> None:
    prepare(page, request)
    for block in blocks(page):
        if not block.mark:
            reader.run(block)


SLOW_PAGES = [page for page in pages() if any(block.mark == "slow" for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", SLOW_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_slow_blocks_run_as_shown(page: Path, reader: Reader, request: pytest.FixtureRequest) -> None:
    prepare(page, request)
    for block in blocks(page):
        if block.mark != "not run":
            reader.run(block)


@PAGES
def test_commands_exist_and_take_their_options(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: language {block.language!r}"
        if block.language not in ("console", "commands", ""):
            continue
        for command in commands(block):
            if block.mark == "not run" and command.words[0] != "softermax":
                continue
            check_command(command.words)


def test_blocks_are_found() -> None:
    found = [block for page in pages() for block in blocks(page)]
    assert {"python", "pycon", "console"} <= {block.language for block in found}
    assert sum(block.language in ("python", "pycon") for block in found) > 10


def test_a_stale_option_is_noticed() -> None:
    with pytest.raises(AssertionError, match="does not parse"):
        check_command(["softermax", "tables", "--no-such-option"])


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "index.md"
    right = next(block for block in blocks(page) if block.language == "pycon")
    wrong = type(right)(page, right.line, "pycon", right.text.replace("0.140625", "0.140624"))
    with pytest.raises(AssertionError, match=r"0\.140624"):
        Reader().run(wrong)
