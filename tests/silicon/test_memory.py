"""The memory model: it gives back what CACTI answered and what was published, and grows as it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from softermax.silicon import cacti
from softermax.silicon.memory import (
    AS_PUBLISHED,
    CACTI,
    KB,
    PUBLISHED,
    Memory,
    Node,
    as_published,
    node_of,
    sensitivity,
)

STORED = json.loads(cacti.DATA.read_text(encoding="utf-8"))


def stored(technology_nm: int, capacity: int) -> dict[str, float]:
    rows = STORED["rows"]
    return next(r for r in rows if (r["technology_nm"], r["capacity"]) == (technology_nm, capacity))


@pytest.mark.parametrize("capacity", [KB, 8 * KB, 1024 * KB])
def test_45_nm_is_what_cacti_answered(capacity: int) -> None:
    node, row = CACTI["45nm"], stored(45, capacity)
    memory = Memory(capacity, 64)
    assert memory.read_pj(node) == pytest.approx(row["read_pj"])
    assert memory.write_pj(node) == pytest.approx(row["write_pj"])
    assert memory.area_um2(node) == pytest.approx(row["area_um2"])
    leakage = row["leakage_nw"] + row["gate_leakage_nw"]
    assert memory.leakage_pj(node, 1000.0) == pytest.approx(leakage * 1e-3)


def test_7_nm_is_22_nm_by_cells_and_voltage() -> None:
    node, row = CACTI["7nm"], stored(22, 8 * KB)
    cells = 0.027 / (146 * 0.022**2)
    assert node.area_um2(8 * KB) == pytest.approx(row["area_um2"] * cells)
    assert node.read_pj(8 * KB) == pytest.approx(row["read_pj"] * cells**0.5 * (0.7 / 0.8) ** 2)
    assert node.write_pj(8 * KB) == pytest.approx(row["write_pj"] * cells**0.5 * (0.7 / 0.8) ** 2)


def test_what_cacti_was_asked_is_stored_with_its_answers() -> None:
    assert STORED["configuration"] == cacti.CONFIGURATION.splitlines()
    assert (STORED["transistors"], STORED["temperature_k"]) == (cacti.TRANSISTORS, cacti.TEMPERATURE_K)
    assert STORED["source"].startswith("CACTI 7")
    found = [(row["technology_nm"], row["capacity"]) for row in STORED["rows"]]
    assert found == [(nm, size) for nm in cacti.TECHNOLOGIES_NM for size in cacti.CAPACITIES]


def test_banks_of_the_papers_buffers_are_faster_than_the_clock() -> None:
    """The largest bank of a PE's buffer has 8 KB."""
    assert all(row["cycle_ns"] < 1.5 for row in STORED["rows"] if row["capacity"] <= 8 * KB)


@pytest.mark.parametrize(
    ("node", "published"),
    [("45nm", {8: 10.0, 32: 20.0, 1024: 100.0}), ("7nm", {8: 7.5, 32: 8.5, 1024: 14.0})],
)
def test_published_sizes_cost_what_was_published(node: str, published: dict[int, float]) -> None:
    for kilobytes, pj in published.items():
        assert PUBLISHED[node].read_pj(kilobytes * KB) == pytest.approx(pj)
        assert PUBLISHED[node].write_pj(kilobytes * KB) == pytest.approx(pj)
    assert PUBLISHED["45nm"].at_logic_voltage().read_pj(8 * KB) == pytest.approx(10.0 * (1.1 / 0.9) ** 2)


@pytest.mark.parametrize("node", [*CACTI.values(), *PUBLISHED.values()], ids=lambda n: f"{n.name} {n.source}")
def test_a_larger_memory_costs_more_and_sizes_beyond_the_known_follow_their_rule(node: Node) -> None:
    sizes = [2**n for n in range(6, 24)]
    for figure in (node.read_pj, node.write_pj, node.area_um2, node.leakage_nw):
        costs = [figure(size) for size in sizes]
        assert costs == sorted(costs)
    least, most = node.samples[0].capacity, node.samples[-1].capacity
    assert node.read_pj(least / 4) == pytest.approx(node.read_pj(least) / 2)
    assert node.write_pj(4 * most) == pytest.approx(2 * node.write_pj(most))
    assert node.area_um2(4 * most) == pytest.approx(4 * node.area_um2(most))


def test_a_wide_word_is_spread_over_banks() -> None:
    node = CACTI["45nm"]
    assert Memory(128 * KB, 1024).read_pj(node) == pytest.approx(16 * node.read_pj(8 * KB))
    assert Memory(128 * KB, 1024).area_um2(node) == pytest.approx(16 * node.area_um2(8 * KB))
    assert Memory(128 * KB, 1024, banked=False).read_pj(node) == pytest.approx(16 * node.read_pj(128 * KB))
    assert Memory(8 * KB, 32).write_pj(node) == pytest.approx(node.write_pj(8 * KB) / 2)


def test_published_area_and_leakage_are_those_of_the_bits() -> None:
    node = PUBLISHED["7nm"]
    assert Memory(1 * KB, 64).area_um2(node) == pytest.approx(8192 * 0.027 / 0.5)
    # 8192 bits of 100 pA at 0.7 V are 573 nW, in 1 ns 573 aJ.
    assert Memory(1 * KB, 64).leakage_pj(node, 1.0) == pytest.approx(573.44e-6)


def test_sensitivity_changes_one_figure_at_a_time() -> None:
    node = CACTI["45nm"]
    memory = Memory(32 * KB, 256)

    def figures(some: Node) -> tuple[float, ...]:
        return (
            memory.read_pj(some),
            memory.write_pj(some),
            memory.area_um2(some),
            memory.leakage_pj(some, 1.0),
        )

    base = figures(node)
    for name, changed in sensitivity(node).items():
        if name == AS_PUBLISHED:
            assert changed == PUBLISHED["45nm"]
            continue
        different = [a != pytest.approx(b) for a, b in zip(figures(changed), base, strict=True)]
        expected = {"as": 0, "access": 2, "area": 1, "leakage": 1}[name.split()[0]]
        assert sum(different) == expected, name
    doubled = sensitivity(node, [2.0])["access energy x 2"]
    assert memory.read_pj(doubled) == pytest.approx(2 * base[0])


def test_unknown_libraries_and_sizes_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="library 'sky130': memories are modelled for nangate45, asap7"):
        node_of("sky130", "cacti")
    with pytest.raises(ValueError, match="capacity 0: must be more than 0 bytes"):
        CACTI["45nm"].read_pj(0)
    assert [node_of("asap7", name).source for name in ("published", "cacti")] == ["published", "CACTI"]
    assert node_of("nangate45") == CACTI["45nm"]


def test_published_memories_are_a_what_if_at_both_voltages_where_they_differ() -> None:
    node = PUBLISHED["45nm"]
    assert as_published("nangate45") == {
        AS_PUBLISHED: node,
        f"{AS_PUBLISHED}, at the logic's 1.1 V": node.at_logic_voltage(),
    }
    assert as_published("asap7") == {AS_PUBLISHED: PUBLISHED["7nm"]}


def test_an_answer_of_cacti_is_read_in_our_units() -> None:
    text = (
        "Access time (ns): 1.5\nCycle time (ns):  0.9\nTotal dynamic read energy per access (nJ): 0.004\n"
        "Total dynamic write energy per access (nJ): 0.011\nTotal leakage power of a bank (mW): 0.0002\n"
        "Total gate leakage power of a bank (mW): 7e-05\n  Data array: Area (mm2): 0.0287\n"
    )
    found = cacti.figures_of(text)
    assert found == {
        "read_pj": 4.0, "write_pj": 11.0, "leakage_nw": 200.0, "gate_leakage_nw": 70.0, "area_um2": 28700.0,
        "access_ns": 1.5, "cycle_ns": 0.9,
    }  # fmt: skip
    with pytest.raises(ValueError, match="CACTI gave no read_pj; it ended with: ERROR: no valid"):
        cacti.figures_of("begun\nERROR: no valid organisation")


def test_a_program_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "softermax.silicon.cacti", str(tmp_path / "cacti")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cacti: must be CACTI's program with the folder tech_params beside it" in done.stderr


@pytest.mark.tool("cacti")
@pytest.mark.parametrize(("technology_nm", "capacity"), [(45, 8 * KB), (22, KB)])
def test_cacti_answers_what_is_stored(technology_nm: int, capacity: int) -> None:
    found, _ = cacti.ask(Path(os.environ["SOFTERMAX_CACTI"]), capacity, technology_nm)
    row = stored(technology_nm, capacity)
    assert found == {name: row[name] for name in found}
