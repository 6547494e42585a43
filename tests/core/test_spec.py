"""SoftermaxSpec: what it accepts, what it refuses and how it says so, JSON, files, presets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import draw_spec
from hypothesis import given
from hypothesis import strategies as st

from softermax.fixedpoint import QFormat
from softermax.spec import MAX_SEGMENTS, MAX_SLICE, PRESETS, DeferredSpec, SoftermaxSpec, get_spec

drawn_specs = st.integers(0, 10**9).map(
    lambda seed: draw_spec(np.random.default_rng(seed), most_points=2**40)
)


@given(st.one_of(st.sampled_from(list(PRESETS.values())), drawn_specs))
def test_json_round_trip(spec: SoftermaxSpec) -> None:
    assert SoftermaxSpec.from_json(spec.to_json()) == spec
    assert SoftermaxSpec.from_dict(spec.to_dict()) == spec
    assert set(json.loads(spec.to_json())) == {field.name for field in dataclasses.fields(spec)}


@given(drawn_specs)
def test_a_spec_is_a_value(spec: SoftermaxSpec) -> None:
    same = spec.replace()
    assert same == spec
    assert hash(same) == hash(spec)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.slice_width = 3  # type: ignore[misc]


def test_words_as_text_pairs_and_formats_are_the_same() -> None:
    expected = SoftermaxSpec(powsum=QFormat(12, 4))
    assert SoftermaxSpec(powsum="Q(12,4)") == expected
    assert SoftermaxSpec(powsum=(12, 4)) == expected
    assert SoftermaxSpec(powsum=[12, 4]) == expected


def test_the_field_sets_the_sign_of_its_word() -> None:
    spec = SoftermaxSpec(input=QFormat(6, 2, signed=False), unnormed=QFormat(1, 15, signed=True))
    assert spec == SoftermaxSpec()
    assert (spec.input.signed, spec.max.signed, spec.unnormed.signed) == (True, True, False)


def test_the_paper_preset_is_table_one() -> None:
    words = {name: PRESETS["paper"].to_dict()[name] for name in ("input", "max", "unnormed", "powsum")}
    assert words == {"input": "Q(6,2)", "max": "Q(6,2)", "unnormed": "Q(1,15)", "powsum": "Q(10,6)"}
    assert (str(PRESETS["paper"].reciprocal), str(PRESETS["paper"].output)) == ("Q(1,7)", "Q(1,7)")
    assert PRESETS["paper"].slice_width == 16
    assert (PRESETS["paper"].pow2_segments, PRESETS["paper"].reciprocal_segments) == (4, 4)
    assert PRESETS["paper-32"] == PRESETS["paper"].replace(slice_width=32)
    assert PRESETS["row-scaled"].output_mode == "row-scaled"
    assert PRESETS["whole-row"].slice_width is None


def test_slices() -> None:
    assert [SoftermaxSpec().slices(n) for n in (0, 1, 16, 17, 384)] == [0, 1, 1, 2, 24]
    assert [SoftermaxSpec(slice_width=None).slices(n) for n in (0, 1, 384)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("input", "Q(1,7)", "at least 2 integer bits"),
        ("input", "6.2", r"written like 'Q\(6,2\)'"),
        ("input", 8, "a QFormat, a string like"),
        ("input", (6, 2, 1), "a pair of integers"),
        ("input", (6, -2), "fraction bits of a Q format must be an integer >= 0, got -2"),
        ("input", None, "a QFormat, a string like"),
        ("max", "Q(5,2)", "at least 6 integer bits"),
        ("max", "Q(30,3)", "has 33 bits; a word has 1 to 32"),
        ("unnormed", "Q(0,16)", "at least 1 integer bits"),
        ("unnormed", "Q(1,0)", "at least 1 fraction bits"),
        ("powsum", "Q(0,6)", "at least 1 integer bits"),
        ("powsum", "Q(10,0)", "at least 1 fraction bits"),
        ("powsum", "Q(10,16)", "at most the 15 fraction bits of unnormed"),
        ("powsum", "Q(27,6)", "has 33 bits; a word has 1 to 32"),
        ("reciprocal", "Q(0,8)", "at least 1 integer bits"),
        ("reciprocal", "Q(1,0)", "at least 1 fraction bits"),
        ("output", "Q(1,0)", "at least 1 fraction bits"),
        ("output", "Q(0,22)", "at most 21 fraction bits"),
        ("slice_width", 0, f"None .* or an integer from 1 to {MAX_SLICE}"),
        ("slice_width", MAX_SLICE + 1, f"from 1 to {MAX_SLICE}"),
        ("slice_width", 16.0, "an integer from 1"),
        ("slice_width", True, "an integer from 1"),
        ("slice_width", "16", "an integer from 1"),
        ("pow2_segments", 3, f"a power of two from 1 to {MAX_SEGMENTS}"),
        ("pow2_segments", 0, "a power of two"),
        ("pow2_segments", -4, "a power of two"),
        ("pow2_segments", 4.0, "a power of two"),
        ("reciprocal_segments", 2 * MAX_SEGMENTS, "a power of two"),
        ("reciprocal_segments", True, "a power of two"),
        ("input_rounding", "ceil", "truncate or half-up or half-even"),
        ("input_rounding", ["truncate"], "truncate or half-up or half-even"),
        ("max_rounding", "half-up", "ceil or truncate"),
        ("unnormed_rounding", "nearest", "truncate or half-up or half-even"),
        ("powsum_rounding", None, "truncate or half-up or half-even"),
        ("output_rounding", 1, "truncate or half-up or half-even"),
        ("output_mode", "float", "fixed or row-scaled"),
        ("base", "e", "paper or fold"),
        ("normalization", "division", "numerator or row-products"),
        ("product", "9", r"written like 'Q\(6,2\)'"),
    ],
)
def test_refusals(field: str, value: Any, allowed: str) -> None:
    """The message names the field, the value and what is allowed; from the constructor and from replace."""
    for make in (SoftermaxSpec, SoftermaxSpec().replace):
        with pytest.raises(ValueError, match=allowed) as error:
            make(**{field: value})
        text = str(error.value)
        assert text.startswith(f"{field} = ")
        assert str(value).strip("'") in text


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("input", "Q(6,5)", "at most 4 fraction bits with row products: a row has a product per fraction"),
        ("product", "Q(0,9)", "at least 1 integer bits"),
        ("product", "Q(1,6)", r"at least 7 fraction bits \(as many as the output\)"),
        ("product", "Q(1,23)", "at most 22 fraction bits, those of unnormed times reciprocal"),
    ],
)
def test_refusals_of_row_products(field: str, value: Any, allowed: str) -> None:
    """What makes no sense with A10 is refused with the reason, and is permitted with A5, which has no products."""
    SoftermaxSpec(**{field: value})
    with pytest.raises(ValueError, match=allowed) as error:
        SoftermaxSpec(normalization="row-products", **{field: value})
    assert str(error.value).startswith(f"{field} = {value}: ")


def test_every_field_can_be_refused() -> None:
    marks = next(m for m in test_refusals.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {case[0] for case in marks.args[1]} == {field.name for field in dataclasses.fields(SoftermaxSpec)}


def test_unknown_fields() -> None:
    with pytest.raises(ValueError, match="slices = 4: no such field; fields are input, max, "):
        SoftermaxSpec().replace(slices=4)
    with pytest.raises(ValueError, match="slices = 4: no such field; fields are input, max, "):
        SoftermaxSpec.from_dict({"slices": 4})


def test_save_and_load(tmp_path: Path) -> None:
    spec = SoftermaxSpec(slice_width=None, base="fold", unnormed="Q(1,20)")
    path = tmp_path / "new" / "spec.json"
    spec.save(path)
    assert SoftermaxSpec.load(path) == spec
    assert get_spec(str(path)) == spec
    assert [p.name for p in path.parent.iterdir()] == ["spec.json"]


def test_fields_left_out_of_a_file_are_the_papers(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"slice_width": 32}')
    assert SoftermaxSpec.load(path) == PRESETS["paper-32"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"input": "Q(6,2)",', "not a spec: JSON is broken at line 1"),
        (b"", "not a spec: JSON is broken at line 1"),
        (b"[1, 2]", "not a spec: expected a JSON object, got list"),
        (b"null", "not a spec: expected a JSON object, got NoneType"),
        (b"\xff\xfe\x00", "not a spec: not UTF-8 text"),
        (b'{"input": "Q(1,7)"}', r"input = Q\(1,7\): needs at least 2 integer bits"),
        (b'{"inptu": "Q(6,2)"}', r"inptu = Q\(6,2\): no such field; fields are"),
        (b'{"slice_width": 1.5}', "slice_width = 1.5: must be None"),
        (b'{"max": {"integer": 6}}', "max = {'integer': 6}: a word is"),
        (b'{"input": [6, null]}', r"input = \[6, None\]: fraction bits .* got None"),
    ],
)
def test_corrupt_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    for load in (SoftermaxSpec.load, lambda p: get_spec(str(p))):
        with pytest.raises(ValueError, match=message) as error:
            load(path)
        assert str(error.value).startswith(str(path))


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not a spec: JSON is nested too deeply"):
        SoftermaxSpec.from_json("[" * 100_000)


def test_an_absent_file() -> None:
    with pytest.raises(FileNotFoundError, match=r"no-such\.json"):
        get_spec("no-such.json")


@pytest.mark.parametrize("name", PRESETS)
def test_get_spec(name: str) -> None:
    assert get_spec(name) is PRESETS[name]
    assert get_spec(f"{name}+fold") == PRESETS[name].replace(base="fold")


@pytest.mark.parametrize("name", ["", "papre", "paper+", "paper+base", "paper+fold+fold", "Paper"])
def test_get_spec_refuses(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"unknown spec .*: must be one of paper, paper-32, row-scaled, whole-row"
    ):
        get_spec(name)


def test_fold_scales_by_log2e() -> None:
    assert SoftermaxSpec().input_scale == 4.0
    assert SoftermaxSpec(base="fold").input_scale == pytest.approx(4 / np.log(2), rel=1e-15)


def test_compute_runs_the_golden_model() -> None:
    y = SoftermaxSpec().compute([[2.0, 1.0, 3.0], [0.0, 0.0, np.inf]], [[True] * 3, [True, True, False]])
    assert (y * 128).tolist() == [[37.0, 18.0, 73.0], [64.0, 64.0, 0.0]]


def test_deferred_defaults() -> None:
    spec = DeferredSpec()
    assert (str(spec.weight), str(spec.powsum), str(spec.reciprocal)) == ("Q(0,8)", "Q(16,8)", "Q(1,15)")
    assert spec.scores == PRESETS["paper"]
    assert spec.reciprocal_segments == 16
    assert hash(spec) == hash(DeferredSpec())


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("scores", "paper", "a SoftermaxSpec"),
        ("weight", "Q(8,0)", "at least 1 fraction bits"),
        ("weight", "Q(0,16)", "at most the 15 fraction bits of unnormed"),
        ("weight", 8, "a QFormat, a string like"),
        ("powsum", "Q(0,8)", "at least 1 integer bits"),
        ("powsum", "Q(16,7)", "their 8 fraction bits"),
        ("reciprocal", "Q(0,16)", "at least 1 integer bits"),
        ("reciprocal", "Q(1,0)", "at least 1 fraction bits"),
        ("reciprocal_segments", 12, "a power of two"),
    ],
)
def test_deferred_refusals(field: str, value: Any, allowed: str) -> None:
    with pytest.raises(ValueError, match=allowed) as error:
        DeferredSpec(**{field: value})
    assert str(error.value).startswith(f"{field} = ")
