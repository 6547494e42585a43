"""What the meter keeps: every kind of file is made anew when the code that makes it changes, and when it is broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softermax import cache
from softermax.silicon import flow, pdk, simulation, stimuli, synthesis
from softermax.silicon.flow import measure_unit
from softermax.silicon.library import Library
from softermax.silicon.pe import operands
from softermax.silicon.simulation import engine
from softermax.silicon.stimuli import gaussian
from softermax.silicon.units import UnnormedUnit
from softermax.spec import SoftermaxSpec

UNIT = UnnormedUnit(SoftermaxSpec(slice_width=1))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def own_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that keys are made from."""
    copy = tmp_path / "softermax"
    shutil.copytree(cache.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr(cache, "ROOT", copy)
    cache.fingerprint.cache_clear()
    return copy


@pytest.fixture(autouse=True)
def fresh_keys() -> Any:
    yield
    cache.fingerprint.cache_clear()
    engine.cache_clear()


RECORDED = {"scores_float": np.zeros((4, stimuli.COLUMNS), dtype=np.float32)}
RECORDED |= {name: np.ones((384, 64), dtype=np.int8) for name in "qkv"}
RECORDED |= {f"{name}_scale": np.float32(0.1) for name in "qkv"}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Everything that is kept, as a run uses it; what takes long is cut short."""
    for module in (stimuli, operands):
        monkeypatch.setattr(module, "run_recorder", lambda *options: dict(RECORDED))

    def run() -> None:
        engine.cache_clear()
        engine()
        library = pdk.load("nangate45")
        flow.mapped(UNIT.rtlil(), library, 3.0)
        measure_unit(UNIT, library, 3.0, [gaussian(2, 4)], copies=2, rows=1)
        assert stimuli.recorded()[0] is not None
        assert operands.operands()[0].name == "attention"

    return run


KINDS = ("libraries", "netlists", "engine", "results", "stimuli")


def kept(folder: Path, kind: str) -> set[str]:
    return {path.name for path in (folder / "silicon" / kind).iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut off", "garbage", "empty"])
def test_broken_files_are_named_and_made_anew(
    own_cache: Path, used: Callable[[], None], damage: str, recwarn: pytest.WarningsRecorder
) -> None:
    used()
    found = {kind: kept(own_cache, kind) for kind in KINDS}
    assert [len(found[kind]) for kind in KINDS] == [1, 1, 1, 1, 2]
    for kind in KINDS:
        for path in (own_cache / "silicon" / kind).iterdir():
            content = path.read_bytes()
            broken = {"cut off": content[: len(content) // 2], "garbage": b"\xff\x00{" * 100, "empty": b""}
            path.unlink()  # what is loaded may be mapped
            path.write_bytes(broken[damage])
            recwarn.clear()
            used()
            said = [str(warning.message) for warning in recwarn.list]
            assert sum(f"{path} in the cache cannot be read" in text for text in said) == 1, path
            assert path.stat().st_size == len(content)
        assert kept(own_cache, kind) == found[kind]


def test_a_broken_result_and_a_broken_engine_are_made_anew(own_cache: Path, nangate45: Library) -> None:
    """The two that a run meets most, without mapping anything twice."""
    engine.cache_clear()
    first = measure_unit(UNIT, nangate45, 3.0, [gaussian(2, 4)], copies=2, rows=1)
    (result,) = (own_cache / "silicon" / "results").iterdir()
    (library,) = (own_cache / "silicon" / "engine").iterdir()
    whole = library.read_bytes()
    result.write_text(result.read_text()[:100])
    library.unlink()
    library.write_bytes(whole[: len(whole) // 2])
    engine.cache_clear()
    with pytest.warns(UserWarning, match="cannot be read") as said:
        assert measure_unit(UNIT, nangate45, 3.0, [gaussian(2, 4)], copies=2, rows=1) == first
    named = [str(warning.message) for warning in said]
    assert any(str(result) in text for text in named)
    assert any(str(library) in text for text in named)
    assert cache.sealed(library) == library


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("silicon/power.py", {"results"}),
        ("silicon/timing.py", {"results"}),
        ("silicon/simulation.py", {"results"}),
        ("silicon/engine.cpp", {"engine", "results"}),
        ("silicon/equivalence.py", {"results"}),
        ("silicon/flow.py", {"results"}),
        ("silicon/synthesis.py", {"netlists", "results"}),
        ("silicon/cells.py", {"libraries", "netlists", "results"}),
        ("silicon/liberty.py", {"libraries", "netlists", "results"}),
        ("models/record.py", {"stimuli"}),
        ("silicon/table.py", set()),
        ("rtl/vectors.py", set()),
    ],
)
def test_a_change_of_the_code_changes_the_keys_of_what_it_makes(
    own_sources: Path, source: str, changed: set[str]
) -> None:
    """Keys alone: nothing is made. What a unit is fed is in a result's key by its content, not by its source."""

    def keys() -> dict[str, str]:
        cache.fingerprint.cache_clear()
        library = cache.key(sources=pdk.SOURCES)
        netlist = cache.key(library, sources=synthesis.SOURCES)
        return {
            "libraries": library,
            "netlists": netlist,
            "engine": cache.key(sources=simulation.SOURCES),
            "results": cache.key(library, sources=flow.SOURCES),
            "stimuli": cache.key(sources=stimuli.RECORDER),
        }

    before = keys()
    with (own_sources / source).open("a") as stream:
        stream.write("\n// changed\n" if source.endswith(".cpp") else "\nCHANGED = 1\n")
    after = keys()
    assert {kind for kind in before if before[kind] != after[kind]} == changed


def test_a_changed_power_model_is_used_at_once(
    own_cache: Path, own_sources: Path, nangate45: Library
) -> None:
    """The result of the old code is not returned: a second file appears beside it."""
    for text in ("", "\nFACTOR = 2\n"):
        with (own_sources / "silicon" / "power.py").open("a") as stream:
            stream.write(text)
        cache.fingerprint.cache_clear()
        measure_unit(UNIT, nangate45, 3.0, [gaussian(2, 4)], copies=2, rows=1)
    assert len(kept(own_cache, "results")) == 2
    assert len(kept(own_cache, "netlists")) == 1
