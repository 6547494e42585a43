"""What holds for every design, and how far each is from the softmax."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from softermax.rivals import Rival, all_designs, get_attention, get_rival, options_of, rivals
from softermax.rivals.accuracy import GAUSSIAN, gaussian, l1, mass, measure_design
from softermax.rivals.designs.consmax import ConSmax
from softermax.rivals.designs.e2softmax import E2Softmax
from softermax.rivals.designs.exact import softmax
from softermax.spec import PRESETS, get_spec

DESIGNS = {design.name: design for design in all_designs()}
everyone = pytest.mark.parametrize("name", DESIGNS)


def fixed(design: Rival) -> Rival:
    """With constants that do not depend on the scores at hand."""
    return design.calibrated(np.linspace(-6.0, 6.0, 64)[None])


@everyone
def test_states_where_it_comes_from_and_what_it_needs(name: str) -> None:
    about = DESIGNS[name].about
    assert about.title
    assert about.sources
    assert about.confidence
    assert DESIGNS[name].gives
    assert about.takes
    assert about.kind in ("reference", "ours", "rival")


@everyone
@pytest.mark.parametrize("length", [1, 3, 16, 37])
def test_takes_rows_of_any_length_and_shape(name: str, length: int) -> None:
    scores = np.random.default_rng(length).normal(0, 2, (2, 3, length))
    found = DESIGNS[name].compute(scores)
    assert found.shape == scores.shape
    assert found.dtype == np.float64
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    if length == 1 and not isinstance(DESIGNS[name], ConSmax):
        assert np.abs(found - 1).max() < 0.25


@everyone
def test_masked_elements_at_the_end_change_nothing_and_give_0(name: str) -> None:
    design = fixed(DESIGNS[name])
    scores = np.random.default_rng(1).normal(0, 2, (4, 40))
    scores[:, 29:] = 1e9
    mask = np.arange(40) < 29
    found, shorter = design.compute(scores, mask), design.compute(scores[:, :29])
    # The references add up floats, whose last bit depends on the order.
    rtol = 1e-14 if design.about.kind == "reference" else 0
    assert np.allclose(found[:, :29], shorter, rtol=rtol, atol=0)
    assert (found[:, 29:] == 0).all()


@everyone
def test_masked_elements_may_be_nan_and_a_row_without_elements_is_0(name: str) -> None:
    scores = np.array([[1.0, np.nan, 2.0], [np.nan, np.inf, 0.0]])
    mask = np.array([[True, False, True], [False, False, False]])
    found = DESIGNS[name].compute(scores, mask)
    assert (found[0, [0, 2]] > 0).all()
    assert found[0, 1] == 0
    assert (found[1] == 0).all()


@everyone
def test_refuses_scores_that_are_not_finite(name: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        DESIGNS[name].compute([1.0, np.nan])


@everyone
def test_equal_scores_get_equal_probabilities_and_order_is_kept(name: str) -> None:
    scores = np.array([[0.5, -3.0, 0.5, 2.0, -3.0, 2.0]])
    found = DESIGNS[name].compute(scores)[0]
    assert found[0] == found[2]
    assert found[1] == found[4]
    assert found[3] == found[5]
    assert found[3] >= found[0] >= found[1]


@pytest.mark.parametrize("name", [n for n, d in DESIGNS.items() if d.about.kind != "ours"])
def test_pytorch_gives_the_same_bits(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    for length in (1, 20, 130):
        scores = rng.normal(0, 3, (3, 2, length))
        mask = rng.random((3, 1, length)) < 0.8
        keep = np.broadcast_to(mask, scores.shape)
        x = np.where(keep, scores, 0.0)
        design = DESIGNS[name].calibrated(x, keep)
        theirs = DESIGNS[name].calibrated(torch.from_numpy(x), torch.from_numpy(keep.copy()))
        if name == "consmax":  # its constant is a mean, whose last bit depends on the order
            theirs = design
        assert theirs == design
        raw = design.quantize(x)
        tensor = design.quantize(torch.from_numpy(x))
        assert np.array_equal(tensor.numpy(), raw)
        got = design.words(tensor, torch.from_numpy(mask)).numpy()
        want = design.words(raw, mask)
        if want.dtype.kind == "f":
            assert np.allclose(got, want, rtol=1e-14, atol=0)
        else:
            assert np.array_equal(got, want)
            assert np.array_equal(
                design.probabilities(tensor, torch.from_numpy(mask)).numpy(), design.probabilities(raw, mask)
            )


def test_presets_come_from_the_registry_folded() -> None:
    for preset in PRESETS:
        for name in (f"{preset}+fold", f"{preset}+fold:deferred"):
            scores = np.random.default_rng(3).normal(0, 2, (2, 20))
            assert np.array_equal(DESIGNS[name].compute(scores), get_spec(name).compute(scores))


NEAR = {
    "int8-scores": "0.009/1 0.022/1 0.017/1 0.009/1",
    "i-bert": "0.247/0.75 0.136/0.90 0.293/0.71 0.965/0.04",
    "i-vit-8": "0.446/0.55 0.139/0.87 0.440/0.56 0.994/0.01",
    "i-vit-16": "0.031/0.99 0.042/1 0.071/0.99 0.056/0.95",
    "ita": "0.325/0.76 0.169/0.93 0.365/0.73 0.954/0.05",
    "e2softmax": "0.312/0.79 0.395/0.92 0.386/0.71 0.963/0.04",
    "fq-vit": "0.190/1.07 0.242/1.03 0.189/1.05 0.193/1.08",
    "index-softmax": "0.150/0.99 0.096/0.99 0.234/0.91 0.890/0.25",
    "exaq-2": "0.284/1 0.377/1 0.456/1 0.342/1",
    "exaq-3": "0.136/1 0.179/1 0.249/1 0.186/1",
    "pseudo-softmax": "0.172/1 0.133/1 0.167/1 0.174/1.01",
    "brainchip": "0.241/1.13 0.221/1.04 0.222/0.98 0.243/1.19",
    "cmsis-nn": "0.132/0.99 0.066/0.98 0.210/0.90 0.887/0.25",
    "softex": "0.004/1 0.007/1 0.007/1 0.005/1",
    "tr-softmax": "0.252/0.81 0.166/0.95 0.342/0.75 0.943/0.07",
}
"""L1 and mass of the rows in `GAUSSIAN`, from an earlier, separate reading of the same sources, with rows of its own."""


@pytest.mark.parametrize("column", GAUSSIAN)
@pytest.mark.parametrize("name", NEAR)
def test_errors_are_near_those_of_an_earlier_reading(name: str, column: str) -> None:
    error, kept = map(float, NEAR[name].split()[list(GAUSSIAN).index(column)].split("/"))
    scores = gaussian(*GAUSSIAN[column], rows=50 if column == "2048" else 200)
    exact = softmax(scores, np.ones_like(scores, dtype=bool))
    design = DESIGNS[name]
    tried = [design.calibrated(scores)]
    if name == "e2softmax":  # that reading had this scale for all rows, and clipped
        tried = [dataclasses.replace(design, scale=1 / 16)]
    elif name.startswith(("i-bert", "i-vit", "fq-vit", "index")):
        # ln 2, 1 or 6.6 is a small number of steps, rounded: the error jumps with the largest score drawn.
        tried = [
            dataclasses.replace(tried[0], scale=tried[0].step * change)
            for change in np.linspace(0.8, 1.2, 17)
        ]
    found = [one.probabilities(one.quantize(scores)) for one in tried]
    errors, masses = [l1(p, exact) for p in found], [mass(p) for p in found]
    assert min(errors) * 0.93 - 0.003 < error < max(errors) * 1.07 + 0.003, errors
    assert min(masses) - 0.055 < kept < max(masses) + 0.055, masses


def test_a_row_of_the_table_has_the_keys_that_others_read() -> None:
    recorded = gaussian(30, 2.0, rows=6).reshape(2, 1, 3, 30)
    row = measure_design(DESIGNS["ita"], recorded)
    assert {"name", "kind", "l1_128", "l1_384", "mass_2048", "mass_8192", "kl_recorded", "needs"} <= set(row)
    assert row["name"] == "ita"
    assert row["kind"] == "rival"


def test_our_options_keep_the_mass_that_fixed_words_lose() -> None:
    scores = gaussian(2048, 1.0, rows=20)
    for design in rivals().values():
        for option in options_of(design):
            assert mass(option.compute(scores)) == pytest.approx(1.0, abs=0.02), option.name
    assert mass(get_rival("i-bert").compute(scores)) < 0.1
    assert [entry.name for entry in options_of(get_rival("i-bert"))] == [
        "i-bert:row-scaled",
        "i-bert:deferred",
    ]
    assert options_of(get_rival("fq-vit")) == []


def test_a_row_scaled_word_fills_its_bits() -> None:
    design = fixed(get_rival("cmsis-nn:row-scaled"))
    for length in (1, 100, 3000):
        words = design.words(design.quantize(gaussian(length, 1.0, rows=5)))
        assert (words.max(-1) >= 127).all()


def test_sole_scales_by_powers_of_two_only() -> None:
    with pytest.raises(ValueError, match="power of two"):
        E2Softmax(scale=0.1).words(np.zeros((1, 4), dtype=np.int64))
    wide, narrow = gaussian(384, 3.0, rows=4), gaussian(384, 1.0, rows=4)
    assert E2Softmax().calibrated(wide).scale == 1 / 8
    assert E2Softmax().calibrated(narrow).scale == 1 / 16


def test_consmax_multiplies_two_nibbles_and_depends_on_no_other_element() -> None:
    design = dataclasses.replace(ConSmax(), scale=1 / 16, beta=1.0, gamma=10.0)
    raw = np.arange(-128, 128)
    found = design.probabilities(raw)
    exact = np.exp(raw / 16 - 1) / 10
    # From 1 on it saturates.
    assert np.abs(found / np.minimum(exact, 1) - 1).max() < 0.013
    assert (found[exact > 1.013] == 1).all()
    assert np.array_equal(design.probabilities(raw[5:9]), found[5:9])


@pytest.mark.parametrize("beta", [0.0, 60.0, 110.0])
def test_consmaxs_tables_hold_scores_in_the_nineties(beta: float) -> None:
    design = dataclasses.replace(ConSmax(), scale=1.0, beta=beta, gamma=1.0)
    raw = np.arange(-128, 128)
    exact = np.exp(np.minimum(raw - beta, 0.0))
    with np.errstate(over="raise", invalid="raise"):
        found = design.probabilities(raw)
    assert (found[exact == 1] == 1).all()
    assert np.abs(found / exact - 1)[exact > 1e-30].max() < 0.013


def test_consmaxs_constant_is_nearer_to_the_softmax_than_zeros_or_a_mean_of_sums() -> None:
    # Sums of rows lie many orders of magnitude apart, as in a model's first layers.
    scores = gaussian(64, 1.0, rows=40) + np.linspace(-15, 15, 40)[:, None]
    exact = get_rival("exact").compute(scores)
    fitted = ConSmax().calibrated(scores)
    mean = dataclasses.replace(fitted, beta=0.0, gamma=float(np.exp(scores).sum(-1).mean()))
    errors = [l1(one.probabilities(one.quantize(scores)), exact) for one in (fitted, mean)]
    assert errors[0] < 1 < errors[1]
    alike = gaussian(64, 1.0, rows=40)
    assert l1(ConSmax().compute(alike), get_rival("exact").compute(alike)) < 0.15
    nobody = ConSmax().calibrated(scores, np.zeros(scores.shape, dtype=bool))
    assert nobody.logarithm == 0


def test_consmax_has_constants_of_its_own_for_every_head() -> None:
    heads = gaussian(64, 1.0, rows=40).reshape(1, 2, 20, 64) + np.array([0.0, 9.0])[:, None, None]
    row = measure_design(get_rival("consmax"), heads)
    assert row["l1_recorded"] < 0.15
    together = measure_design(get_rival("consmax"), heads.reshape(1, 1, 40, 64))
    assert together["l1_recorded"] > 3 * row["l1_recorded"]


def test_a_design_without_a_scale_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"i-bert: has no scale; give scale=... or take calibrated"):
        get_rival("i-bert").words(np.zeros((1, 3), dtype=np.int64))


def test_unknown_names_are_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="unknown rival 'rival:itta': must be one of exact"):
        get_rival("rival:itta")
    with pytest.raises(ValueError, match="options of fq-vit are: none"):
        get_rival("fq-vit:deferred")
    assert get_attention("rival:ita") is get_rival("ita")
    assert get_attention("paper+fold") == get_spec("paper+fold")


def test_gaussian_rows_are_the_same_for_everyone() -> None:
    length, deviation = GAUSSIAN["384"]
    scores = gaussian(length, deviation)
    exact = softmax(scores, np.ones_like(scores, dtype=bool))
    assert np.array_equal(scores, gaussian(length, deviation))
    assert l1(exact, exact) == 0
    assert mass(exact) == pytest.approx(1)
