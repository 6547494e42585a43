"""The judge's bench: how bodies register, what is counted, what is skipped, what is reported missing."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import numpy as np
import pytest

from softermax import golden, verify
from softermax.cli import main
from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.golden.attention import attention
from softermax.spec import PRESETS, SPECS, AnySpec, DeferredSpec, SoftermaxSpec
from softermax.verify import AttentionCase, Body, FloatArray, Verdict

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


def honest_scores(spec: AnySpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
    return spec.compute(scores, mask).astype(scores.dtype)


def honest_marks(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> BoolArray:
    return golden.saturates(scores, spec, mask)


def honest_attention(spec: AnySpec, case: AttentionCase) -> Any:
    return attention(case.q, case.k, case.v, spec, case.scale, case.value_scale, case.mask, case.causal).value


def adding_half(x: FloatArray, spec: SoftermaxSpec) -> FloatArray:
    """A1 with one half added in the scores' own precision, as the kernels once did; the others are right."""
    scaled = np.clip(x, -128, 128) * x.dtype.type(spec.input_scale)
    half = x.dtype.type(0.5 if spec.input_rounding == "half-up" else 0)
    return np.rint(scaled) if spec.input_rounding == "half-even" else np.floor(scaled + half)


HALF_UP = PRESETS["paper"].replace(input_rounding="half-up")


def everything(name: str = "honest", **changes: Any) -> Body:
    hooks: dict[str, Any] = {"run_scores": honest_scores, "attend": honest_attention, "marks": honest_marks}
    return Body(name, honest, **(hooks | changes))


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
    raise ImportError("torch is not installed; it comes with: pip install '.[torch]'")


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
    assert ".[torch]" in missing["gone"]


def test_errors_other_than_imports_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("a bug in the body")

    register(monkeypatch, broken=lambda: broken)
    with pytest.raises(RuntimeError, match="a bug in the body"):
        verify.find_bodies()


def test_an_honest_body_has_no_mismatch() -> None:
    verdict = verify.check(Body("honest", honest), PRESETS, rows=3)
    assert (verdict.body, verdict.mismatches, verdict.note, verdict.first) == ("honest", 0, "", "")
    assert verdict.cases == sum(len(list(verify.cases(spec, 3))) for spec in PRESETS.values())
    assert verdict.words == sum(case.raw.size for spec in PRESETS.values() for case in verify.cases(spec, 3))
    assert (verdict.scores, verdict.attention, verdict.marks) == (0, 0, 0)
    assert verdict.elements_per_second > 0


def test_an_honest_body_has_no_mismatch_in_anything_that_it_computes() -> None:
    body = everything(floats=("float16", "float32", "float64"), drawn=True)
    verdict = verify.check(body, SPECS, rows=2, drawn=verify.draw_specs(6))
    assert (verdict.mismatches, verdict.first) == (0, "")
    assert min(verdict.words, verdict.scores, verdict.attention, verdict.marks) > 1000
    assert verdict.specs == len(PRESETS) + sum(
        isinstance(spec, SoftermaxSpec) for spec in verify.draw_specs(6).values()
    )


def test_deferred_specs_are_for_bodies_that_take_them() -> None:
    body = Body("deferred", None, lambda spec: isinstance(spec, DeferredSpec), run_scores=honest_scores)
    verdict = verify.check(body, SPECS, rows=2)
    assert (verdict.specs, verdict.mismatches, verdict.words, verdict.note) == (len(PRESETS), 0, 0, "")

    def weights(spec: DeferredSpec, raw: IntArray, mask: BoolArray) -> Words:
        out = golden.deferred(raw, spec, mask)
        return out.words, out.leading_one - spec.powsum.fraction + wrong

    paper = {"paper:deferred": SPECS["paper:deferred"]}
    for wrong in (0, 1):
        body = Body("weights", weights, lambda spec: isinstance(spec, DeferredSpec))
        assert (verify.check(body, paper, rows=2).mismatches > 0) is bool(wrong)


def test_adding_one_half_to_scores_is_found() -> None:
    """The kernels' fault: a hair below a tie came out as the next word."""

    def run(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> FloatArray:
        raw = np.clip(adding_half(np.where(mask, scores, scores.dtype.type(0)), spec), -128, 127)
        return golden.softermax(raw.astype(np.int64), spec, mask).value.astype(scores.dtype)

    verdict = verify.check(everything(run_scores=run), {"paper": PRESETS["paper"]}, rows=1)
    assert 0 < verdict.mismatches < 100
    assert verdict.first.startswith("scores of paper, ties, one per row, float32, half-up: ")
    others = everything(run_scores=run, supports=lambda spec: spec.input_rounding != "half-up")
    assert verify.check(others, {"paper": PRESETS["paper"]}, rows=1).mismatches == 0


def test_a_wrong_rounding_inside_attention_is_found() -> None:
    def attend(spec: SoftermaxSpec, case: AttentionCase) -> Any:
        other = spec.replace(input_rounding="truncate") if case.name == planted else spec
        return honest_attention(other, case)

    for planted in [case.name for case in verify.attention_cases(HALF_UP)]:
        verdict = verify.check(everything(attend=attend), {"half-up": HALF_UP}, rows=1, pairs=0.01)
        if planted in ("saturated", "equal scores"):
            continue  # where no rounding matters
        assert verdict.mismatches > 0, planted
        assert verdict.first.startswith(f"attention of half-up, {planted}")


def test_an_attention_off_by_one_unit_in_the_last_place_is_found() -> None:
    def attend(spec: AnySpec, case: AttentionCase) -> Any:
        value = honest_attention(spec, case)
        value.flat[5] = np.nextafter(value.flat[5], np.float32(9))
        return value

    body = Body("off", None, lambda spec: True, attend=attend)
    for name in ("paper", "paper:deferred"):
        verdict = verify.check(body, {name: SPECS[name]}, rows=1)
        # Each case with the spec's own rounding, and those with ties with the two others.
        names = [case.name for case in verify.attention_cases(SPECS[name])]
        assert verdict.mismatches == verdict.cases == len(names) + 2 * sum("ties" in name for name in names)


@pytest.mark.parametrize("rounding", ["truncate", "half-up", "half-even"])
def test_a_wrong_mark_is_found(rounding: Any) -> None:
    """Marks by the distance to the word, as if half a unit beyond it always saturated."""

    def marks(spec: SoftermaxSpec, scores: FloatArray, mask: BoolArray) -> BoolArray:
        scaled = np.where(mask, scores, scores.dtype.type(0)).astype(np.float64) * spec.input_scale
        return np.asarray((scaled < spec.input.low - 0.5) | (scaled > spec.input.high + 0.5))

    spec = PRESETS["paper"].replace(input_rounding=rounding)
    verdict = verify.check(Body("marks", marks=marks), {"mine": spec}, rows=1)
    assert 0 < verdict.mismatches < verdict.marks
    assert verdict.first.startswith("marks of mine, ties")


def test_probabilities_of_another_type_are_an_error() -> None:
    body = Body("wide", run_scores=lambda spec, scores, mask: spec.compute(scores, mask))
    with pytest.raises(ValueError, match=r"wide: scores of shape .* and type float64, expected .* float32"):
        verify.check(body, {"paper": PRESETS["paper"]}, rows=1)


def test_an_error_in_a_body_says_where_it_was() -> None:
    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
        raise IndexError("index 4 is out of bounds")

    with pytest.raises(IndexError) as caught:
        verify.check(Body("broken", run), {"paper": PRESETS["paper"]}, rows=1)
    assert caught.value.__notes__ == ["broken: words of paper, all pairs"]


def test_drawn_specs_are_of_both_kinds_and_the_same_for_a_seed() -> None:
    made = verify.draw_specs(24, seed=5)
    assert made == verify.draw_specs(24, seed=5)
    assert list(made.values()) != list(verify.draw_specs(24, seed=6).values())
    rows = [spec for spec in made.values() if isinstance(spec, SoftermaxSpec)]
    deferred = [spec for spec in made.values() if isinstance(spec, DeferredSpec)]
    assert len(rows) == len(deferred) == 12
    for scores in (rows, [spec.scores for spec in deferred]):
        assert sum(spec.input == PRESETS["paper"].input for spec in scores) >= 6


def test_drawn_specs_are_only_for_bodies_that_ask_for_them() -> None:
    drawn = verify.draw_specs(8)
    assert verify.check(Body("built", honest), {}, 1, drawn=drawn).specs == 0
    assert verify.check(Body("quick", honest, drawn=True), {}, 1, drawn=drawn).specs == 4


@pytest.mark.parametrize("name", ["paper", "paper:deferred"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_score_cases_hold_what_they_say(name: str, dtype: str) -> None:
    made = {case.name: case for case in verify.score_cases(SPECS[name], 3, dtype)}
    ties = made["ties, one per row"].scores
    assert ties.dtype == dtype
    for score in (0.125, 31.875, -32.125, 31.75, -32.0):
        for near in (
            score,
            np.nextafter(ties.dtype.type(score), 0),
            np.nextafter(ties.dtype.type(score), 99),
        ):
            assert near in ties[:, 0]
    subnormal = made["subnormal"].scores
    assert ((subnormal != 0) & (abs(subnormal) < np.finfo(dtype).tiny)).any()
    assert np.isfinite(made["huge"].scores).all()
    assert abs(made["huge"].scores).max() == np.finfo(dtype).max
    assert np.isnan(made["masked"].scores[~made["masked"].mask]).any()
    assert not made["masked"].mask[0].any()


def test_attention_cases_reach_ties_and_both_ends() -> None:
    made = {case.name: case for case in verify.attention_cases(HALF_UP)}
    for name, half in (("ties", 0.5), ("just below ties", np.nextafter(np.float32(0.5), np.float32(0)))):
        assert np.float32(made[name].scale * HALF_UP.input_scale) == half
    case = made["saturated"]
    scores = np.einsum("bhid,bhjd->bhij", *(x.astype(np.int64)[:, :2] for x in (case.q, case.k)))
    words = golden.attention.requantize(scores, case.scale, HALF_UP)
    assert {int(words.min()), int(words.max())} == {-128, 127}
    assert made["masked"].mask is not None
    assert not made["masked"].mask.any(axis=-1).all()


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
    with pytest.raises(ValueError, match=r"flat: words of shape \(\d+,\) .* expected \(\d+, \d+\)"):
        verify.check(body, {"paper": PRESETS["paper"]}, rows=1)


def test_specs_that_a_body_does_not_support_are_skipped() -> None:
    seen: list[SoftermaxSpec] = []

    def run(spec: SoftermaxSpec, raw: IntArray, mask: BoolArray) -> Words:
        seen.append(spec)
        return honest(spec, raw, mask)

    body = Body("some", run, supports=lambda spec: spec.output_mode == "fixed" and spec.slice_width == 16)
    verdict = verify.check(body, PRESETS, rows=1)
    assert verdict.mismatches == 0
    assert verdict.note == "covers paper, lean"
    assert set(seen) == {PRESETS["paper"], PRESETS["lean"]}


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


def test_verify_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Body("some", honest, supports=lambda spec: spec == PRESETS["paper"])
    register(monkeypatch, good=lambda: lambda: [Body("good", honest, drawn=True), some])
    told: list[tuple[int, int, str]] = []
    verdicts, _ = verify.verify(rows=1, drawn=4, progress=lambda *step: told.append(step))
    good = len(PRESETS) + 2  # half of those drawn are rows
    assert [step[0] for step in told] == list(range(good + 2))
    assert {step[1] for step in told} == {good + 1}
    assert told[0][2] == "good: paper"
    assert told[good][2] == "some: paper"
    assert [verdict.specs for verdict in verdicts] == [good, 1]


def test_a_slow_body_gets_its_share_of_all_pairs_unless_all_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, slow=lambda: lambda: [Body("slow", honest, share=0.25)])
    paper = {"paper": PRESETS["paper"]}
    (some,), (everyone,) = (verify.verify(1, 0, 0, paper, exhaustive)[0] for exhaustive in (False, True))
    assert everyone.words - some.words == 2 * 256 * 256 * 3 // 4
    pairs = [next(verify.cases(PRESETS["paper"], 1, seed, pairs=0.5)).raw for seed in (0, 1)]
    assert [len(np.unique(raw, axis=0)) for raw in pairs] == [256 * 256 // 2] * 2
    assert not np.array_equal(*pairs)


def test_bodies_are_chosen_by_parts_of_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = [Body(name, honest) for name in ("RTL top", "RTL units", "torch")]
    register(monkeypatch, all=lambda: lambda: bodies)
    command = ["verify", "--spec", "paper", "--rows", "1", "--json", "--quiet", "--bodies"]
    assert main([*command, "rtl t", "Torch"]) == 0
    assert [verdict["body"] for verdict in json.loads(capsys.readouterr().out)] == ["RTL top", "torch"]
    assert main([*command, "rtl", "cuda"]) == 2
    assert capsys.readouterr().err == (
        "softermax verify: no installed body is called 'cuda'; there are RTL top, RTL units, torch\n"
    )
