"""One cache for all results: keyed by what they depend on, and made anew where a file is broken."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from softermax import cache
from softermax.cache import cache_dir, fingerprint, kept, key


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small package in the place of this one: meter imports cells, cells imports golden, which imports nothing."""
    files = {
        "meter.py": "from softermax.cells import CELLS\n",
        "cells.py": "import numpy\nfrom softermax import golden\nCELLS = 3\n",
        "golden/__init__.py": '"""The judge."""\n',
        "lazy.py": "def later():\n    import softermax.meter\n",
        "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from softermax.meter import CELLS\n",
        "native/engine.cpp": "int main() { return 0; }\n",
        "native/notes.txt": "not a source\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    fingerprint.cache_clear()
    yield tmp_path
    fingerprint.cache_clear()


def changes(package: Path, changed: str, *sources: str) -> bool:
    """Whether the key of ``sources`` is another one after a file has changed."""
    before = key("netlist", sources=sources)
    path = package / changed
    path.write_text(path.read_text() + ("\nMORE = 1\n" if path.suffix == ".py" else "\n"))
    fingerprint.cache_clear()
    return key("netlist", sources=sources) != before


def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "here"))
    assert cache_dir("a", "b") == tmp_path / "here" / "a" / "b"
    assert (tmp_path / "here" / "a" / "b").is_dir()
    monkeypatch.delenv("SOFTERMAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir("c") == tmp_path / "xdg" / "softermax" / "c"


@pytest.mark.parametrize("own", ["", None])
def test_an_empty_variable_counts_as_unset(
    own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty XDG_CACHE_HOME once put the cache into the working folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    if own is None:
        monkeypatch.delenv("SOFTERMAX_CACHE", raising=False)
    else:
        monkeypatch.setenv("SOFTERMAX_CACHE", own)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert cache_dir("netlists") == tmp_path / "home" / ".cache" / "softermax" / "netlists"
    assert not list((tmp_path / "work").iterdir())


def test_a_key_changes_with_each_thing_that_it_names() -> None:
    assert key("paper", 16) == key("paper", 16)
    assert (
        len({key("paper", 16), key("paper", 32), key("paper1", 6), key("paper", 16, sources=["golden/"])})
        == 4
    )


@pytest.mark.parametrize("changed", ["meter.py", "cells.py", "golden/__init__.py"])
def test_a_key_changes_with_a_module_and_with_all_that_it_imports(package: Path, changed: str) -> None:
    assert changes(package, changed, "meter")


@pytest.mark.parametrize(
    ("source", "unrelated"),
    [("cells", "meter.py"), ("lazy", "meter.py"), ("typed", "meter.py"), ("golden", "cells.py")],
)
def test_a_key_stays_when_something_else_changes(package: Path, source: str, unrelated: str) -> None:
    """What a function imports, or a type checker, is not imported with the module."""
    assert not changes(package, unrelated, source)


def test_comments_docstrings_and_layout_cannot_change_a_result(package: Path) -> None:
    before = key(sources=["meter"])
    (package / "meter.py").write_text(
        '"""What it is."""\n\n# Why.\nfrom softermax.cells import (\n    CELLS,\n)\n'
    )
    (package / "golden" / "__init__.py").write_text('"""Another docstring."""\n')
    fingerprint.cache_clear()
    assert key(sources=["meter"]) == before


def test_what_keeps_and_tells_results_is_no_part_of_what_makes_them(package: Path) -> None:
    for name in ("cells", "files"):
        (package / f"{name}.py").write_text("import softermax.files\nCELLS = 3\n")
    assert not changes(package, "files.py", "meter")
    assert changes(package, "files.py", "files")


def test_files_and_folders_as_sources(package: Path) -> None:
    assert changes(package, "native/engine.cpp", "native/engine.cpp")
    assert changes(package, "native/engine.cpp", "native/")
    assert not changes(package, "native/notes.txt", "native/")


def test_a_renamed_source_is_another_source(package: Path) -> None:
    before = key(sources=["native/"])
    (package / "native" / "engine.cpp").rename(package / "native" / "motor.cpp")
    fingerprint.cache_clear()
    assert key(sources=["native/"]) != before


@pytest.mark.parametrize("source", ["power", "native/power.cpp", "power/", "golden.power"])
def test_an_unknown_source_is_refused(package: Path, source: str) -> None:
    with pytest.raises(ValueError, match=f"source '{source}': there is no such part of the package"):
        key(sources=[source])


def made(path: Path, value: object, log: list[object]) -> object:
    def make(partial: Path) -> None:
        log.append(value)
        partial.write_text(json.dumps(value))

    return kept(path, make, lambda p: json.loads(p.read_text()))


def test_a_result_is_made_once(tmp_path: Path) -> None:
    log: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert made(tmp_path / "deep" / "a.json", [1, 2], log) == [1, 2]
        assert made(tmp_path / "deep" / "a.json", [3], log) == [1, 2]
    assert log == [[1, 2]]


@pytest.mark.parametrize("content", [b"", b'{"area": 1', b"\xff\xfe"])
def test_a_broken_file_is_named_and_made_anew(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    log: list[object] = []
    with pytest.warns(
        UserWarning, match=r"a\.json in the cache cannot be read \(.+\); it is made anew"
    ) as told:
        assert made(path, {"area": 2}, log) == {"area": 2}
    assert str(path) in str(told[0].message)
    assert log == [{"area": 2}]
    assert json.loads(path.read_text()) == {"area": 2}


def test_a_failure_while_making_leaves_nothing(tmp_path: Path) -> None:
    def make(partial: Path) -> None:
        partial.write_text("half")
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        kept(tmp_path / "a.json", make, Path.read_text)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_made_broken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(json.JSONDecodeError):
        kept(tmp_path / "a.json", lambda p: p.write_text("{"), lambda p: json.loads(p.read_text()))


def test_a_sealed_file_that_is_cut_off_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "engine.so"

    def make(partial: Path) -> None:
        partial.write_bytes(b"code" * 100)
        cache.seal(partial)

    assert kept(path, make, cache.sealed).read_bytes()[:400] == b"code" * 100
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="its end or its content is not what was written"):
        kept(path, make, cache.sealed)
    assert cache.sealed(path) == path
