"""What the explorer answers is what the golden model computes."""

import numpy as np
import pytest

from softermax import reference
from softermax.explorer.compute import compute
from softermax.explorer.request import Impossible, RequestError
from softermax.explorer.state import fragment
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec, get_spec


@pytest.mark.parametrize("name", PRESETS)
def test_every_word_is_the_golden_models(name: str) -> None:
    spec = PRESETS[name]
    scores = np.random.default_rng(1).normal(0, 4, 77)
    golden = spec.run(scores, trace=True)
    answer = compute({"scores": scores.tolist(), "spec": spec.to_dict()})
    assert answer["output"] == golden.words.tolist()
    assert answer["value"] == golden.value.tolist()
    assert answer["exponent"] == golden.exponent
    assert answer["spec"] == spec.to_dict()
    assert golden.trace is not None
    for field in ("local_max", "running_max", "slice_sum", "slice_powsum", "renorm_shift", "powsum"):
        assert answer[field] == getattr(golden.trace, field).tolist()
    for field in ("unnormed", "numerator"):
        assert answer[field] == getattr(golden.trace, field).reshape(-1)[:77].tolist()
    assert answer["leading_one"] == golden.trace.leading_one
    assert answer["reciprocal"] == golden.trace.reciprocal


@pytest.mark.parametrize("name", ["paper:deferred", "paper+fold:deferred", "whole-row:deferred"])
def test_every_word_of_deferred_normalisation_is_the_golden_models(name: str) -> None:
    spec = get_spec(name)
    assert isinstance(spec, DeferredSpec)
    scores = np.random.default_rng(2).normal(0, 4, 77)
    golden = spec.run(scores, trace=True)
    answer = compute({"scores": scores.tolist(), "spec": spec.to_dict()})
    assert answer["mode"] == "deferred"
    assert answer["spec"] == spec.to_dict()
    assert answer["output"] == golden.words.tolist()
    assert answer["value"] == golden.value.tolist()
    assert answer["shift"] == golden.shift.tolist()
    assert answer["leading_one"] == golden.leading_one
    assert answer["reciprocal"] == golden.reciprocal
    assert golden.trace is not None
    for field in ("local_max", "running_max", "renorm_shift", "powsum"):
        assert answer[field] == getattr(golden.trace, field).tolist()
    assert answer["unnormed"] == golden.trace.unnormed.reshape(-1)[:77].tolist()
    assert answer["slice_sum"] == golden.trace.weight.sum(axis=-1).tolist()
    assert answer["tables"]["reciprocal"]["segments"] == spec.reciprocal_segments


def test_exact_softmax_and_errors() -> None:
    scores = [2.0, 1.0, 3.0, -4.0]
    answer = compute({"scores": scores})
    np.testing.assert_allclose(answer["softmax"], reference.softmax(scores), rtol=1e-12)
    np.testing.assert_allclose(answer["base_two"], reference.base_two(scores), rtol=1e-12)
    value, exact = np.array(answer["value"]), reference.base_two(scores)
    errors = answer["errors"]["base_two"]
    assert errors["max_abs"] == pytest.approx(np.abs(value - exact).max())
    share = value / value.sum()
    kept = share > 0
    assert errors["kl"] == pytest.approx((share * np.log2(np.where(kept, share, 1) / exact)).sum())
    assert answer["row_sum"] == value.sum()


def test_masked_elements_take_no_part() -> None:
    spec = SoftermaxSpec()
    answer = compute({"scores": [2, None, 30, None]})
    expected = spec.run([2, 0, 30, 0], mask=[True, False, True, False])
    assert answer["output"] == expected.words.tolist()
    assert answer["softmax"][1] == answer["base_two"][3] == 0
    nothing = compute({"scores": [None, None]})
    assert nothing["output"] == [0, 0]
    assert nothing["errors"]["softmax"] == {"max_abs": 0, "kl": None}


BELOW = float(np.nextafter(31.875, 0))


@pytest.mark.parametrize(
    ("rounding", "marked", "unmarked"),
    [
        # 31.75 is the largest word, 127, and -32 the smallest, -128.
        ("truncate", [32, 32.5, -32.01, -32.1, -33, 1e6], [31.75, 31.875, 31.99, -32, 0]),
        ("half-up", [31.875, 31.9, -32.126, -33, 1e6], [31.75, BELOW, -32, -32.125, 0]),
        ("half-even", [31.875, 31.9, -32.126, -33, -1e6], [31.75, BELOW, -32, -32.125, 0]),
    ],
)
def test_scores_beyond_the_input_word_are_marked(
    rounding: str, marked: list[float], unmarked: list[float]
) -> None:
    answer = compute({"scores": [*marked, *unmarked, None], "spec": {"input_rounding": rounding}})
    assert answer["saturated"] == [True] * len(marked) + [False] * (len(unmarked) + 1)
    assert all(np.isfinite(answer["softmax"]))
    assert answer["errors"]["softmax"]["kl"] > 0


def test_scores_beyond_the_widest_input_word_are_marked() -> None:
    spec = {"input": "Q(12,20)", "max": "Q(12,20)", "base": "fold"}
    answer = compute({"scores": [1e6, 2048 / 1.4427, 2048 / 1.4426, -1e6], "spec": spec})
    assert answer["saturated"] == [True, False, True, True]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"powsum": "Q(10,16)"}, "powsum"),
        ({"max": "Q(5,2)"}, "max"),
        ({"slice_width": 0}, "slice_width"),
        ({"pow2_segments": 3}, "pow2_segments"),
        ({"base": "three"}, "base"),
        ({"width": 3}, "width"),
        ({"scores": {}, "powsum": "Q(16,7)"}, "powsum"),
        ({"scores": {}, "weight": "Q(0,16)"}, "weight"),
        ({"scores": {"powsum": "Q(10,0)"}}, "scores.powsum"),
        ({"scores": {"slice_width": 0}}, "scores.slice_width"),
        ({"scores": {}, "output": "Q(1,7)"}, "output"),
    ],
)
def test_an_impossible_spec_names_its_field(spec: dict[str, object], field: str) -> None:
    with pytest.raises(Impossible, match=r"must be|at least|at most|fields are|it has their") as caught:
        compute({"scores": [1], "spec": spec})
    assert caught.value.field == field


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"scores": []},
        {"scores": "1 2 3"},
        {"scores": [True]},
        {"scores": ["1"]},
        {"scores": [[1]]},
        {"scores": [10**400]},
        {"scores": [1e7]},
        {"scores": [0] * 4097},
        {"scores": [1], "spec": "paper"},
        {"scores": [1], "spec": {"scores": "paper"}},
        {"scores": [1], "sepc": {}},
    ],
    ids=str,
)
def test_malformed_requests_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=r"must be|no such") as caught:
        compute(request_)
    assert not isinstance(caught.value, Impossible)


def test_a_link_holds_what_differs_from_the_paper() -> None:
    assert fragment(SoftermaxSpec()) == ""
    assert fragment(PRESETS["row-scaled"], [1.5, None]) == (
        "scores=1.5,x&powsum=Q(16,6)&output=Q(0,8)&output_mode=row-scaled"
    )
    assert fragment(get_spec("paper-32+fold:deferred")) == "slice_width=32&base=fold&normalisation=deferred"
    assert fragment(DeferredSpec(weight="Q(1,9)", powsum="Q(16,9)")) == (  # type: ignore[arg-type]
        "normalisation=deferred&deferred.weight=Q(1,9)&deferred.powsum=Q(16,9)"
    )


def test_a_link_keeps_all_digits_of_a_score() -> None:
    assert fragment(SoftermaxSpec(), [1.23456789, 100000.5, -2.0]) == "scores=1.23456789,100000.5,-2"
