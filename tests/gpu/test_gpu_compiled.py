"""The kernels compiled for GPUs that are not here, and what the command says without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need .[gpu]")
torch = pytest.importorskip("torch", reason="the kernels need .[torch]")

from softermax.cli import main
from softermax.gpu.compiled import NEVER, Compiled, Instruction, _depths, compile_kernels
from softermax.results import Envelope
from softermax.speed.gpu import estimate, left_out

RESULT = Path(__file__).parents[2] / "docs" / "results" / "gpu.json"


@pytest.mark.slow
def test_no_kernel_spills_on_the_targets_of_the_table() -> None:
    found = compile_kernels(("sm_80", "sm_90", "gfx942"))
    assert {one.target for one in found} == {"sm_80", "sm_90", "gfx942"}
    assert [one for one in found if one.spills] == []


def test_the_published_table_has_three_targets_and_no_spills() -> None:
    rows = Envelope.load(RESULT).rows
    assert {row["target"] for row in rows} == {"sm_80", "sm_90", "gfx942"}
    assert all(row["spills"] == 0 for row in rows)


def test_the_published_estimate_follows_from_the_table() -> None:
    result = Envelope.load(RESULT)
    assert estimate([Compiled(**row) for row in result.rows]) == result.notes["estimate"]


def test_rows_and_their_gradients_are_bound_by_memory_in_the_published_estimate() -> None:
    estimates = Envelope.load(RESULT).notes["estimate"]
    rows = [row for row in estimates if not row["kernel"].startswith("attention")]
    assert len(rows) == 26
    assert [row for row in rows if row["bound"] != "memory"] == []


def test_an_estimate_is_the_largest_of_its_bounds() -> None:
    def of(**kinds: float) -> dict[str, Any]:
        total = sum(kinds.values())
        (row,) = estimate([Compiled("rows", "bfloat16", 1024, "sm_80", 1, 0, 0, 1, 1, total, 0.0, kinds)])
        return row

    assert of(FADD=1)["bound"] == "memory"
    assert of(FADD=1)["ratio"] == 1
    slow = {"IADD3": "integer pipe", "FFMA": "float pipe", "MUFU": "special functions", "SHFL": "shuffles"}
    for kind, pipe in slow.items():
        assert of(**{kind: 50})["bound"] == pipe
        assert of(**{kind: 50})["ratio"] < 1
    assert of(FFMA=18, IADD3=18, LDG=18)["bound"] == "instructions"


def test_a_loop_is_what_a_branch_returns_to_and_rare_code_behind_the_end_is_not() -> None:
    """An outer loop from 1 to 5 with an inner one from 2 to 3; 7 lies behind the end, entered from 4, and returns to 5."""
    text = [
        Instruction("A", None, True), Instruction("B", None, True), Instruction("C", None, True),
        Instruction("BRA", 2, True), Instruction("BRA", 7, True), Instruction("BRA", 1, True), Instruction("EXIT", None, False),
        Instruction("D", None, True), Instruction("BRA", 5, False), Instruction("RET", None, False),
    ]  # fmt: skip
    assert _depths(text) == [0, 1, 2, 2, 1, 1, 0, 1, 1, NEVER]


def test_a_target_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="target 'sm_1': must be one of sm_80, sm_90, gfx942"):
        compile_kernels(("sm_1",))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_command_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpu"]) == 2
    said = capsys.readouterr().err
    assert "bench gpu needs a GPU that PyTorch sees" in said
    assert "sageattention" in said


def test_who_is_left_out_is_named_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert left_out() == [
        "SageAttention is not installed, and left out; it comes with: pip install sageattention==1.0.6"
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert left_out() == []


def test_options_of_the_gpu_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--compile"]) == 2
    assert "--compile: is for bench gpu, not for bench kernels" in capsys.readouterr().err
