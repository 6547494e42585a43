"""The rest of the package neither needs Triton nor notices that it is there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the operators need .[torch]")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {
        name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "SOFTERMAX_GPU")
    }
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**known, **environment}
    )


HIDDEN = "import sys; sys.modules['triton'] = None\n"


def test_the_package_imports_and_runs_without_triton() -> None:
    done = run(
        HIDDEN + "import torch, softermax.functional as f, softermax.nn\n"
        "x = torch.tensor([2.0, 1.0, 3.0], requires_grad=True)\n"
        "y = f.softermax(x); y.square().sum().backward(); print(y.tolist(), bool(x.grad.any()))\n"
        "from softermax.gpu.verification import bodies\n"
        "try: bodies()\n"
        "except ImportError as error: print(error)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[0.2890625, 0.140625, 0.5703125] True",
        "triton is not installed; it comes with: pip install '.[gpu]' in the source tree",
    ]


def test_nothing_is_interpreted_unless_it_is_asked_for() -> None:
    done = run(
        "import os, torch, softermax.functional as f\n"
        "from softermax.pytorch import operators\n"
        "f.softermax(torch.zeros(3))\n"
        "print('TRITON_INTERPRET' in os.environ, list(operators.DEVICES) == ['cpu'] or torch.version.cuda)"
    )
    interpreting, alone = done.stdout.split()
    assert interpreting == "False", done.stderr
    assert alone != "False"


def test_a_switch_with_another_value_is_refused() -> None:
    done = run("import softermax.functional", SOFTERMAX_GPU="yes")
    assert "SOFTERMAX_GPU = 'yes': must be interpret or none, or not set" in done.stderr
