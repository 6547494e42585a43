"""The memory model: it gives back the published figures and grows as it says."""

from __future__ import annotations

import pytest

from softermax.silicon.memory import KB, NODES, Memory, node_of, sensitivity


@pytest.mark.parametrize(
    ("node", "published"),
    [("45nm", {8: 10.0, 32: 20.0, 1024: 100.0}), ("7nm", {8: 7.5, 32: 8.5, 1024: 14.0})],
)
def test_published_sizes_cost_what_was_published(node: str, published: dict[int, float]) -> None:
    for kilobytes, pj in published.items():
        assert NODES[node].access_pj(kilobytes * KB) == pytest.approx(pj)


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_a_larger_memory_costs_more_and_small_ones_follow_the_square_root(node) -> None:
    sizes = [2**n for n in range(6, 24)]
    costs = [node.access_pj(size) for size in sizes]
    assert costs == sorted(costs)
    assert node.access_pj(2 * KB) == pytest.approx(node.access_pj(8 * KB) / 2)
    assert node.access_pj(4096 * KB) == pytest.approx(2 * node.access_pj(1024 * KB))


def test_a_wide_word_is_spread_over_banks() -> None:
    node = NODES["45nm"]
    # Sixteen banks of 8 KB, each at the published 10 pJ.
    assert Memory(128 * KB, 1024).access_pj(node) == pytest.approx(160.0)
    assert Memory(128 * KB, 1024, banked=False).access_pj(node) == pytest.approx(
        16 * node.access_pj(128 * KB)
    )
    assert Memory(8 * KB, 32).access_pj(node) == pytest.approx(5.0)


def test_area_and_leakage_are_those_of_the_bits() -> None:
    node = NODES["7nm"]
    assert Memory(1 * KB, 64).area_um2(node) == pytest.approx(8192 * 0.027 / 0.5)
    # 8192 bits of 100 pA at 0.7 V are 573 nW, in 1 ns 573 aJ.
    assert Memory(1 * KB, 64).leakage_pj(node, 1.0) == pytest.approx(573.44e-6)


def test_sensitivity_changes_one_figure_at_a_time() -> None:
    node = NODES["45nm"]
    memory = Memory(32 * KB, 256)
    base = (memory.access_pj(node), memory.area_um2(node), memory.leakage_pj(node, 1.0))
    for name, changed in sensitivity(node).items():
        now = (memory.access_pj(changed), memory.area_um2(changed), memory.leakage_pj(changed, 1.0))
        different = [a != pytest.approx(b) for a, b in zip(now, base, strict=True)]
        assert sum(different) == (0 if name == "as modelled" else 1), name
    doubled = sensitivity(node, [2.0])["access energy x 2"]
    assert memory.access_pj(doubled) == pytest.approx(2 * base[0])


def test_unknown_libraries_and_sizes_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="library 'sky130': memories are modelled for nangate45, asap7"):
        node_of("sky130")
    with pytest.raises(ValueError, match="capacity 0: must be more than 0 bytes"):
        NODES["45nm"].access_pj(0)
