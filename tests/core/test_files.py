"""Files are whole or absent; missing extras say how to get them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from softermax.extras import need
from softermax.files import replacing, write_text


def test_write_text_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.txt"
    write_text(path, "first, longer\n")
    write_text(path, "zwei µ\n")
    assert path.read_text(encoding="utf-8") == "zwei µ\n"
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    """Not the 0600 of a temporary file."""
    usual, ours = tmp_path / "usual", tmp_path / "ours"
    usual.write_text("")
    write_text(ours, "")
    assert ours.stat().st_mode == usual.stat().st_mode


def test_need() -> None:
    assert need("json", "torch") is sys.modules["json"]
    with pytest.raises(ImportError, match=r"pip install '\.\[hardware\]'"):
        need("no_such_module.part", "hardware")


def test_need_does_not_hide_a_missing_dependency_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import its_own_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="its_own_dependency"):
        need("half_installed", "torch")


@pytest.mark.parametrize("executable", [True, False])
def test_a_program_can_be_run_as_soon_as_it_is_there(tmp_path: Path, executable: bool) -> None:
    """Another process may replace a program by its own copy while this one starts it."""
    path = tmp_path / "program"
    with replacing(path) as partial:
        partial.write_text("#!/bin/sh\n")
        if executable:
            partial.chmod(0o700)
    assert os.access(path, os.X_OK) == executable
