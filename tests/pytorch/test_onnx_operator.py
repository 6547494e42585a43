"""The operator in ONNX: standard operators, and in onnxruntime the golden model's words."""

from __future__ import annotations

import collections
import contextlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from softermax import golden
from softermax.functional import softermax
from softermax.nn import Softermax
from softermax.pytorch import onnx as body
from softermax.pytorch import onnx_lean
from softermax.spec import PRESETS, AnySpec, DeferredSpec, SoftermaxSpec
from softermax.verify import Body, check, score_cases

OTHERS = {
    "wide": SoftermaxSpec(
        input="Q(8,8)", max="Q(8,0)", unnormed="Q(1,22)", powsum="Q(14,16)", reciprocal="Q(1,20)",
        output="Q(1,20)", slice_width=7, max_rounding="truncate", unnormed_rounding="half-even",
        powsum_rounding="half-even", output_rounding="half-even",
    ),
    "segments": SoftermaxSpec(
        input="Q(6,10)", unnormed="Q(1,24)", reciprocal="Q(2,16)", output="Q(0,16)", slice_width=5,
        pow2_segments=16, reciprocal_segments=64, output_mode="row-scaled",
    ),
    "narrow": SoftermaxSpec(
        input="Q(5,3)", max="Q(7,0)", unnormed="Q(1,9)", powsum="Q(3,4)", slice_width=3,
        unnormed_rounding="half-up", powsum_rounding="truncate", output_rounding="half-even",
    ),
    "one segment": SoftermaxSpec(pow2_segments=1, reciprocal_segments=1, slice_width=1),
}  # fmt: skip


def test_onnxruntime_computes_the_golden_models_words() -> None:
    (registered,) = body.bodies()
    verdict = check(registered, PRESETS, rows=30)
    assert verdict.note == ""
    assert verdict.mismatches == 0


@pytest.mark.parametrize("name", PRESETS)
def test_few_nodes(name: str) -> None:
    """None of them grows with the slices."""
    spec = PRESETS[name]
    nodes = body.operator_nodes(spec)
    assert nodes.total() <= (24 if spec.slice_width is None else 58)
    assert body.operator_nodes(spec.replace(base="fold")).total() == nodes.total() + 1
    assert nodes["GatherElements"] == nodes["Expand"] == nodes["Constant"] == 0


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("error", [-onnx_lean._EXP_ERROR, 0.0, onnx_lean._EXP_ERROR])
def test_an_exp_that_is_only_near_gives_the_words(name: str, error: float) -> None:
    """In single precision, as a runtime computes: near, perhaps split, times a scale for each max, rounded once."""
    spec = PRESETS[name]
    nudge, snap = onnx_lean._nudge(spec), onnx_lean._snap(spec)
    assert (nudge is None) == (name == "lean")
    raw, one = np.arange(spec.input.low, spec.input.high + 1), 1 << spec.input.fraction
    powers = (2.0 ** (raw / one) * (1 + error)).astype(np.float32)
    rounded = np.floor if spec.unnormed_rounding == "truncate" else np.rint
    if nudge is None:
        assert snap is not None
        large = powers * np.float32(snap)
        powers, rounded = large - (large - powers), lambda x: np.floor(x + np.float32(0.5))
    for maximum in range(spec.max_low, spec.max_high + 1):
        below = golden.int_max(raw, spec) <= maximum
        scaled = powers[below] * np.float32((nudge or 1.0) * 2.0 ** (spec.unnormed.fraction - maximum))
        assert scaled.dtype == np.float32
        assert (rounded(scaled) == golden.power_of_two(raw[below], maximum, spec)).all()


def test_powers_that_an_exp_does_not_give_are_looked_up() -> None:
    """Those of a coarse table, and those of scores too large for it."""
    coarse, large = {"pow2_segments": 1}, {"input": "Q(7,1)", "max": "Q(7,1)"}
    for changes in (coarse, large):
        spec = PRESETS["paper"].replace(**changes)
        assert onnx_lean._nudge(spec) is None
        assert onnx_lean._snap(spec) is None


def test_a_spec_that_has_no_lean_form_has_the_other() -> None:
    spec = PRESETS["paper"].replace(input_rounding="half-up")
    assert not onnx_lean.takes(spec)
    assert onnx_lean.takes(PRESETS["paper"])
    assert body.operator_nodes(spec).total() > 100


EDGES = {
    "sums saturate": PRESETS["paper"].replace(powsum="Q(6,6)"),
    "narrow scores": PRESETS["paper"].replace(input="Q(5,2)", slice_width=4),
    "floor max": PRESETS["row-scaled"].replace(
        max_rounding="truncate", slice_width=3, powsum_rounding="half-even"
    ),
    "lean, one by one": PRESETS["lean"].replace(slice_width=1, powsum_rounding="truncate"),
    "powers looked up": PRESETS["paper"].replace(pow2_segments=1),
    "powers looked up, whole rows": PRESETS["whole-row"].replace(pow2_segments=1),
    "half to even": PRESETS["whole-row"].replace(unnormed_rounding="half-even", output_rounding="half-even"),
    "truncated outputs": PRESETS["paper"].replace(output_rounding="truncate"),
    "whole rows": PRESETS["lean-row-scaled"].replace(slice_width=None, powsum="Q(10,6)"),
}


@pytest.mark.parametrize("name", EDGES)
def test_rows_in_which_the_max_grows_often(name: str) -> None:
    """Each slice a little above the one before, and sums that saturate on the way: where the running sum is hardest."""
    spec = EDGES[name]
    assert onnx_lean.takes(spec)
    generator = np.random.default_rng(3)
    columns = 40 * (spec.slice_width or 2)
    rising = np.linspace(spec.input.low, spec.input.high, columns).astype(np.int64)
    rows = [rising, rising[::-1], np.full(columns, spec.input.high), np.full(columns, spec.input.low)]
    rows += [
        np.clip(rising + generator.integers(-8, 9, columns), spec.input.low, spec.input.high)
        for _ in range(40)
    ]
    rows += [np.sort(generator.integers(spec.input.low, spec.input.high + 1, columns)) for _ in range(40)]
    raw = np.stack(rows)
    mask = generator.random(raw.shape) < 0.8
    mask[:4] = True
    mask[4, : columns // 2] = False
    mask[5] = False
    (registered,) = body.bodies()
    words, exponent = registered.run(spec, raw, mask)
    want = golden.softermax(raw, spec, mask)
    assert (words == want.words).all()
    if spec.output_mode == "row-scaled":
        assert (exponent == want.exponent).all()


@pytest.mark.parametrize("name", OTHERS)
def test_any_spec_gives_the_golden_models_words(name: str) -> None:
    """In PyTorch, before a runtime has it."""

    def run(spec: SoftermaxSpec, raw: Any, mask: Any) -> tuple[Any, Any]:
        y, leading_one = body.softermax(torch.from_numpy(raw).double(), torch.from_numpy(mask), spec)
        exponent = (leading_one - spec.powsum.fraction).to(torch.int64).numpy()
        return y.to(torch.int64).numpy(), exponent if spec.output_mode == "row-scaled" else None

    assert check(Body("in PyTorch", run), {name: OTHERS[name]}, rows=10).mismatches == 0


def test_a_wide_spec_in_onnxruntime() -> None:
    (registered,) = body.bodies()
    assert check(registered, {"wide": OTHERS["wide"]}, rows=30).mismatches == 0


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            SoftermaxSpec(unnormed="Q(1,31)", reciprocal="Q(1,30)"),
            "Q.1,31. times reciprocal Q.1,30. has 63 bits",
        ),
        (SoftermaxSpec(max="Q(9,0)"), "max Q.9,0.*must have at most 8 integer bits"),
        (DeferredSpec(), "deferred normalisation .A8. has no ONNX form"),
    ],
)
def test_what_onnx_cannot_have_is_refused(spec: AnySpec, says: str) -> None:
    with pytest.raises(ValueError, match=says), body.exportable():
        softermax(torch.zeros(1, 4), spec=spec)
    (registered,) = body.bodies()
    assert not registered.supports(spec)


def exported(folder: Path, spec: SoftermaxSpec, new: bool) -> Any:
    """The operator with a mask, for any shape, by one of PyTorch's two exporters."""
    path = folder / "operator.onnx"
    inputs = (torch.zeros(2, 3, 20), torch.ones(2, 3, 20, dtype=torch.bool))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        module = Softermax(spec=spec).eval()
        if new:
            sizes = dict.fromkeys(range(3), torch.export.Dim.DYNAMIC)
            torch.onnx.export(
                module, inputs, str(path), dynamo=True, dynamic_shapes=(sizes, sizes), verbose=False,
                input_names=["x", "mask"], external_data=False,
            )  # fmt: skip
        else:
            names = {axis: f"d{axis}" for axis in range(3)}
            torch.onnx.export(
                module, inputs, str(path), dynamo=False, dynamic_axes={"x": names, "mask": names},
                input_names=["x", "mask"], opset_version=18,
            )  # fmt: skip
    proto = onnx.load(path)
    assert {node.domain for node in proto.graph.node} == {""}
    assert not proto.functions
    assert "Softmax" not in collections.Counter(node.op_type for node in proto.graph.node)
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def compare(session: Any, spec: SoftermaxSpec) -> None:
    generator = torch.Generator().manual_seed(5)
    for shape in ((1, 1, 1), (2, 3, 20), (4, 2, 16), (1, 5, 129), (3, 1, 64)):
        x = torch.randn(shape, generator=generator) * 8
        mask = torch.rand(shape, generator=generator) < 0.7
        mask[0, 0] = False
        (got,) = session.run(None, {"x": x.numpy(), "mask": mask.numpy()})
        expected = softermax(x, mask=mask, spec=spec)
        assert got.dtype == np.float32
        assert (got == expected.numpy()).all()
        assert (got == spec.compute(x.numpy(), mask.numpy()).astype(np.float32)).all()


def test_torch_export_gives_standard_operators_and_the_same_bits(tmp_path: Path) -> None:
    spec = PRESETS["whole-row"].replace(base="fold")
    session = exported(tmp_path, spec, new=True)
    compare(session, spec)
    # A score that is no number makes no number, and disturbs no other row.
    x = np.zeros((1, 2, 4), dtype=np.float32)
    x[0, 0, 1] = np.nan
    (got,) = session.run(None, {"x": x, "mask": np.ones(x.shape, dtype=np.bool_)})
    assert np.isnan(got[0, 0, 1])
    assert (got[0, 1] == 0.25).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PRESETS if name != "whole-row"])
def test_torch_export_of_the_presets_with_slices(tmp_path: Path, name: str) -> None:
    compare(exported(tmp_path, PRESETS[name], new=True), PRESETS[name])


@pytest.mark.parametrize("name", PRESETS)
def test_tracing_gives_standard_operators_and_the_same_bits(tmp_path: Path, name: str) -> None:
    compare(exported(tmp_path, PRESETS[name], new=False), PRESETS[name])


@pytest.mark.parametrize("segments", [1, 4])
def test_scores_without_fraction_bits(tmp_path: Path, segments: int) -> None:
    """A factor of one and a table of one entry are no reason to fail."""
    spec = SoftermaxSpec(input="Q(6,0)", pow2_segments=segments)
    compare(exported(tmp_path, spec, new=False), spec)
    (registered,) = body.bodies()
    assert check(registered, {"whole numbers": spec}, rows=10).mismatches == 0


@pytest.mark.slow
def test_torch_export_of_scores_without_fraction_bits(tmp_path: Path) -> None:
    spec = SoftermaxSpec(input="Q(6,0)")
    compare(exported(tmp_path, spec, new=True), spec)


@pytest.mark.parametrize("rounding", ["truncate", "half-up"])
def test_scores_round_in_onnxruntime_as_in_the_golden_model(tmp_path: Path, rounding: Any) -> None:
    spec = PRESETS["whole-row"].replace(input_rounding=rounding, base="fold")
    session = exported(tmp_path, spec, new=False)
    for case in score_cases(spec, 4, "float32"):
        (got,) = session.run(None, {"x": case.scores[None], "mask": case.mask[None]})
        assert (got[0] == spec.compute(case.scores, case.mask).astype(np.float32)).all(), case.name


def test_the_exportable_form_gives_the_same_bits_and_goes_away_again() -> None:
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    expected = softermax(x)
    with body.exportable():
        assert body.exporting()
        assert torch.equal(softermax(x), expected)
    assert not body.exporting()


def test_an_exported_program_is_fit_for_onnx_within_the_block() -> None:
    module, inputs = Softermax(spec="whole-row").eval(), (torch.zeros(2, 20),)
    targets = []
    for block in (body.exportable(), contextlib.nullcontext()):
        with block, torch.no_grad():
            graph = torch.export.export(module, inputs).graph
        targets.append({str(node.target) for node in graph.nodes if node.op == "call_function"})
    unfit = ("softermax.", "shift", "view.dtype", "cummax")
    assert not any(word in target for target in targets[0] for word in unfit)
    assert any(word in target for target in targets[1] for word in unfit)
