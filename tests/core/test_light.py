"""The core needs NumPy and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "onnx", "amaranth", "matplotlib", "rich", "scipy")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module", ["softermax", "softermax.golden", "softermax.reference", "softermax.tables", "softermax.verify"]
)
def test_importing_the_core_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    assert run(code).strip() == "[]"


@pytest.mark.parametrize("command", ["presets", "tables", "--help"])
def test_commands_import_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom softermax.cli import main\n"
        f"try:\n    main([{command!r}])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert run(code).splitlines()[-1] == "[]"


def test_numpy_is_the_only_requirement_without_extras() -> None:
    required = [line for line in requires("softermax") or [] if "extra ==" not in line]
    assert [re.split(r"[^\w-]", line)[0] for line in required] == ["numpy"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_works_with_numpy_alone(tmp_path: Path) -> None:
    """Build a wheel here, install it and NumPy into a fresh environment, and use it there.

    The fresh environment is given this one's NumPy by a link, so that the test needs no network.
    """
    import numpy

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, timeout=900, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("softermax-*.whl")

    home = tmp_path / "fresh"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    packages = next((home / "lib").glob("python*")) / "site-packages"
    install = [*pip, "--python", str(python), "install", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in Path(numpy.__file__).parents[1].glob("numpy*"):
        (packages / folder.name).symlink_to(folder)

    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def there(*command: str) -> str:
        result = subprocess.run(
            list(command), capture_output=True, text=True, timeout=300, cwd=tmp_path, env=plain, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    installed = there(
        str(python), "-c", "import os; print(sorted(os.listdir(__import__('site').getsitepackages()[0])))"
    )
    assert "torch" not in installed
    softermax = str(home / "bin" / "softermax")
    assert "paper-32" in there(softermax, "presets")
    assert "max error" in there(softermax, "tables")
    assert "torch: not installed" in there(softermax, "verify", "--rows", "5")
    code = "import softermax.golden, softermax.spec as s; print(s.SoftermaxSpec().compute([2., 1., 3.]).tolist())"
    assert there(str(python), "-c", code).strip() == "[0.2890625, 0.140625, 0.5703125]"
