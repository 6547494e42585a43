"""The judge's bench: how bodies register, what is counted, what is skipped, what is reported missing."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import numpy as np
import pytest

from softermax import golden, verify
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.spec import PRESETS, SoftermaxSpec
from softermax.verify import Body, Verdict

Words = tuple[IntArray, IntArray | None]


def honest(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
    out = golden.softermax(raw, spec, mask)
    return out.words, out.exponent if spec.output_mode == "row-scaled" else None


def one_word_off(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
    words, exponent = honest(spec, raw, mask)
    words = words.copy()
    words.flat[0] ^= 1
    return words, exponent


def exponents_off(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
    words, exponent = honest(spec, raw, mask)
    return words, None if exponent is None else exponent + 1


def register(monkeypatch: pytest.MonkeyPatch, **loaders: Any) -> None:
    """Make ``loaders`` the entry points of the group that verify asks for."""

    class Entry:
        def __init__(self, name: str, load: Any) -> None:
            self.name, self.load = name, load

    def entry_points(*, group: str) -> list[Entry]:
        assert group == "softermax.bodies"
        return [Entry(name, load) for name, load in loaders.items()]

    monkeypatch.setattr(verify, "entry_points", entry_points)


def absent() -> Any:
    raise ImportError("torch is not installed; it comes with: pip install 'softermax[torch]'")


def test_the_installed_package_registers_bodies() -> None:
    names = {entry.name for entry in importlib.metadata.entry_points(group="softermax.bodies")}
    assert "torch" in names
    bodies, missing = verify.find_bodies()
    assert all(isinstance(body, Body) for body in bodies)
    assert set(missing) <= names


def test_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body registers by an entry point alone; one that cannot be imported is reported with the reason."""
    register(
        monkeypatch,
        b=lambda: lambda: [Body("b1", honest), Body("b2", honest)],
        a=lambda: lambda: [Body("a", honest)],
        gone=absent,
        late=lambda: absent,
    )
    bodies, missing = verify.find_bodies()
    assert [body.name for body in bodies] == ["a", "b1", "b2"]
    assert set(missing) == {"gone", "late"}
    assert "softermax[torch]" in missing["gone"]


def test_errors_other_than_imports_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("a bug in the body")

    register(monkeypatch, broken=lambda: broken)
    with pytest.raises(RuntimeError, match="a bug in the body"):
        verify.find_bodies()


def test_an_honest_body_has_no_mismatch() -> None:
    verdict = verify.check(Body("honest", honest), PRESETS, rows=3)
    assert (verdict.body, verdict.mismatches, verdict.note) == ("honest", 0, "")
    assert verdict.cases == sum(len(list(verify.cases(spec, 3))) for spec in PRESETS.values())
    assert verdict.elements_per_second > 0


def test_every_word_that_differs_is_counted() -> None:
    verdict = verify.check(Body("off", one_word_off), {"paper": PRESETS["paper"]}, rows=3)
    assert verdict.mismatches == verdict.cases > 20


def test_wrong_exponents_are_counted() -> None:
    """One for each row that has an element; what stands beside an empty row is nobody's concern."""
    specs = {"row-scaled": PRESETS["row-scaled"]}
    live = sum(int(case.mask.any(axis=1).sum()) for case in verify.cases(PRESETS["row-scaled"], 3))
    assert verify.check(Body("off", exponents_off), specs, rows=3).mismatches == live


def test_missing_exponents_are_an_error() -> None:
    body = Body("bare", lambda spec, raw, mask: (honest(spec, raw, mask)[0], None))
    with pytest.raises(ValueError, match="bare: a row-scaled output needs its exponents"):
        verify.check(body, {"row-scaled": PRESETS["row-scaled"]}, rows=1)


def test_words_of_the_wrong_shape_are_an_error() -> None:
    body = Body("flat", lambda spec, raw, mask: (honest(spec, raw, mask)[0].ravel(), None))
    with pytest.raises(ValueError, match=r"flat: words of shape \(\d+,\), expected \(\d+, \d+\)"):
        verify.check(body, {"paper": PRESETS["paper"]}, rows=1)


def test_specs_that_a_body_does_not_support_are_skipped() -> None:
    seen: list[SoftermaxSpec] = []

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
        seen.append(spec)
        return honest(spec, raw, mask)

    body = Body("some", run, supports=lambda spec: spec.output_mode == "fixed" and spec.slice_width == 16)
    verdict = verify.check(body, PRESETS, rows=1)
    assert verdict.mismatches == 0
    assert verdict.note == "covers paper"
    assert set(seen) == {PRESETS["paper"]}


def test_a_body_that_supports_nothing_ran_nothing() -> None:
    verdict = verify.check(Body("none", honest, supports=lambda spec: False), PRESETS, rows=1)
    assert (verdict.cases, verdict.mismatches) == (0, 0)


def test_a_slow_body_gets_its_share_of_the_random_rows() -> None:
    rows: list[int] = []

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
        rows.append(len(raw))
        return honest(spec, raw, mask)

    verify.check(Body("slow", run, share=0.01), {"paper": PRESETS["paper"]}, rows=300)
    assert rows[-6:] == [3] * 6


@pytest.mark.parametrize("spec", PRESETS.values(), ids=PRESETS)
def test_the_cases_are_exhaustive_adversarial_and_random(spec: SoftermaxSpec) -> None:
    made = list(verify.cases(spec, 5))
    for case in made:
        assert case.raw.shape == case.mask.shape
        assert case.raw.min() >= spec.input.low
        assert case.raw.max() <= spec.input.high
    by_name = {case.name: case for case in made}
    assert len(np.unique(by_name["all pairs"].raw, axis=0)) == 256 * 256
    assert len(np.unique(by_name["all single scores"].raw)) == 256
    assert any(not case.mask.any(axis=1).all() for case in made)
    saturating = golden.softermax(by_name["PowSum saturates"].raw[:1], spec, trace=True).trace
    assert saturating is not None
    if spec.powsum.integer <= 10:
        assert saturating.powsum[0, -1] == spec.powsum.high
    again = list(verify.cases(spec, 5))
    assert all(np.array_equal(a.raw, b.raw) for a, b in zip(made, again, strict=True))


def test_verify_runs_all_and_reports_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, good=lambda: lambda: [Body("good", honest)], gone=absent)
    verdicts, missing = verify.verify(rows=2)
    assert [verdict.body for verdict in verdicts] == ["good"]
    assert isinstance(verdicts[0], Verdict)
    assert list(missing) == ["gone"]
