"""Wheel and sdist: what is in them, and that the wheel works outside the source tree, without network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
MAX_SDIST = 4_000_000
"""Bytes. What is measured may grow; predictions of every cell are not part of a source distribution."""


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    # Nothing of this tree: neither its folder nor a path that was exported for it.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=kept | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked() -> list[PurePosixPath]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git work tree")
    return [PurePosixPath(line) for line in listed.stdout.splitlines()]


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("build", "scikit_build_core", "nanobind"):
        pytest.importorskip(module)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out]
    run(*command, ROOT, cwd=out)
    (made,) = out.glob("*.tar.gz")
    return made


def test_the_sdist_has_the_sources_and_little_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {PurePosixPath(*PurePosixPath(one.name).parts[1:]) for one in archive if one.isfile()}
    assert sdist.stat().st_size < MAX_SDIST
    for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE", "constraints.txt", "Makefile"):
        assert PurePosixPath(name) in names
    there = {path for path in tracked() if (ROOT / path).is_file()}
    sources = {path for path in there if path.parts[0] in ("src", "tests", "examples", "benchmarks")}
    assert sources - names == set(), "tracked files are missing in the sdist"
    for path in names:
        assert not (path.parts[:2] == ("docs", "results") and "accuracy" in path.parts), path
        assert path.parts[0] not in ("build", "dist", "out", "site", ".venv"), path
        assert path.suffix not in (".so", ".pyc"), path


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as an installer would."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    (source,) = out.glob("softermax-*")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=out)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; what it depends on comes from the present environment."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "venv", with_pip=False)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # Not --system-site-packages: that would be the base Python's. A path in a .pth does not run the .pth
    # files there, so the editable install of this tree is not seen.
    (site / "present.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    target = [sys.executable, "-m", "pip", "--python", folder / "venv"]
    run(*target, "install", "--no-index", "--no-deps", "--force-reinstall", wheel, cwd=folder)
    return folder


@pytest.mark.slow
def test_the_wheel_has_code_data_and_the_native_core(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    data = [
        str(path.relative_to("src"))
        for path in tracked()
        if path.parts[:2] == ("src", "softermax") and "native" not in path.parts
    ]
    assert set(data) - set(names) == set()
    for library in ("_native", "_onnxruntime"):
        found = [name for name in names if name.startswith(f"softermax/kernels/{library}.")]
        assert found, f"{library} was not built"
    assert not any(name.startswith(("tests/", "docs/")) for name in names)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_works_outside_the_source_tree(installed: Path) -> None:
    program = installed / "venv" / "bin" / "softermax"
    cache = {"SOFTERMAX_CACHE": str(installed / "cache"), "OMP_NUM_THREADS": "1"}
    where = run(
        installed / "venv" / "bin" / "python",
        "-c",
        "import softermax; print(softermax.__file__)",
        cwd=installed,
    )
    assert Path(where.strip()).is_relative_to(installed / "venv")
    info = json.loads(run(program, "info", "--json", cwd=installed))
    assert info["kernel"] is not None, info["status"]
    shown = run(program, "demo", "--out", "ladder.svg", cwd=installed)
    assert "d = 1, 1.5, 1.75" in shown
    assert (installed / "ladder.svg").is_file()
    # With the present cache: what simulations it holds are found by their content.
    verdicts = json.loads(run(program, "verify", "--rows", "1", "--json", cwd=installed))
    assert len(verdicts) >= 5
    assert [verdict["body"] for verdict in verdicts if verdict["mismatches"]] == []
    stages = ["--stage", "ladder", "--out", "report"]
    run(program, "reproduce", *stages, cwd=installed, **cache)
    assert {path.name for path in (installed / "report").iterdir()} >= {
        "report.html",
        "report.md",
        "report.json",
    }
