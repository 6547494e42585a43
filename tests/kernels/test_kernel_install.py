"""With a compiler the package has its core; without one it installs all the same, and says what is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from softermax import kernels

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
def test_a_compiler_gives_the_core() -> None:
    """A core that does not compile is left out of the installation, and most of its tests skip: this one fails."""
    assert kernels.usable(), kernels.status()


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("scikit_build_core") is None, reason="scikit-build-core is not installed"
)
def test_a_broken_compiler_leaves_pytorch(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation"]
    command += ["--wheel-dir", str(tmp_path), f"--config-settings=build-dir={tmp_path / 'build'}"]
    subprocess.run(command, env=os.environ | {"CXX": "/bin/false"}, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    # Without site, so that the package under test is not found in its editable install.
    paths = [str(tmp_path / "site"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    told = subprocess.run(
        [sys.executable, "-S", "-m", "softermax.cli", "info"],
        env={k: v for k, v in os.environ.items() if k != "SOFTERMAX_ISA"}
        | {"PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "PyTorch: the native core is not installed (no working C++ compiler" in told
