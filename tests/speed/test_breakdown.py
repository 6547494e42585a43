"""The breakdown's parts are there, and bad input is refused; nothing is said about times."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from softermax.cli import main
from softermax.speed.breakdown import PARTS, time_layers


def test_every_combination_is_measured_with_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["breakdown", "--sequence", "8", "--repeats", "1", "--json", "-q"]) == 0
    rows = json.loads(capsys.readouterr().out)
    kinds = {(row["precision"], row["softmax"]) for row in rows}
    if rows[0]["device"] == "cpu":
        assert kinds == {(p, s) for p in ("fp32", "int8") for s in ("torch", "native")}
    for row in rows:
        assert tuple(row["milliseconds"]) == PARTS
        assert all(value > 0 for value in row["milliseconds"].values())
        assert 0 < row["softmax_share"] < 1
        assert row["threads"] >= 1


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="precision 'fp8': must be one of fp32, int8"):
        time_layers([8], ["fp8"])
    with pytest.raises(ValueError, match=r"sequences \[0\] and repeats 1: must be 1 or more"):
        time_layers([0], repeats=1)


def test_the_processors_time_is_counted_on_request() -> None:
    import torch

    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="a GPU's work takes no time of the processor"):
            time_layers([8], ["fp32"], ["torch"], 1, processor_time=True)
        return
    elapsed, processor = (
        time_layers([8], ["fp32"], ["torch"], 1, processor_time=wanted)[0] for wanted in (False, True)
    )
    assert (elapsed.clock, processor.clock) == ("elapsed", "processor")


def test_a_number_of_threads_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["breakdown", "--threads", "0"]) != 0
    assert "--threads 0: must be 1 or more" in capsys.readouterr().err
