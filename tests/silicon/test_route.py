"""Units placed and routed: a layout as our meter takes it, OpenROAD that is missing or crashes, and a real layout."""

from __future__ import annotations

import ast
import gzip
import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_designs import hand_made, random_bits

from softermax.cli import main
from softermax.silicon import verilog
from softermax.silicon.flow import GLITCHES, ZERO_DELAY, EnergyResult, Result
from softermax.silicon.jobs import GateJob
from softermax.silicon.library import Library
from softermax.silicon.netlist import Netlist
from softermax.silicon.power import energy_of
from softermax.silicon.route import layout as script
from softermax.silicon.route import openroad
from softermax.silicon.route.activity import Switching, switching
from softermax.silicon.route.flow import Added, RoutedResult, measure_routed
from softermax.silicon.route.netlist import BUFFERS, CLOCK_TREE, RoutedNetlist, routed
from softermax.silicon.route.openroad import (
    Detailed,
    Layout,
    LayoutError,
    LayoutOptions,
    find,
    lay_out,
    power_w,
)
from softermax.silicon.route.pages import compared_rows
from softermax.silicon.route.table import RouteTable, build_route_table, names_of
from softermax.silicon.route.technology import job_of, require_routable
from softermax.silicon.simulation import Activity, Simulator
from softermax.silicon.stimuli import gaussian
from softermax.silicon.synthesis import synthesise
from softermax.silicon.table import Order, UnitRow, UnitTable
from softermax.silicon.timing import FALL, RISE, analyse
from softermax.silicon.units import UnnormedUnit, baseline_unit
from softermax.spec import SoftermaxSpec

CLOCK_NS = 1.5
FIGURES: dict[str, Any] = {
    "slack_ns": 0.1, "hold_slack_ns": 0.02, "latency_ns": 0.2, "skew_ns": 0.03, "wire_um": 100.0, "core_um2": 50.0,
    "detailed": None, "verilog": "", "spef": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def mapped(nangate45: Library, accumulate: str) -> Netlist:
    return synthesise(accumulate, nangate45, CLOCK_NS)


def laid_out(netlist: Netlist, tree: str = "CLKBUF_X2", wire_ff: float = 2.0) -> Layout:
    """What OpenROAD would answer: the netlist with a clock buffer in front of every flip-flop, one below the clock and one
    below each gate, and a buffer at the first input."""
    cells, above = [], {}

    def clock_of(net: int) -> str:
        if net not in above:
            above[net] = f"tree{net}"
            cells.append((f"root{net}", tree, {"A": verilog.net_name(net), "Z": above[net]}))
        leaf = f"leaf{len(cells)}"
        cells.append((leaf, tree, {"A": above[net], "Z": leaf}))
        return leaf

    for index in range(netlist.cells):
        cell, pins = netlist.cell(index), {p: verilog.net_name(n) for p, n in netlist.pins[index].items()}
        if cell.kind == "flop":
            pins[cell.clock] = clock_of(netlist.pins[index][cell.clock])
        cells.append((verilog.cell_name(index), netlist.types[index], pins))
    ports = {
        verilog.port_bit(port, i): verilog.net_name(net)
        for some in (netlist.inputs, netlist.outputs)
        for port, bits in some.items()
        for i, net in enumerate(bits)
    }
    nets = {net for _, _, pins in cells for net in pins.values()} | set(ports.values())
    return Layout(cells=cells, ports=ports, wires_ff=dict.fromkeys(nets, wire_ff), **FIGURES)


def run(netlist: RoutedNetlist) -> Activity:
    ideal = netlist.without_tree()
    stimulus = random_bits(40, 8, a=5, b=5, enable=1)
    return Simulator(ideal, analyse(ideal, CLOCK_NS)).run(stimulus, CLOCK_NS)


def test_a_routed_netlist_computes_what_the_mapped_one_does(mapped: Netlist) -> None:
    stimulus = random_bits(40, 8, a=5, b=5, enable=1)
    before = Simulator(mapped, analyse(mapped, CLOCK_NS)).run(stimulus, CLOCK_NS)
    after = run(routed(laid_out(mapped), mapped))
    assert np.array_equal(before.outputs["total"], after.outputs["total"])
    assert after.outputs["total"].any()


def test_cells_keep_their_sub_units_and_added_ones_have_their_own(mapped: Netlist) -> None:
    layout = laid_out(mapped)
    first = next(pins for name, _, pins in layout.cells if name == verilog.cell_name(0))
    pin = next(iter(mapped.cell(0).inputs))
    extra = ("hold1", "BUF_X1", {"A": first[pin], "Z": "held"})
    first[pin] = "held"
    netlist = routed(replace(layout, cells=[*layout.cells, extra]), mapped)
    counts = {name: netlist.units.count(name) for name in (*set(mapped.units), CLOCK_TREE, BUFFERS)}
    assert counts[BUFFERS] == 1
    assert counts[CLOCK_TREE] == sum(kind == "CLKBUF_X2" for kind in netlist.types) > 2
    assert all(counts[unit] == mapped.units.count(unit) for unit in set(mapped.units))
    tree = counts[CLOCK_TREE] * mapped.library.cell("CLKBUF_X2").area + mapped.library.cell("BUF_X1").area
    assert netlist.area == pytest.approx(mapped.area + tree)


def test_the_tree_switches_with_the_clock_and_behind_a_gate_with_the_gate(mapped: Netlist) -> None:
    netlist = routed(laid_out(mapped), mapped)
    activity = netlist.with_tree(run(netlist))
    sources = set(netlist.tree.values())
    assert netlist.clock in sources
    assert len(sources) == 2, "the accumulator's registers have a clock gate"
    clock = activity.toggles[netlist.clock]
    assert clock[RISE] == clock[FALL] == 40 * 8
    for net, source in netlist.tree.items():
        assert np.array_equal(activity.toggles[net], activity.toggles[source])
    gated = next(source for source in sources if source != netlist.clock)
    assert 0 < activity.toggles[gated, RISE] < clock[RISE]


def test_the_trees_energy_is_that_of_its_capacitances_tables_and_leakage(nangate45: Library) -> None:
    netlist = routed(laid_out(_register(nangate45), wire_ff=5.0), _register(nangate45))
    ideal = netlist.without_tree()
    activity = Simulator(ideal, analyse(ideal, CLOCK_NS)).run(random_bits(10, 4, x=1), None)
    timing = analyse(netlist, CLOCK_NS)
    spent = energy_of(netlist.with_tree(activity), timing)
    root, leaf = (netlist.cell_names.index(name) for name in ("root2", "leaf1"))
    buffer, flop = nangate45.cell("CLKBUF_X2"), nangate45.cell("DFF_X1")
    edges = 10 * 4
    for index, pins in ((root, buffer.capacitance["A"]), (leaf, flop.capacitance["CK"])):
        charge = sum(5.0 + capacitance for capacitance in pins)
        assert spent.switching[index] == pytest.approx(0.5 * nangate45.voltage**2 * charge * edges)
        arc = next(arc for arc in buffer.power if arc.pin == "Z")
        source, net = netlist.pins[index]["A"], netlist.pins[index]["Z"]
        internal = sum(
            float(
                nangate45.tables.at(np.array([table]), timing.slew[[source], edge], timing.load[[net], edge])[
                    0
                ]
            )
            for edge, table in ((RISE, arc.rise), (FALL, arc.fall))
        )
        assert spent.internal[index] == pytest.approx(internal * edges)
        assert spent.leakage[index] == pytest.approx(np.mean(buffer.leakage) * CLOCK_NS * edges * 1e-3)


def _register(library: Library) -> Netlist:
    return hand_made(library, [("DFF_X1", {"D": "x", "CK": "clk", "Q": "y"})], "clk x", "y")


def test_wires_are_those_of_the_layout(mapped: Netlist) -> None:
    layout = laid_out(mapped, wire_ff=7.0)
    pins, wires = routed(layout, mapped).loads(mapped.library.wire)
    assert set(wires[2:]) == {7.0}
    assert pins.sum() > mapped.loads(mapped.library.wire)[0].sum()


def test_a_tree_of_anything_but_buffers_is_refused_by_name(mapped: Netlist) -> None:
    layout = laid_out(mapped)
    cells = [
        (name, "INV_X1", {"A": pins["A"], "ZN": pins["Z"]}) if kind == "CLKBUF_X2" else (name, kind, pins)
        for name, kind, pins in layout.cells
    ]
    with pytest.raises(ValueError, match=r"accumulate: cell \w+ \(INV_X1\) of the clock tree is no buffer"):
        routed(replace(layout, cells=cells), mapped)


def test_an_open_pin_is_refused_by_name(mapped: Netlist) -> None:
    layout = laid_out(mapped)
    name, kind, pins = layout.cells[-1]
    missing = mapped.library.cell(kind).inputs[0]
    broken = (name, kind, {pin: net for pin, net in pins.items() if pin != missing})
    with pytest.raises(ValueError, match=f"input {missing} of cell {name} .* is not connected"):
        routed(replace(layout, cells=[*layout.cells[:-1], broken]), mapped)


def fake(folder: Path, body: str) -> LayoutOptions:
    """A Python that says it has OpenROAD and runs ``body`` in place of the script; ``turn`` counts its runs."""
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, signal, sys\nfrom pathlib import Path\nturns = Path({str(folder / 'turns')!r})\n"
        "turn = int(turns.read_text()) + 1 if turns.exists() else 1\nturns.write_text(str(turn))\n"
        f"here = Path(sys.argv[2]).parent\njob = json.loads(Path(sys.argv[2]).read_text())\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return LayoutOptions(str(path), "test")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "cache"))
    return tmp_path


def answer_of(folder: Path, layout: Layout, **changes: Any) -> str:
    (folder / "answer").write_text(json.dumps(vars(layout) | changes))
    return f"(here / 'answer.json').write_text(Path({str(folder / 'answer')!r}).read_text())"


def turns(folder: Path) -> int:
    return int((folder / "turns").read_text())


def test_a_crash_is_tried_again_and_the_layout_kept(mapped: Netlist, own_cache: Path) -> None:
    body = "if turn < 3:\n    os.kill(os.getpid(), signal.SIGSEGV)\n" + answer_of(own_cache, laid_out(mapped))
    options = fake(own_cache, body)
    assert lay_out(mapped, CLOCK_NS, options).wire_um == FIGURES["wire_um"]
    assert turns(own_cache) == 3
    lay_out(mapped, CLOCK_NS, options)
    assert turns(own_cache) == 3, "what was made is kept"
    lay_out(mapped, CLOCK_NS, replace(options, utilisation=0.6))
    assert turns(own_cache) == 4, "another utilisation is another layout"


def test_one_that_always_crashes_is_an_error_that_says_where(mapped: Netlist, own_cache: Path) -> None:
    options = fake(own_cache, "print('placing', flush=True)\nos.kill(os.getpid(), signal.SIGABRT)")
    said = f"accumulate: OpenROAD crashed {openroad.ATTEMPTS} times, at last by SIGABRT, after: placing"
    with pytest.raises(LayoutError, match=said):
        lay_out(mapped, CLOCK_NS, options)
    assert not list((own_cache / "cache").rglob("*.json.gz")), "nothing half-made is kept"


def test_a_step_that_fails_is_named_and_not_tried_again(mapped: Netlist, own_cache: Path) -> None:
    body = "print('[ERROR DPL-0036] no room')\n(here / 'error').write_text('detailed_placement: DPL-0036')\nsys.exit(1)"
    with pytest.raises(
        LayoutError, match=r"failed in detailed_placement: DPL-0036: \[ERROR DPL-0036\] no room"
    ):
        lay_out(mapped, CLOCK_NS, fake(own_cache, body))
    assert turns(own_cache) == 1


def test_a_layout_that_misses_its_clock_is_made_with_more_margin(mapped: Netlist, own_cache: Path) -> None:
    answer = answer_of(own_cache, laid_out(mapped))
    late = "path = here / 'answer.json'\nmade = json.loads(path.read_text())\nmade['slack_ns'] = job['setup_margin_ns'] - 0.12\n"
    options = fake(own_cache, f"{answer}\n{late}path.write_text(json.dumps(made))")
    assert lay_out(mapped, CLOCK_NS, options).slack_ns == pytest.approx(0.03)
    assert turns(own_cache) == 3
    never = late.replace("0.12", "0.9")
    options = replace(fake(own_cache, f"{answer}\n{never}path.write_text(json.dumps(made))"), utilisation=0.5)
    assert lay_out(mapped, CLOCK_NS, options).slack_ns == pytest.approx(max(openroad.SETUP_MARGINS_NS) - 0.9)


def test_a_job_says_what_the_table_assumes(mapped: Netlist, nangate45: Library, own_cache: Path) -> None:
    answer = answer_of(own_cache, laid_out(mapped))
    seen = own_cache / "job"
    lay_out(mapped, CLOCK_NS, fake(own_cache, f"Path({str(seen)!r}).write_text(json.dumps(job))\n{answer}"))
    job, d = json.loads(seen.read_text()), nangate45.description
    assert (job["clock_ns"], job["utilisation"], job["clock"]) == (CLOCK_NS, 0.7, "p_clk_0")
    assert (job["input_slew_ns"], job["output_load_ff"]) == (d.input_slew_ns, d.output_load_ff)
    assert {"DFF_X2", "CLKGATE_X8"} <= set(job["dont_use"])
    assert "BUF_X1" not in job["dont_use"]
    assert 0.05 < job["input_hold_ns"] < 0.12, "a flip-flop's clock-to-output"
    assert all(Path(lef).is_file() for lef in job["lef"])


def test_the_script_runs_in_a_python_without_this_package() -> None:
    tree = ast.parse(Path(script.__file__).read_text(encoding="utf-8"))
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "openroad" in names
    assert not [name for name in names if name.split(".")[0] in ("softermax", "numpy")]


def test_openroad_that_is_missing_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="--openroad no/such/python: no such program"):
        find("no/such/python")
    monkeypatch.setenv(openroad.VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone: no such program"):
        find()
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho 'No module named openroad' >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(
        FileNotFoundError,
        match=r"does not import openroad \(No module named openroad\): pip install openroad",
    ):
        find(str(bare))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--utilisation", "0.8"], "--utilisation: only --route makes a layout"),
        (["--detailed", "unnormed"], "--detailed: only --route makes a layout"),
        (["--route", "--plot", "x"], "--parts, --plot: the table of units alone has them"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["silicon", *options]) == 2
    assert said in capsys.readouterr().err


def test_utilisations_and_libraries_without_a_layout_are_refused(nangate45: Library) -> None:
    for utilisation in (0.0, 0.95, 70.0):
        with pytest.raises(ValueError, match=f"--utilisation {utilisation}: must be 0.1 to 0.9"):
            LayoutOptions("python", "0", utilisation)
    with pytest.raises(ValueError, match="--library asap7: --route has layout rules of nangate45 alone"):
        require_routable("asap7")
    assert job_of(nangate45)["site"]


def test_kept_layouts_read_back_as_they_were_written(tmp_path: Path, mapped: Netlist) -> None:
    layout = laid_out(mapped)
    (tmp_path / "layout").write_bytes(gzip.compress(json.dumps(vars(layout)).encode()))
    assert Layout.read(tmp_path / "layout").wires_ff == layout.wires_ff


def test_what_openroad_is_told_is_what_was_counted(nangate45: Library) -> None:
    netlist = routed(laid_out(_register(nangate45)), _register(nangate45))
    bits = random_bits(40, 8, x=1)
    job = GateJob(None, 40, 8, 320, 0, bits)
    ideal = netlist.without_tree()
    activity = Simulator(ideal, analyse(ideal, CLOCK_NS)).run(bits, CLOCK_NS)
    told = switching(netlist.with_tree(activity), job)
    pins = {name: (often, high) for name, often, high in told["pins"]}
    stored = activity.outputs["y"][:, :, 0].astype(int)
    changes = np.abs(np.diff(stored, axis=0, prepend=0)).sum()
    assert pins["u0/Q"][0] == pytest.approx(changes / 320)
    assert 0.3 < pins["u0/Q"][1] < 0.7
    for buffer in ("root2/Z", "leaf1/Z"):
        assert pins[buffer] == pytest.approx((2.0, 0.5)), "the tree rises and falls in every cycle"
    ((port, often, high),) = told["ports"]
    given = bits["x"][:, :, 0].astype(int)
    assert port == "p_x_0"
    assert often == pytest.approx(np.abs(np.diff(given, axis=0, prepend=0)).sum() / 320)
    assert high == pytest.approx(given.mean())


def test_openroads_power_is_asked_of_its_own_netlist_and_wires(mapped: Netlist, own_cache: Path) -> None:
    body = (
        "assert (here / 'netlist.v').read_text() == 'a netlist' and (here / 'wires.spef').read_text() == 'wires'\n"
        "assert job['activity'] == {'pins': [['u0/Z', 0.5, 0.25]], 'ports': []} and job['clock_ns'] == 1.5\n"
        "(here / 'answer.json').write_text(json.dumps({'clock': 0.001, 'total': 0.0125}))"
    )
    layout = replace(laid_out(mapped), verilog="a netlist", spef="wires")
    told: Switching = {"pins": [("u0/Z", 0.5, 0.25)], "ports": []}
    assert power_w(layout, mapped, CLOCK_NS, told, fake(own_cache, body).python) == 0.0125


def test_units_to_be_routed_in_detail_are_named_and_others_refused() -> None:
    ours, theirs = (
        UnnormedUnit(SoftermaxSpec(slice_width=2), "mine"),
        baseline_unit("unnormed", "two-pass", 2),
    )
    assert (names_of(ours), names_of(theirs)) == (
        ("unnormed", "unnormed/mine"),
        ("unnormed", "unnormed/two-pass"),
    )
    orders = [Order(unit, "nangate45", None, None) for unit in (ours, theirs)]
    with pytest.raises(
        ValueError, match="--detailed lean: must be one of unnormed, unnormed/mine, unnormed/two-pass"
    ):
        build_route_table(orders, ["two-pass"], LayoutOptions("python", "0"), ["lean"])


def test_rows_have_openroads_ratio_and_what_detailed_routing_came_to() -> None:
    added = Added(3, 1, 0, 900.0, 80.0, 50.0, 0.2, 0.03, 0.02, 400.0, None)
    energy = [EnergyResult("made up", mode, 2.0, {}, 2.0, 0.0, 0.0) for mode in (ZERO_DELAY, GLITCHES)]

    def result(design: str, preset: str, pj: float, detailed: Detailed | None) -> RoutedResult:
        made = (2, "nangate45", 1.5, "routed", 300.0, {}, {}, 0.1, [], 4, energy)
        return RoutedResult(
            "unnormed", design, preset, *made, None, replace(added, detailed=detailed), {"made up": pj}
        )

    row = UnitRow("unnormed", 2, "nangate45", "mine", "two-pass", 1.5, 0.1, 0.1, 300.0, 0.5, 2.0, 0.5, 0.5)
    results: list[Result] = [
        result("softermax", "mine", 1.5, Detailed(2, 700.4)),
        result("two-pass", "", 6.0, None),
    ]
    tables = [UnitTable([row], results, "made up", 384, "") for _ in range(2)]
    table = RouteTable(*tables, LayoutOptions("python", "0"))
    (found,) = table.to_json()
    assert (found["openroad_pj_per_element"], found["baseline_openroad_pj_per_element"]) == (1.5, 6.0)
    assert found["openroad_energy_ratio"] == 0.25
    assert (found["violations"], found["detailed_wire_um"], found["wire_um"]) == (2, 700, 900)
    assert found["baseline_violations"] is None
    assert compared_rows(table)[0]["by OpenROAD's report"] == 0.25


@pytest.mark.slow
@pytest.mark.tool("openroad")
def test_a_small_unit_is_placed_routed_and_still_gives_its_words(nangate45: Library, own_cache: Path) -> None:
    unit = UnnormedUnit(SoftermaxSpec(slice_width=2))
    options = LayoutOptions(*find())
    result = measure_routed(unit, nangate45, CLOCK_NS, [gaussian(32)], options)
    added = result.added
    assert added is not None
    assert result.words_equal > 0
    assert result.meets
    assert added.hold_slack_ns > 0
    assert added.tree_cells > 0
    assert added.wire_um > 0
    assert result.area_by_unit[CLOCK_TREE] > 0
    assert 0.6 < result.area_um2 / added.core_um2 < 0.85
    # OpenROAD weighs states by probabilities and leaves out the nets that ports drive.
    assert 0.8 < result.openroad_pj["gaussian"] / result.pj("gaussian") < 1.1
    energy = result.energy_by_unit("gaussian")
    assert 0 < energy[CLOCK_TREE] < result.pj("gaussian") / 2
