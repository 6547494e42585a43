"""The compiled operators in onnxruntime: the golden model's bits, whatever the mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from softermax.golden.attention import attention
from softermax.pytorch import onnx_operator
from softermax.spec import PRESETS, DeferredSpec, SoftermaxSpec
from softermax.verify import check

pytestmark = pytest.mark.skipif(
    onnx_operator.library() is None, reason="the native core is not installed: no C++ compiler"
)


def test_the_operator_gives_the_golden_models_probabilities() -> None:
    (body,) = onnx_operator.bodies()
    verdict = check(body, PRESETS, rows=100)
    assert verdict.note == ""
    assert verdict.specs == len(PRESETS)
    assert verdict.scores > 0
    assert verdict.mismatches == 0


@pytest.mark.parametrize("shape", [(3, 2, 7, 40), (3, 1, 7, 40), (1, 1, 1, 40), (1, 2, 1, 40)])
def test_a_mask_broadcasts(shape: tuple[int, ...]) -> None:
    spec = PRESETS["lean"]
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 5, (3, 2, 7, 40)).astype(np.float32)
    mask = rng.random(shape) < 0.7
    inputs = {"scores": np.float32, "mask": np.bool_}
    run = onnx_operator.node_session("Softermax", inputs, 4, onnx_operator.attributes(spec)).run
    (out,) = run(None, {"scores": scores, "mask": mask})
    assert (out == spec.compute(scores, np.broadcast_to(mask, scores.shape)).astype(np.float32)).all()


def test_a_mask_that_does_not_fit_is_refused() -> None:
    feeds = {"scores": np.zeros((3, 8), np.float32), "mask": np.ones((3, 1), np.bool_)}
    with pytest.raises(Exception, match="mask must broadcast against the scores"):
        onnx_operator.rows_session(PRESETS["paper"]).run(None, feeds)


def test_without_a_mask_every_element_takes_part() -> None:
    spec = PRESETS["paper"]
    scores = np.random.default_rng(1).normal(0, 5, (6, 33)).astype(np.float32)
    run = onnx_operator.node_session(
        "Softermax", {"scores": np.float32}, 2, onnx_operator.attributes(spec)
    ).run
    assert (run(None, {"scores": scores})[0] == spec.compute(scores).astype(np.float32)).all()


def test_only_masked_scores_may_be_infinite() -> None:
    spec = PRESETS["paper"]
    scores, mask = np.zeros((2, 5), np.float32), np.ones((2, 5), np.bool_)
    scores[1, 2], mask[1, 2] = np.nan, False
    (out,) = onnx_operator.rows_session(spec).run(None, {"scores": scores, "mask": mask})
    assert (out == spec.compute(np.zeros((2, 5)), mask).astype(np.float32)).all()
    mask[1, 2] = True
    with pytest.raises(Exception, match="found NaN or infinity in row 1"):
        onnx_operator.rows_session(spec).run(None, {"scores": scores, "mask": mask})


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(("heads_last", "out_heads_last"), [(False, False), (True, False), (True, True)])
def test_attention_gives_the_golden_models_bits(name: str, heads_last: bool, out_heads_last: bool) -> None:
    spec = PRESETS[name]
    rng = np.random.default_rng(2)
    shapes: dict[str, Any] = {"q": (2, 4, 9, 16), "k": (2, 2, 21, 16), "v": (2, 2, 21, 16)}
    tensors = {part: rng.integers(-127, 128, shape).astype(np.int8) for part, shape in shapes.items()}
    mask = rng.random((2, 1, 9, 21)) < 0.8
    scale, value_scale = 0.004, 2.0**-7
    inputs = dict.fromkeys(tensors, np.int8) | {"mask": np.bool_}
    described = onnx_operator.attention_attributes(spec, scale, value_scale, heads_last, out_heads_last)
    feeds = {part: np.moveaxis(x, 1, 2).copy() if heads_last else x for part, x in tensors.items()}
    run = onnx_operator.node_session("SoftermaxAttention", inputs, 4, described).run
    (out,) = run(None, feeds | {"mask": mask})
    expected = attention(*tensors.values(), spec, scale, value_scale, mask=mask)
    assert ((np.moveaxis(out, 1, 2) if out_heads_last else out) == expected.value).all()


def test_what_the_core_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match=r"output is Q.1,12.*export with standard operators"):
        onnx_operator.attributes(SoftermaxSpec(output="Q(1,12)"))
    with pytest.raises(ValueError, match="deferred"):
        onnx_operator.attributes(DeferredSpec())
