"""What the explorer shows of a rival is what its model computes."""

import numpy as np
import pytest

from softermax.explorer.request import Impossible, RequestError
from softermax.explorer.rivals import names, rival_steps
from softermax.rivals import get_rival

SCORES = [2.0, None, 1.0, 3.5, -4.0]
KEPT = np.array([True, False, True, True, True])
ROW = np.array([2.0, 0.0, 1.0, 3.5, -4.0])


def test_every_design_answers_with_the_words_of_its_model() -> None:
    assert {"ita", "i-bert", "i-bert:deferred", "consmax", "cmsis-nn"} <= set(names())
    for name in names():
        answer = rival_steps({"scores": SCORES, "rival": name})
        np.testing.assert_array_equal(answer["value"], get_rival(name).compute(ROW, KEPT), name)
        assert answer["output"][1] == answer["value"][1] == 0 or name == "fq-vit", name


def test_exponentials_and_their_sum_stand_between() -> None:
    answer = rival_steps({"scores": SCORES, "rival": "i-bert"})
    assert answer["max"] == max(word for word, keep in zip(answer["input"], KEPT, strict=True) if keep)
    assert answer["total"] == sum(answer["exponentials"])
    assert answer["exponentials"][3] == answer["unit"] == 32767
    scaled = rival_steps({"scores": SCORES, "rival": "i-bert:row-scaled"})
    assert scaled["exponentials"] == answer["exponentials"]
    assert rival_steps({"scores": SCORES, "rival": "consmax"})["total"] is None


def test_errors_are_those_to_the_softmax() -> None:
    answer = rival_steps({"scores": SCORES, "rival": "ita"})
    exact = np.where(KEPT, np.exp(ROW - 3.5), 0.0)
    exact /= exact.sum()
    assert answer["l1"] == pytest.approx(np.abs(np.array(answer["value"]) - exact).sum())
    assert answer["errors"]["max_abs"] == pytest.approx(np.abs(np.array(answer["value"]) - exact).max())


@pytest.mark.parametrize("rival", ["nobody", 3, None, "exact:deferred"])
def test_unknown_designs_are_refused_by_name(rival: object) -> None:
    with pytest.raises(RequestError) as refused:
        rival_steps({"scores": [1.0], "rival": rival})
    assert refused.value.field == "rival"


def test_scores_that_a_design_cannot_hold_are_an_answer_that_names_it() -> None:
    with pytest.raises(Impossible, match="i-bert"):
        rival_steps({"scores": [1e6, 0.0], "rival": "i-bert"})


def test_a_row_without_an_element_has_an_answer() -> None:
    for name in names():
        assert rival_steps({"scores": [None, None], "rival": name})["row_sum"] == 0, name
