"""Linear layers that multiply in bfloat16 while they train, and in float32 otherwise."""

import pytest
import torch
from torch import nn

from softermax.finetune import products
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


@pytest.mark.parametrize("bias", [True, False])
def test_processors_without_such_products_compute_the_same_values(monkeypatch, bias):
    torch.manual_seed(1)
    layer, x = nn.Linear(96, 40, bias=bias), torch.randn(3, 16, 96)
    found = {}
    for native in (True, False):
        monkeypatch.setattr(products, "_is_native", lambda native=native: native)
        layer.zero_grad()
        mine = x.clone().requires_grad_()
        with training_products(layer, "bfloat16"):
            output = layer(mine)
            output.square().sum().backward()
        found[native] = [output, mine.grad, *(weight.grad for weight in layer.parameters())]
    for ours, theirs in zip(found[False], found[True], strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, ours.bfloat16().float())
        # Sums of another order may fall to the other side of a rounding, one place of bfloat16 away.
        assert (ours == theirs).float().mean() > 0.9
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=1e-3)


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
