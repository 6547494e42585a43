"""Linear layers that multiply in bfloat16 while they train, and in float32 otherwise."""

import pytest
import torch
from torch import nn

from softermax.finetune.products import training_products
from softermax.finetune.run import Run
from softermax.finetune.train import predict, prepare, train

pytest.importorskip("modelopt")
FAST = {"learning_rate": 5e-3, "epochs": 4.0, "batch": 16}


def test_operands_are_rounded_within_the_block_only():
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 32), torch.randn(8, 64)
    exact = layer(x)
    with training_products(layer, "float32"):
        assert torch.equal(layer(x), exact)
    with training_products(layer, "bfloat16"):
        rounded = layer(x)
        rounded.sum().backward()
    assert torch.equal(layer(x), exact)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert layer.weight.grad.dtype == torch.float32


def test_a_training_that_fails_leaves_the_layers_as_they_were():
    layer, x = nn.Linear(64, 32), torch.randn(8, 64)
    with pytest.raises(RuntimeError), training_products(layer, "bfloat16"):
        raise RuntimeError
    assert "forward" not in vars(layer)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("arm", ["fp32", "softermax"])
def test_an_arm_learns_with_them_and_is_scored_without(tiny_model, tiny_data, tmp_path, arm):
    run = Run(task="sst2", arm=arm, model=tiny_model, products="bfloat16", **FAST)
    prepared = prepare(run, tiny_data)
    result = train(prepared, tmp_path, keep_model=False)
    assert result.scores["accuracy"] > 90
    assert (predict(prepared.model, prepared) == result.predictions).all()


def test_unknown_products_are_refused():
    with pytest.raises(ValueError, match="unknown products 'float16': must be one of float32, bfloat16"):
        Run(products="float16")
