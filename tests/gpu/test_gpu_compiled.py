"""The kernels compiled for GPUs that are not here, and what the command says without one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need .[gpu]")
torch = pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax.cli import main
from softermax.gpu.compiled import Compiled, compile_kernels
from softermax.results import Envelope
from softermax.speed.gpu import estimate

RESULT = Path(__file__).parents[2] / "docs" / "results" / "gpu.json"


@pytest.mark.slow
def test_no_kernel_spills_on_the_targets_of_the_table() -> None:
    found = compile_kernels(("sm_80", "sm_90"))
    assert {one.target for one in found} == {"sm_80", "sm_90"}
    assert [one for one in found if one.spills] == []


def test_the_published_table_has_both_targets_and_no_spills() -> None:
    rows = Envelope.load(RESULT).rows
    assert {"sm_80", "sm_90"} <= {row["target"] for row in rows}
    assert all(row["spills"] == 0 for row in rows)


def test_the_published_estimate_follows_from_the_table() -> None:
    result = Envelope.load(RESULT)
    assert estimate([Compiled(**row) for row in result.rows]) == result.notes["estimate"]


def test_an_estimate_is_the_largest_of_its_bounds() -> None:
    slow = Compiled("rows", "bfloat16", 1024, "sm_80", 1, 0, 0, 1, 1000, 1000.0, {"IADD3": 1000})
    fast = Compiled("rows", "bfloat16", 1024, "sm_80", 1, 0, 0, 1, 1, 1.0, {"FADD": 1})
    (by_pipe,), (by_memory,) = estimate([slow]), estimate([fast])
    assert (by_pipe["bound"], by_memory["bound"]) == ("integer pipe", "memory")
    assert by_pipe["ratio"] < 1 == by_memory["ratio"]


def test_a_target_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="target 'sm_1': must be one of sm_80, sm_90, gfx942"):
        compile_kernels(("sm_1",))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpu"]) == 2
    assert "bench gpu needs a GPU that PyTorch sees" in capsys.readouterr().err


def test_options_of_the_gpu_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--compile"]) == 2
    assert "--compile: is for bench gpu, not for bench kernels" in capsys.readouterr().err
