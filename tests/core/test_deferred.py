"""Deferred normalisation (A8) and attention in both modes: golden against the oracle's plain integers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from drawn import draw_deferred, draw_rows, draw_spec
from numpy.typing import NDArray

from softermax import golden
from softermax.golden.attention import AttentionOutput, attention, requantize
from softermax.spec import (
    PRESETS,
    SPECS,
    AnySpec,
    DeferredSpec,
    SoftermaxSpec,
    get_spec,
    load_spec,
    spec_from_dict,
)

DEFERRED = {name: spec for name, spec in SPECS.items() if isinstance(spec, DeferredSpec)}


def assert_same_rows(x: NDArray[np.int64], mask: NDArray[np.bool_], spec: DeferredSpec) -> None:
    out = golden.deferred(x, spec, mask, trace=True)
    assert out.trace is not None
    for row in range(len(x)):
        want = oracle.deferred(x[row].tolist(), mask[row].tolist(), spec)
        got = {
            "running_max": out.trace.running_max[row].tolist(),
            "weight": out.words[row].tolist(),
            "renorm_shift": out.trace.renorm_shift[row].tolist(),
            "powsum": out.trace.powsum[row].tolist(),
            "shift": out.shift[row].tolist(),
            "leading_one": int(out.leading_one[row]),
            "reciprocal": int(out.reciprocal[row]),
        }
        assert got == vars(want), spec.to_json()


@pytest.mark.parametrize("name", DEFERRED)
def test_rows_of_the_presets(name: str) -> None:
    rng = np.random.default_rng(1)
    for columns in (1, 16, 37, 100):
        assert_same_rows(*draw_rows(rng, DEFERRED[name].scores, 6, columns), DEFERRED[name])


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_drawn_specs(seed: int) -> None:
    rng = np.random.default_rng([6, seed])
    spec = draw_deferred(rng)
    assert_same_rows(*draw_rows(rng, spec.scores, 6, int(rng.integers(1, 90))), spec)


def test_a_row_without_elements_has_no_weights() -> None:
    out = golden.deferred(np.zeros((2, 5), np.int64), DeferredSpec(), [[False] * 5, [True] * 5])
    assert not out.words[0].any()
    assert not out.value[0].any()
    assert out.value[1] == pytest.approx([0.2] * 5, rel=1e-3)


def test_a_sum_of_weights_saturates() -> None:
    spec = DeferredSpec(powsum="Q(3,8)")  # type: ignore[arg-type]
    out = golden.deferred(np.zeros((1, 40), np.int64), spec, trace=True)
    assert out.trace is not None
    assert out.trace.powsum[0].tolist() == [2**11 - 1] * 3


def test_the_value_is_what_attention_effectively_multiplies_by() -> None:
    """Where the max does not grow, no accumulator is rounded, and both are the same numbers."""
    spec = get_spec("paper:deferred")
    assert isinstance(spec, DeferredSpec)
    raw = np.array([[40, 3, -7, 12] * 8])
    values = np.random.default_rng(0).integers(-128, 128, (32, 3))
    out = golden.deferred(raw, spec, trace=True)
    assert out.trace is not None
    a = golden.attention.accumulate(out.trace, values.astype(np.float64))
    scale = out.reciprocal * 2.0 ** -(out.leading_one + 15)
    np.testing.assert_array_equal(a * scale[:, None], out.value @ values)


def assert_same_attention(
    q: Any, k: Any, v: Any, spec: AnySpec, scale: float, keep: NDArray[np.bool_]
) -> None:
    """Every integer, and the value, which for a value scale of 1 is one rational number rounded once."""
    got = attention(q, k, v, spec, scale, mask=keep)
    scores = spec.scores if isinstance(spec, DeferredSpec) else spec
    group = q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(q.shape[:3]):
        keys, values = k[b, h // group].tolist(), v[b, h // group].T.tolist()
        words = oracle.score_words(q[b, h, i].tolist(), keys, scale, scores)
        if isinstance(spec, DeferredSpec):
            row = oracle.deferred(words, keep[b, h, i].tolist(), spec)
            a = [oracle.accumulated(row, column, scores.slice_width or len(words)) for column in values]
            e, r, shift = row.leading_one, row.reciprocal, row.leading_one + spec.reciprocal.fraction
        else:
            out = oracle.softermax(np.array([words]), keep[b, h, i][None], spec)
            y = out.words[0].tolist()
            a = [sum(w * one for w, one in zip(y, column, strict=True)) for column in values]
            e = int(out.exponent[0]) if spec.output_mode == "row-scaled" else 0
            r, shift = 1, spec.output.fraction + e
        assert got.accumulators[b, h, i].tolist() == a
        assert (got.leading_one[b, h, i], got.reciprocal[b, h, i]) == (e, r)
        exact = [Fraction(one * r) / Fraction(2) ** shift for one in a]
        assert got.value[b, h, i].tolist() == [float(np.float32(float(one))) for one in exact]


def operands(rng: np.random.Generator, most: int = 128) -> tuple[NDArray[np.int8], ...]:
    shapes = ((1, 2, 3, 5), (1, 1, 41, 5), (1, 1, 41, 5))
    return tuple(rng.integers(-most, most, shape).astype(np.int8) for shape in shapes)


@pytest.mark.parametrize("name", SPECS)
def test_attention_of_the_presets(name: str) -> None:
    rng = np.random.default_rng(2)
    keep = rng.random((1, 2, 3, 41)) < 0.8
    assert_same_attention(*operands(rng), SPECS[name], 0.0005, keep)
    assert_same_attention(
        *operands(rng, 4), SPECS[name], 0.125, np.tri(3, 41, 38, dtype=bool)[None, None].repeat(2, 1)
    )


@pytest.mark.parametrize("seed", range(8))
def test_attention_of_drawn_specs(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    spec = draw_deferred(rng) if seed % 2 else draw_spec(rng, most_points=1 << 12)
    keep = rng.random((1, 2, 3, 41)) < 0.9
    assert_same_attention(*operands(rng), spec, 2.0 ** float(rng.integers(-12, -4)), keep)


def test_accumulators_are_shifted_half_up_as_the_max_grows() -> None:
    """Two slices whose max grows by one: 3 halves to 2, -3 to -1."""
    spec = DeferredSpec(PRESETS["paper"].replace(slice_width=1), weight="Q(0,1)", powsum="Q(8,1)")  # type: ignore[arg-type]
    trace = golden.deferred([[0, 4]], spec, trace=True).trace
    assert trace is not None
    assert trace.weight.ravel().tolist() == [1, 1]
    assert golden.attention.accumulate(trace, np.array([[3.0, -3.0], [0.0, 0.0]])).tolist() == [[2, -1]]


def test_the_widest_words_do_not_overflow() -> None:
    """Accumulators of 45 bits times a reciprocal of 32: their product has more than 64."""
    wide = DeferredSpec(
        SoftermaxSpec(unnormed="Q(1,30)", slice_width=None),
        "Q(0,30)",
        "Q(2,30)",
        "Q(1,31)",  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-128, 128, (1, 1, 40, 64)).astype(np.int8) for _ in range(3))
    narrow = attention(q, k, v, DeferredSpec(wide.scores.replace(unnormed="Q(1,15)")), 0.0002)
    np.testing.assert_allclose(attention(q, k, v, wide, 0.0002).value, narrow.value, rtol=0.1, atol=1.0)


def test_a_huge_scale_saturates_and_an_infinite_one_is_refused() -> None:
    scores = np.array([-3, 0, 5])
    assert requantize(scores, 1e30, PRESETS["paper"]).tolist() == [-128, 0, 127]
    with pytest.raises(ValueError, match=r"scale = 1e\+39: times 4 it must be a finite single"):
        requantize(scores, 1e39, PRESETS["paper"])


@pytest.mark.parametrize("rounding", ["truncate", "half-up", "half-even"])
def test_integer_scores_round_beside_ties_as_float_scores_do(rounding: Any) -> None:
    spec = PRESETS["paper"].replace(input_rounding=rounding)
    half = np.nextafter(np.float32(0.5), np.float32(0))
    odd = np.arange(-9, 10, 2)
    words = requantize(odd, float(half) / 4, spec)
    assert words.tolist() == golden.quantize((odd.astype(np.float32) * half) / 4, spec).tolist()
    assert words[5] == 0  # 1 times a hair less than one half


@pytest.mark.parametrize("name", ["paper:deferred", "row-scaled+fold:deferred"])
def test_json_round_trip(name: str, tmp_path: Path) -> None:
    spec = get_spec(name).replace(weight="Q(0,7)", powsum="Q(12,7)")
    assert isinstance(spec, DeferredSpec)
    assert DeferredSpec.from_json(spec.to_json()) == spec_from_dict(spec.to_dict()) == spec
    spec.save(tmp_path / "mine.json")
    assert load_spec(tmp_path / "mine.json") == get_spec(str(tmp_path / "mine.json")) == spec
    with pytest.raises(ValueError, match=r"mine\.json is a deferred spec already"):
        get_spec(f"{tmp_path / 'mine.json'}:deferred")


def test_names() -> None:
    assert get_spec("paper+fold:deferred") == DeferredSpec(PRESETS["paper"].replace(base="fold"))
    assert get_spec("paper+fold:deferred").base == "fold"
    for name, spec in SPECS.items():
        assert get_spec(name) == spec


def test_a_file_may_be_deferred_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "words:deferred"
    folder.mkdir()
    PRESETS["paper-32"].save(folder / "rows.json")
    assert get_spec(str(folder / "rows.json")) == PRESETS["paper-32"]
    assert get_spec(f"{folder / 'rows.json'}:deferred") == DeferredSpec(PRESETS["paper-32"])
    with pytest.raises(ValueError, match="unknown spec"):
        get_spec(f"{folder / 'rows.json'}:deferredly")


@pytest.mark.parametrize(
    "name", ["paper:deferred:deferred", "paper:deferred+fold", ":deferred", "paper:Deferred"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown spec .*then \+fold if wanted, then :deferred if wanted"):
        get_spec(name)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scores": {"input": "Q(1,7)"}}, r"input = Q\(1,7\): needs at least 2 integer bits"),
        ({"scores": {}, "wieght": "Q(0,8)"}, r"wieght = Q\(0,8\): no such field; fields are scores, weight"),
        ({"scores": 7}, "scores = 7: must be a SoftermaxSpec"),
    ],
)
def test_what_is_not_a_deferred_spec_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec_from_dict(values)


def test_operands_of_attention_are_checked() -> None:
    q = np.zeros((1, 2, 3, 4), np.int8)
    with pytest.raises(TypeError, match=r"k must be int8 of four dimensions .* got float64 of 4"):
        attention(q, q.astype(float), q, PRESETS["paper"], 1.0)
    with pytest.raises(ValueError, match="do not fit"):
        attention(q, q, q[:, :, :2], PRESETS["paper"], 1.0)
    assert isinstance(attention(q, q, q, DeferredSpec(), 1.0), AttentionOutput)
