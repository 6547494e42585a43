"""What the tests run in the interpreter's process: Triton decides when it is imported whether it interprets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def blocks(resident: int, block: int) -> Iterator[None]:
    """Within, rows stay in registers up to ``resident`` elements and are swept in blocks of ``block``."""
    from softermax.gpu import launch

    before = launch.RESIDENT, launch.BLOCK
    launch.RESIDENT, launch.BLOCK = resident, block
    try:
        yield
    finally:
        launch.RESIDENT, launch.BLOCK = before


def probabilities(spec, scores, mask, kind, small=None):
    """Probabilities of scores in a float type, as float32 (which holds them all)."""
    import torch

    from softermax.functional import softermax

    with blocks(*small) if small else contextlib.nullcontext(), torch.no_grad():
        x = torch.from_numpy(scores).to(getattr(torch, kind))
        y = softermax(x, mask=None if mask is None else torch.from_numpy(mask), spec=spec)
    assert y.dtype == x.dtype
    return y.float().numpy()


def words(spec, raw, mask=None, small=None):
    import torch

    from softermax.gpu import launch

    with blocks(*small) if small else contextlib.nullcontext():
        keep = None if mask is None else torch.from_numpy(mask)
        got, exponent = launch.word_rows(torch.from_numpy(raw), spec, keep, None, False)
    return got.numpy().astype(np.int64), exponent.numpy()


def int8_words(spec, raw, mask, lengths, causal):
    import torch

    from softermax.functional import softermax_int8

    keep, counts = (None if a is None else torch.from_numpy(a) for a in (mask, lengths))
    got, exponent = softermax_int8(torch.from_numpy(raw), spec, keep, counts, causal)
    assert got.dtype == torch.uint8
    return got.numpy(), exponent.numpy()


def gradients(spec, scores, mask, kind, gradient, small=None):
    """The scores' gradient by the kernels, and by PyTorch in the form that is asked for, of one random cotangent."""
    import torch

    from softermax.functional import softermax
    from softermax.gpu.operators import takes_spec
    from softermax.pytorch import operators
    from softermax.pytorch.gradient import composed, fused

    with blocks(*small) if small else contextlib.nullcontext():
        x = torch.from_numpy(scores).to(getattr(torch, kind)).requires_grad_()
        keep = torch.from_numpy(mask)
        cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x.dtype)
        y = softermax(x, mask=keep, spec=spec)
        assert operators.takes(x, spec)
        assert operators.DEVICES["cpu"] is takes_spec
        (got,) = torch.autograd.grad(y, x, cotangent)
    other = x.detach().clone().requires_grad_()
    rows = {"fused": fused, "composed": composed}[gradient](torch.where(keep, other, 0.0), keep, spec)
    (want,) = torch.autograd.grad(rows, other, cotangent)
    return got.float().numpy(), want.float().numpy()


def kept_for_backward(spec, shape):
    """Bytes that a training step keeps, by tensor type."""
    import torch

    from softermax.functional import softermax

    kept: dict[str, int] = {}

    def pack(t):
        if t.untyped_storage().nbytes() > 64:
            kept[str(t.dtype)] = kept.get(str(t.dtype), 0) + t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        softermax(torch.randn(shape, requires_grad=True), spec=spec)
    return kept


def compiled(spec, scores):
    """A whole graph of torch.compile: probabilities and gradient, beside those of code that is not compiled."""
    import torch

    from softermax.functional import softermax

    def step(x):
        return softermax(x, spec=spec)

    answers = []
    for run in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        x = torch.from_numpy(scores).requires_grad_()
        y = run(x)
        (g,) = torch.autograd.grad(y.square().sum(), x)
        answers += [y.detach().numpy(), g.numpy()]
    return answers


def refused(spec, operator):
    """What an operator answers to a spec that the kernels do not take."""
    import torch

    from softermax.pytorch.registry import spec_text

    try:
        x = torch.zeros(2, 4)
        getattr(torch.ops.softermax, operator)(x, None, spec_text(spec))
    except ValueError as error:
        return str(error)
    return ""


def attend(spec, q, k, v, scale, value_scale, mask, causal, lengths=None):
    """int8 attention as the operator offers it."""
    import torch

    from softermax.functional import int8_attention

    operands = [torch.from_numpy(x) for x in (q, k, v)]
    keep, counts = (None if a is None else torch.from_numpy(a) for a in (mask, lengths))
    return int8_attention(
        *operands, scale, value_scale, spec, mask=keep, lengths=counts, causal=causal
    ).numpy()


def float_attention(spec, kind, masked, causal):
    """Output and gradients of fused attention, and those of scores, operator on rows, and product.

    Queries and keys are small integers, so that scores are exact in any order.
    """
    import torch

    from softermax.functional import softermax
    from softermax.gpu import float_attention as fused

    generator = torch.Generator().manual_seed(1)
    dtype = getattr(torch, kind)
    q = torch.randint(-3, 4, (1, 2, 19, 24), generator=generator).to(dtype).requires_grad_()
    k = torch.randint(-3, 4, (1, 2, 45, 24), generator=generator).to(dtype).requires_grad_()
    v = torch.randint(-8, 9, (1, 2, 45, 24), generator=generator).to(dtype).requires_grad_()
    mask = torch.rand(1, 1, 19, 45, generator=generator) < 0.8 if masked else None
    assert fused.takes(q, k, spec)
    out = fused.float_attention(q, k, v, spec, 0.5, mask, causal)
    keep = torch.ones(19, 45, dtype=torch.bool).tril(26 if causal else 99)
    keep = keep if mask is None else keep & mask
    p = softermax(torch.matmul(q, k.transpose(-1, -2)) * 0.5, mask=keep, spec=spec)
    want = torch.matmul(p, v)
    cotangent = torch.randn(out.shape, generator=generator).to(dtype)
    got = [out, *torch.autograd.grad(out, (q, k, v), cotangent)]
    wanted = [want, *torch.autograd.grad(want, (q, k, v), cotangent)]
    return [x.detach().float().numpy() for x in got], [x.detach().float().numpy() for x in wanted]


def compiled_attention(spec):
    """Fused attention in a whole graph of torch.compile, and not compiled: output and gradients of each."""
    from importlib import import_module

    import torch

    from softermax.gpu import float_attention as fused

    import_module("softermax.functional")  # registers the operators

    def step(q, k, v):
        return fused.float_attention(q, k, v, spec, 0.5)

    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randn((1, 2, n, 16), generator=generator) for n in (5, 20, 20)]
    assert fused.takes(drawn[0], drawn[1], spec)
    answers = []
    for run in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        leaves = [x.clone().requires_grad_() for x in drawn]
        out = run(*leaves)
        grads = torch.autograd.grad(out.square().sum(), leaves)
        answers.append([x.detach().numpy() for x in (out, *grads)])
    return answers


def model_steps(spec):
    """How often a small BERT calls the fused kernels in training, and output and gradients with and without them."""
    import torch

    from models.tiny_models import build, some_inputs
    from softermax.gpu import float_attention as fused
    from softermax.integrations.transformers import enable

    torch.manual_seed(0)
    model = build("bert", attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    enable(model, spec)
    inputs = some_inputs(model)
    calls: list[int] = []
    answers = []
    attention, takes = fused.float_attention, fused.takes
    for on in (True, False):
        fused.takes = takes if on else lambda *_: False
        fused.float_attention = lambda *given: calls.append(1) or attention(*given)
        model.zero_grad()
        out = model(**inputs)[0]
        out.square().mean().backward()
        grads = torch.cat([p.grad.ravel() for p in model.parameters() if p.grad is not None])
        answers += [out.detach().numpy(), grads.numpy()]
    fused.takes, fused.float_attention = takes, attention
    return len(calls), answers
