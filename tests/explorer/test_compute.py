"""What the explorer answers is what the golden model computes."""

import numpy as np
import pytest

from softermax import reference
from softermax.explorer.compute import Impossible, RequestError, compute
from softermax.explorer.state import fragment
from softermax.spec import PRESETS, SoftermaxSpec


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


def test_scores_beyond_the_input_word_are_marked() -> None:
    answer = compute({"scores": [31.75, 31.9, -32.1, -33, 1e6]})
    assert answer["saturated"] == [False, True, False, True, True]
    assert all(np.isfinite(answer["softmax"]))
    assert answer["errors"]["softmax"]["kl"] > 0


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"powsum": "Q(10,16)"}, "powsum"),
        ({"max": "Q(5,2)"}, "max"),
        ({"slice_width": 0}, "slice_width"),
        ({"pow2_segments": 3}, "pow2_segments"),
        ({"base": "three"}, "base"),
        ({"width": 3}, "width"),
    ],
)
def test_an_impossible_spec_names_its_field(spec: dict[str, object], field: str) -> None:
    with pytest.raises(Impossible, match=r"must be|at least|at most|fields are") as caught:
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
        {"scores": [1], "sepc": {}},
    ],
    ids=str,
)
def test_malformed_requests_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=r"allowed|must be|no such") as caught:
        compute(request_)
    assert not isinstance(caught.value, Impossible)


def test_a_link_holds_what_differs_from_the_paper() -> None:
    assert fragment(SoftermaxSpec()) == ""
    assert fragment(PRESETS["row-scaled"], [1.5, None]) == (
        "scores=1.5,x&powsum=Q(16,6)&output=Q(0,8)&output_mode=row-scaled"
    )
