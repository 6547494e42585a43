"""int8 rows equal the golden model's on every path, whatever the shape, mask and place in memory."""

from __future__ import annotations

import numpy as np
import pytest

from softermax import PRESETS, golden, kernels
from softermax.kernels import softermax_int8
from softermax.kernels.plan import unnormed_steps
from softermax.spec import DeferredSpec, SoftermaxSpec
from softermax.verify import SPECS, check, draw_specs

from .native_build import words


def assert_golden(
    got: tuple[np.ndarray, np.ndarray], raw: np.ndarray, spec: SoftermaxSpec, mask: np.ndarray
) -> None:
    want = golden.softermax(raw, spec, mask)
    np.testing.assert_array_equal(got[0], want.words)
    if spec.output_mode == "row-scaled":
        np.testing.assert_array_equal(got[1], want.exponent)


def test_every_body_of_verify_agrees() -> None:
    drawn = draw_specs(16, seed=1)
    for body in kernels.bodies():
        verdict = check(body, SPECS, rows=5, drawn=drawn, pairs=0.1)
        assert (verdict.mismatches, verdict.first) == (0, "")
        assert verdict.specs >= 6
        assert verdict.attention > 0
        if not body.name.endswith("deferred"):
            assert min(verdict.words, verdict.scores, verdict.marks) > 0


def test_every_length_from_1_to_300(spec: SoftermaxSpec, path: str, rng: np.random.Generator) -> None:
    for columns in range(1, 301):
        raw = words(rng, 3, columns, spread=(4, 16, 60)[columns % 3])
        mask = rng.random(raw.shape) < 0.8
        assert_golden(softermax_int8(raw, spec, mask), raw, spec, mask)


@pytest.mark.parametrize("columns", [16, 100, 384, 1000])
def test_lengths_causal_and_mask_combine(
    columns: int, spec: SoftermaxSpec, path: str, rng: np.random.Generator
) -> None:
    raw = words(rng, 2, 9, columns)
    lengths = rng.integers(0, columns + 1, (2, 1))
    keep = rng.random((2, 1, columns)) < 0.7
    causal = np.tri(9, columns, columns - 9, dtype=bool)
    padded = np.arange(columns) < lengths[..., None]
    got = softermax_int8(raw, spec, keep, lengths, causal=True)
    assert_golden(got, raw, spec, keep & causal & padded)
    assert_golden(softermax_int8(raw, spec, lengths=lengths), raw, spec, padded)
    assert_golden(softermax_int8(raw, spec, causal=True), raw, spec, causal)


def test_a_row_that_sees_nothing_is_zero(path: str) -> None:
    raw = np.zeros((2, 40), dtype=np.int8)
    got, _ = softermax_int8(raw, PRESETS["paper"], lengths=np.array([0, 40]))
    assert not got[0].any()
    assert got[1].any()
    assert not softermax_int8(raw, PRESETS["paper"], np.zeros((1, 1), dtype=bool))[0].any()


def test_odd_strides_and_places_in_memory(path: str, rng: np.random.Generator) -> None:
    spec = PRESETS["paper"]
    buffer = words(rng, 40_000)
    for offset in range(1, 9):
        odd = np.lib.stride_tricks.as_strided(buffer[offset:], (5, 7, 130), (1501, 211, 1))
        assert_golden(softermax_int8(odd, spec), odd, spec, np.ones(odd.shape, dtype=bool))
        out = np.empty(odd.size + offset, dtype=np.uint8)[offset:].reshape(odd.shape)
        assert_golden(softermax_int8(odd, spec, out=out), odd, spec, np.ones(odd.shape, dtype=bool))
    for view in (
        buffer[:6000].reshape(60, 100).T,
        buffer[:6000].reshape(60, 100)[::-2, ::3],
        buffer[:64][None, ::-1],
    ):
        assert_golden(softermax_int8(view, spec), view, spec, np.ones(view.shape, dtype=bool))
    transposed = (rng.random((130, 5)) < 0.5).T
    raw = words(rng, 5, 130)
    assert_golden(softermax_int8(raw, spec, transposed), raw, spec, transposed)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3), (2, 3, 0)])
def test_zero_size(shape: tuple[int, ...], path: str) -> None:
    got, exponent = softermax_int8(np.zeros(shape, dtype=np.int8), PRESETS["paper"])
    assert got.shape == shape
    assert exponent.shape == shape[:-1]


def test_long_rows_whose_max_stays_grows_late_or_is_met_again(spec: SoftermaxSpec, path: str) -> None:
    rng = np.random.default_rng(3)
    raw = words(rng, 6, 20_000, spread=6)
    raw[0, 5], raw[1, 9_000:] = 60, 61  # stays; grows once, and later blocks meet it again
    raw[2, ::777] = np.linspace(0, 127, len(raw[2, ::777])).astype(np.int8)  # grows all along
    raw[3] = 24  # an integer: every u is 1
    raw[4] = rng.integers(-128, -119, raw.shape[1])  # nothing lies below the tables
    raw[5, ::3], raw[5, 1::3] = 127, 124  # 31.75 has no ceiling
    assert_golden(softermax_int8(raw, spec), raw, spec, np.ones(raw.shape, dtype=bool))


@pytest.mark.parametrize("name", PRESETS)
def test_sums_that_saturate(name: str, path: str) -> None:
    spec = PRESETS[name]
    raw = np.full((1, 70_000), 127, dtype=np.int8)
    raw[0, ::3] = 40
    assert_golden(softermax_int8(raw, spec), raw, spec, np.ones(raw.shape, dtype=bool))
    rising = np.repeat(np.arange(-128, 128), 300).astype(np.int8)[None]  # saturates, then the max grows
    assert_golden(softermax_int8(rising, spec), rising, spec, np.ones(rising.shape, dtype=bool))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"raw": np.zeros((2, 3))}, TypeError, "int8, got float64"),
        ({"raw": np.zeros((2, 3), dtype=np.uint8)}, TypeError, "int8, got uint8"),
        ({"raw": np.zeros((), dtype=np.int8)}, ValueError, "scalar"),
        ({"raw": np.zeros((1,) * 10, dtype=np.int8)}, ValueError, "10 dimensions; must be at most 9"),
        (
            {"raw": np.zeros(3, dtype=np.int8), "causal": True},
            ValueError,
            r"rows and columns, got shape \(3,\)",
        ),
        ({"mask": np.ones((2, 3))}, TypeError, "boolean.*float64"),
        (
            {"mask": np.ones((2, 4), dtype=bool)},
            ValueError,
            r"\(2, 4\) does not broadcast to the scores' \(2, 3\)",
        ),
        ({"lengths": np.array([1.0, 2.0])}, TypeError, "integers, got dtype float64"),
        ({"lengths": np.array([1, -2])}, ValueError, "0 or more, got -2"),
        ({"lengths": np.array([1, 2, 3])}, ValueError, r"\(3,\) do not broadcast to the rows' \(2,\)"),
        ({"out": np.zeros((2, 3), dtype=np.int8)}, ValueError, r"dense uint8 of shape \(2, 3\), got int8"),
        ({"out": np.zeros((3, 2), dtype=np.uint8).T}, ValueError, "dense uint8"),
        ({"path": "sse9"}, ValueError, "'sse9': this CPU and this build can run scalar"),
        (
            {"spec": PRESETS["paper"].replace(output="Q(1,9)")},
            ValueError,
            r"output is Q\(1,9\); .* up to 8 bits",
        ),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    good: dict[str, object] = {"raw": np.zeros((2, 3), dtype=np.int8), "spec": PRESETS["paper"]}
    with pytest.raises(error, match=message):
        softermax_int8(**(good | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"input": "Q(7,2)", "max": "Q(7,2)"},
        {"input": "Q(6,3)"},
        {"max": "Q(7,2)"},
        {"unnormed": "Q(2,14)"},
        {"unnormed": "Q(1,16)"},
        {"unnormed_rounding": "half-up"},
        {"powsum_rounding": "half-even"},
        {"output_rounding": "half-even"},
        {"reciprocal": "Q(1,16)"},
        {"output": "Q(1,8)"},
    ],
)
def test_what_the_core_does_not_cover_it_refuses(change: dict[str, str]) -> None:
    spec = PRESETS["paper"].replace(**change)
    assert not kernels.supports(spec)
    assert next(iter(change)) in str(kernels.refusal(spec))


@pytest.mark.parametrize("rounding", ["half-up", "half-even"])
def test_unnormed_words_are_rounded_where_nothing_but_the_sum_is_made_of_them(rounding: str) -> None:
    lean = PRESETS["lean"].replace(unnormed_rounding=rounding)
    assert kernels.supports(lean)
    assert kernels.supports(DeferredSpec(lean))
    numerators = lean.replace(normalization="numerator")
    assert "what numerators are made of" in str(kernels.refusal(numerators))
    assert kernels.supports(DeferredSpec(numerators))
    # A rounded word of 16 bits would have entries past the core's table.
    assert "with Q(1,15) the core truncates" in str(kernels.refusal(lean.replace(unnormed="Q(1,15)")))
    longest = unnormed_steps(lean.replace(unnormed="Q(1,14)"))
    assert longest[-4:].any()
    assert not golden.power_of_two(3 - np.arange(64, 256), 0, lean.replace(unnormed="Q(1,14)")).any()


def test_an_impossible_path_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTERMAX_ISA", "mmx")
    with pytest.raises(
        ValueError, match="SOFTERMAX_ISA = 'mmx': must be one of scalar, avx2, avx512, neon or none"
    ):
        kernels.isa()
    impossible = next(name for name in kernels.ISAS if name not in kernels.usable())
    monkeypatch.setenv("SOFTERMAX_ISA", impossible)
    with pytest.raises(ValueError, match=f"'{impossible}': this CPU and this build can run scalar"):
        kernels.isa()
    monkeypatch.setenv("SOFTERMAX_ISA", "none")
    assert kernels.isa() is None
    assert "turns the native core off" in kernels.status()
