"""Energy against hand calculation from the Liberty text, and what must hold of any meter."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_designs import hand_made, pdk_root, random_bits

from softermax.silicon import liberty, pdk
from softermax.silicon.liberty import Group
from softermax.silicon.library import Library, WireLoad
from softermax.silicon.netlist import Netlist
from softermax.silicon.power import CLOCK, INPUTS, energy_of
from softermax.silicon.simulation import Activity, Simulator
from softermax.silicon.synthesis import synthesise
from softermax.silicon.timing import analyse

NO_WIRE = WireLoad("none")
CLOCK_NS = 1.0


@pytest.fixture(scope="session")
def nangate_text() -> Group:
    path = pdk.nangate_file()
    return liberty.parse(path.read_text(), str(path))


@pytest.fixture(scope="session")
def asap7_text(asap7: Library) -> list[Group]:
    files = pdk.asap7_files(pdk_root())
    return [
        liberty.parse(pdk.read_liberty(path).decode(), str(path))
        for path in files
        if "SIMPLE" in Path(path).name
    ]


def cell_of(groups: Group | list[Group], name: str) -> Group:
    every = groups if isinstance(groups, list) else [groups]
    return next(c for g in every for c in g.all("cell") if c.arguments[0] == name)


def numbers(group: Group) -> list[float]:
    return [float(v) for text in group.arguments for v in text.replace(",", " ").split()]


def look_up(table: Group, slew: float, load: float) -> float:
    """Bilinear interpolation in a Liberty table with axes slew and load, written out."""
    values = table.first("values")
    assert values is not None
    first, second = table.first("index_1"), table.first("index_2")
    if first is None:
        return numbers(values)[0]
    x = numbers(first)
    v = np.array(numbers(values))
    if second is None:
        return interpolate(x, list(v), slew)
    grid = v.reshape(len(x), -1)
    return interpolate(x, [interpolate(numbers(second), list(row), load) for row in grid], slew)


def interpolate(xs: list[float], ys: list[float], x: float) -> float:
    i = min(max(sum(1 for a in xs if a <= x) - 1, 0), len(xs) - 2)
    return ys[i] + (ys[i + 1] - ys[i]) * (x - xs[i]) / (xs[i + 1] - xs[i])


def true_in(condition: str | None, state: dict[str, int]) -> bool:
    if condition is None:
        return True
    text = condition.replace("!", " not ").replace("&", " and ").replace("*", " and ")
    text = text.replace("|", " or ").replace("+", " or ")
    return bool(eval(text, {}, {k: bool(v) for k, v in state.items()}))


def simulate(netlist: Netlist, stimulus: dict[str, Any], timed: bool = False) -> tuple[Activity, Any]:
    timing = analyse(netlist, CLOCK_NS, NO_WIRE)
    simulator = Simulator(netlist, timing)
    activity = simulator.run(stimulus, CLOCK_NS if timed else None, counted_from=1)
    return activity, timing


def of_port(netlist: Netlist, library: Library, net: str, edge: str, groups: Group | list[Group]) -> float:
    """Capacitance of a net by hand: the pins on it, and the load of an output port."""
    total = 0.0
    for index in range(netlist.cells):
        for pin, number in netlist.pins[index].items():
            group = next(p for p in cell_of(groups, netlist.types[index]).all("pin") if p.arguments[0] == pin)
            if netlist.net_names[number] == net and group.attributes["direction"] == "input":
                total += float(group.attributes[f"{edge}_capacitance"])
    return total + (library.description.output_load_ff if net in netlist.outputs else 0.0)


@pytest.mark.parametrize("timed", [False, True])
def test_a_chain_of_inverters_by_hand(nangate45: Library, nangate_text: Group, timed: bool) -> None:
    """A toggle runs down the chain every cycle: switching, internal and leakage energy of each stage."""
    length, cycles = 7, 11
    nets = [chr(ord("a") + i) for i in range(length + 1)]
    cells = [("INV_X1", {"A": nets[i], "ZN": nets[i + 1]}) for i in range(length)]
    netlist = hand_made(nangate45, cells, nets[0], nets[-1])
    wave = np.tile(np.array([0, 1], dtype=np.uint8), cycles)[:cycles, None, None]
    activity, timing = simulate(netlist, {nets[0]: wave}, timed)
    energy = energy_of(activity, timing)

    inverter = cell_of(nangate_text, "INV_X1")
    out = next(p for p in inverter.all("pin") if p.arguments[0] == "ZN")
    arc, power = out.all("timing")[0], out.all("internal_power")[0]
    leakage = {g.attributes["when"]: float(g.attributes["value"]) for g in inverter.all("leakage_power")}
    slew = {"rise": 0.02, "fall": 0.02}
    edges = {"rise": (cycles - 1) // 2, "fall": (cycles - 1) // 2}
    internal = switching = static = 0.0
    for stage in range(length):
        made = {}
        for edge, cause in (("rise", "fall"), ("fall", "rise")):
            load = of_port(netlist, nangate45, nets[stage + 1], edge, nangate_text)
            table, transition = power.first(f"{edge}_power"), arc.first(f"{edge}_transition")
            assert table is not None
            assert transition is not None
            internal += edges[edge] * look_up(table, slew[cause], load)
            switching += edges[edge] * 0.5 * load * 1.1**2
            made[edge] = look_up(transition, slew[cause], load)
        slew = made
        static += (cycles - 1) / 2 * (leakage["!A"] + leakage["A"]) * CLOCK_NS * 1e-3
    assert energy.internal.sum() == pytest.approx(internal, rel=1e-9)
    assert energy.switching.sum() == pytest.approx(switching, rel=1e-9)
    assert energy.leakage.sum() == pytest.approx(static, rel=1e-9)
    source = sum(edges[e] * 0.5 * 1.21 * of_port(netlist, nangate45, nets[0], e, nangate_text) for e in edges)
    assert energy.inputs == pytest.approx(source, rel=1e-9)
    assert energy.total == pytest.approx(internal + switching + static + source, rel=1e-9)


def test_a_ring_of_inverters_through_a_flip_flop_by_hand(nangate45: Library, nangate_text: Group) -> None:
    """Three inverters from a flip-flop's output to its data: it toggles every cycle by itself."""
    cells = [
        ("DFF_X1", {"D": "d", "CK": "clk", "Q": "a"}),
        ("INV_X1", {"A": "a", "ZN": "b"}),
        ("INV_X1", {"A": "b", "ZN": "c"}),
        ("INV_X1", {"A": "c", "ZN": "d"}),
    ]
    netlist = hand_made(nangate45, cells, "clk x", "d")
    cycles = 21
    activity, timing = simulate(netlist, {"x": np.zeros((cycles, 1, 1), dtype=np.uint8)})
    for net in "abcd":
        number = netlist.net_names.index(net)
        assert activity.toggles[number].tolist() == [10, 10]
    energy = energy_of(activity, timing)
    flop = cell_of(nangate_text, "DFF_X1")
    pins = {p.arguments[0]: p for p in flop.all("pin")}

    def hidden(pin: str, edge: str, **state: int) -> float:
        for group in pins[pin].all("internal_power"):
            if true_in(group.attributes.get("when"), state | {"QN": 1 - state["Q"]}):
                table = group.first(f"{edge}_power")
                assert table is not None
                return look_up(table, slews[pin][edge], 0.0)
        raise AssertionError((pin, state))

    d = netlist.net_names.index("d")
    slews = {"CK": {"rise": 0.02, "fall": 0.02}, "D": {"rise": timing.slew[d, 0], "fall": timing.slew[d, 1]}}
    expected = 0.0
    for q in (0, 1):  # before the edge; D is the complement, so Q takes 1 - q and D goes back to q
        new = 1 - q
        expected += hidden("CK", "rise", D=new, Q=q)
        for pin, edge in (("Q", "rise" if new else "fall"), ("QN", "fall" if new else "rise")):
            table = pins[pin].all("internal_power")[0].first(f"{edge}_power")
            load = of_port(netlist, nangate45, "a", edge, nangate_text) if pin == "Q" else 0.0
            assert table is not None
            expected += look_up(table, 0.02, load)
        expected += hidden("D", "rise" if q else "fall", D=q, CK=1, Q=new)
        expected += hidden("CK", "fall", D=q, Q=new)
    assert energy.internal[0] == pytest.approx(10 * expected, rel=1e-9)
    clock_pin = 0.5 * 1.21 * sum(float(pins["CK"].attributes[f"{e}_capacitance"]) for e in ("rise", "fall"))
    assert energy.clock == pytest.approx(20 * clock_pin, rel=1e-9)


def every_single_change(pins: int) -> np.ndarray[Any, Any]:
    """A walk over states that takes every change of one pin in every state at least once."""
    walk = [0]
    for state, pin in product(range(1 << pins), range(pins)):
        current = walk[-1]
        for bit in range(pins):  # to the state, one pin at a time
            if (current ^ state) >> bit & 1:
                current ^= 1 << bit
                walk.append(current)
        walk.append(state ^ 1 << pin)
    return np.array(walk)


@pytest.mark.parametrize(
    "name", ["XOR2_X1", "XNOR2_X1", "MUX2_X1", "AOI22_X1", "OAI21_X1", "AOI211_X1", "NAND3_X1"]
)
def test_every_arc_of_every_state_by_hand(nangate45: Library, nangate_text: Group, name: str) -> None:
    check_states(nangate45, nangate_text, name)


@pytest.mark.parametrize("name", ["NAND2x1", "XOR2x2", "MAJx2", "AND3x1", "NOR3x1"])
def test_every_arc_of_every_state_by_hand_at_7_nm(asap7: Library, asap7_text: list[Group], name: str) -> None:
    """Here inputs have hidden power, by state, too."""
    check_states(asap7, asap7_text, f"{name}_ASAP7_75t_R", time=1e-3, leakage_scale=1e-3)


def check_states(
    library: Library, text: Group | list[Group], name: str, time: float = 1.0, leakage_scale: float = 1.0
) -> None:
    cell = library.cells[name]
    output = cell.outputs[0]
    netlist = hand_made(
        library,
        [(name, {p: p.lower() for p in (*cell.inputs, output)})],
        " ".join(cell.inputs).lower(),
        output.lower(),
    )
    walk = every_single_change(len(cell.inputs))
    walk = np.concatenate([walk[:1], walk])  # the first cycle is not counted
    bits = {p.lower(): (walk >> i & 1).astype(np.uint8)[:, None, None] for i, p in enumerate(cell.inputs)}
    activity, timing = simulate(netlist, bits)
    energy = energy_of(activity, timing)
    group = cell_of(text, name)
    pins = {p.arguments[0]: p for p in group.all("pin")}
    ground = {g.arguments[0] for g in group.all("pg_pin") if "ground" in g.attributes["pg_type"]}

    def arcs(pin: str) -> list[Group]:
        return [
            g for g in pins[pin].all("internal_power") if g.attributes.get("related_pg_pin") not in ground
        ]

    internal = static = 0.0
    outcomes = []
    for before, after in pairwise(walk):
        state = {p: int(after) >> i & 1 for i, p in enumerate(cell.inputs)}
        values = [cell.functions[output] >> int(s) & 1 for s in (before, after)]
        state[output] = values[1]
        if before != after:
            moved = cell.inputs[int(before ^ after).bit_length() - 1]
            edge = "rise" if state[moved] else "fall"
            if values[0] != values[1]:
                related = [g for g in arcs(output) if g.attributes["related_pin"] == moved]
                fitting = [g for g in related if true_in(g.attributes.get("when"), state)]
                assert len(fitting) == 1, (name, moved, state)
                table = fitting[0].first(("rise" if values[1] else "fall") + "_power")
                load = library.description.output_load_ff
            else:
                fitting = [g for g in arcs(moved) if true_in(g.attributes.get("when"), state)]
                assert len(fitting) <= 1
                table, load = (fitting[0].first(f"{edge}_power") if fitting else None), 0.0
            outcomes.append((moved, edge, fitting[0].attributes.get("when") if fitting else None))
            if table is not None:
                internal += look_up(table, library.description.input_slew_ns / time, load)
        leaks = [
            float(g.attributes["value"])
            for g in group.all("leakage_power")
            if "when" in g.attributes
            and g.attributes.get("related_pg_pin") not in ground
            and true_in(g.attributes["when"], state)
        ]
        assert len(leaks) == 1
        static += leaks[0] * leakage_scale * CLOCK_NS * 1e-3
    assert len(set(outcomes)) >= 2 * len(cell.inputs)
    assert energy.internal.sum() == pytest.approx(internal, rel=1e-9)
    assert energy.leakage.sum() == pytest.approx(static, rel=1e-9)


def accumulate_energy(netlist: Netlist, copies: int, timed: bool, **changes: Any) -> Any:
    timing = analyse(netlist, 2.0)
    stimulus = random_bits(30, copies, seed=3, a=5, b=5, enable=1)
    for name, value in changes.items():
        stimulus[name][:] = value
    activity = Simulator(netlist, timing).run(stimulus, 2.0 if timed else None, counted_from=2)
    return energy_of(activity, timing)


@pytest.mark.parametrize("timed", [False, True])
def test_energy_is_linear_in_rows_and_adds_up_by_sub_unit(
    library: Library, accumulate: str, timed: bool
) -> None:
    """Copies with the same data: n of them take n times the energy of one, whatever bit they sit in."""
    netlist = synthesise(accumulate, library, 2.0)
    timing = analyse(netlist, 2.0)
    simulator = Simulator(netlist, timing)
    one = random_bits(30, 1, seed=3, a=5, b=5, enable=1)
    totals = []
    for copies in (1, 7, 64):
        stimulus = {name: np.repeat(bits, copies, axis=1) for name, bits in one.items()}
        energy = energy_of(simulator.run(stimulus, 2.0 if timed else None, 2), timing)
        totals.append(energy.total)
        assert sum(energy.by_unit().values()) == pytest.approx(energy.total, rel=1e-12)
        assert {INPUTS, CLOCK, "top"} <= set(energy.by_unit())
    assert totals[1] == pytest.approx(7 * totals[0], rel=1e-12)
    assert totals[2] == pytest.approx(64 * totals[0], rel=1e-12)
    assert sum(netlist.area_by_unit().values()) == pytest.approx(netlist.area)


@pytest.mark.parametrize("timed", [False, True])
def test_a_stopped_design_leaks_and_nothing_else(library: Library, accumulate: str, timed: bool) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    timing = analyse(netlist, 2.0)
    stimulus = {name: np.zeros((10, 8, w), dtype=np.uint8) for name, w in (("a", 5), ("b", 5), ("enable", 1))}
    activity = Simulator(netlist, timing).run(stimulus, 2.0 if timed else None, 1, clock_runs=False)
    energy = energy_of(activity, timing)
    assert energy.dynamic == 0.0
    assert energy.leakage.sum() > 0
    least = sum(min(netlist.cell(i).leakage) for i in range(netlist.cells)) * 8 * 9 * 2.0 * 1e-3
    most = sum(max(netlist.cell(i).leakage) for i in range(netlist.cells)) * 8 * 9 * 2.0 * 1e-3
    assert least <= energy.leakage.sum() <= most


def test_a_closed_clock_gate_saves_its_flip_flops_clock_energy(library: Library, accumulate: str) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    on, off = (accumulate_energy(netlist, 8, False, a=0, b=0, enable=value) for value in (1, 0))
    gated = [
        i
        for i in range(netlist.cells)
        if netlist.cell(i).kind == "flop" and netlist.pins[i][netlist.cell(i).clock] != netlist.clock
    ]
    assert len(gated) == 12
    assert on.internal[gated].min() > 0
    assert off.internal[gated].max() == 0


def test_glitches_cost_energy(library: Library, accumulate: str) -> None:
    netlist = synthesise(accumulate, library, 2.0)
    assert accumulate_energy(netlist, 32, True).total > 1.05 * accumulate_energy(netlist, 32, False).total
