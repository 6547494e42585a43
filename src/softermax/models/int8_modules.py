"""Modules in int8 for inference: linear layers, embeddings and encoders whose weights are words.

Their state is what a folder stores: int8 words, scales, biases. They are packed for the instruction set at hand when they
first run, and have no gradient.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from softermax.kernels.core import isa
from softermax.kernels.encoder import PackedEncoder, PackedLayer
from softermax.kernels.linear import PackedLinear
from softermax.spec import AnySpec

LARGEST = 127
SMALL_LAYER = 1 << 21
"""Weights up to which a linear layer in floating point is not worth waking PyTorch's threads for."""


class OneThread:
    """Hooks that run a module with one of PyTorch's threads; the native core takes as many as there were (`threads`).

    What is left to PyTorch takes microseconds. Its threads, where they must wait for a core that others use, or spin on one
    that the native core's threads want, take milliseconds. A large layer that stays in floating point gets them back.
    """

    _lock = threading.Lock()
    _within, _before = 0, 1

    def __init__(self, module: nn.Module) -> None:
        self._around(module, self._enter, self._leave)
        for part in module.modules():
            if isinstance(part, nn.Linear) and part.weight.numel() > SMALL_LAYER:
                self._around(part, self._leave, self._enter)

    @staticmethod
    def _around(module: nn.Module, before: Any, after: Any) -> None:
        module.register_forward_pre_hook(
            before, prepend=True
        )  # before one that may refuse: `after` is called then, too
        module.register_forward_hook(after, always_call=True)

    @classmethod
    def threads(cls) -> int:
        """What PyTorch was told to use, within such a module too."""
        with cls._lock:
            return cls._before if cls._within else torch.get_num_threads()

    @classmethod
    def _enter(cls, *_: Any) -> None:
        with cls._lock:
            if cls._within == 0:
                cls._before = torch.get_num_threads()
                torch.set_num_threads(1)
            cls._within += 1

    @classmethod
    def _leave(cls, *_: Any) -> None:
        with cls._lock:
            cls._within -= 1
            if cls._within == 0:
                torch.set_num_threads(cls._before)


def row_words(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 words of a matrix and the scale of each row: its largest weight is word 127."""
    weight = weight.detach().float()
    scale = weight.abs().amax(1) / LARGEST
    scale = torch.where(scale > 0, scale, 1.0)
    return (weight / scale[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scale


class Int8Linear(nn.Module):
    """A linear layer: weights int8 with a scale per output, inputs int8 with one static scale, float32 out."""

    words: Tensor
    scale: Tensor
    bias: Tensor | None
    input_scale: Tensor

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.register_buffer("words", torch.zeros(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("bias", torch.zeros(outputs) if bias else None)
        self.register_buffer("input_scale", torch.ones(()))
        self._packed: PackedLinear | None = None

    @classmethod
    def of(cls, layers: Iterable[nn.Module], input_scale: float) -> Int8Linear:
        """One layer of several that share their input: their outputs one after another."""
        some: list[Any] = list(layers)
        weight = torch.cat([layer.weight.detach() for layer in some])
        made = cls(weight.shape[1], weight.shape[0], some[0].bias is not None)
        made.words, made.scale = row_words(weight)
        if made.bias is not None:
            made.bias = torch.cat([layer.bias.detach().float() for layer in some])
        made.input_scale = torch.tensor(float(input_scale))
        return made

    def packed(self, unit: Any = 1.0) -> PackedLinear:
        """Packed for the native path in use, its result in steps of ``unit``."""
        bias = None if self.bias is None else self.bias.numpy()
        return PackedLinear(self.words.numpy(), self.scale.numpy(), bias, float(self.input_scale), unit)

    def forward(self, x: Tensor) -> Tensor:
        if self._packed is None:
            self._packed = self.packed()
        rows = x.detach().float().reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty(len(rows), self._packed.outputs)
        if len(rows):
            self._packed.run(rows.data_ptr(), len(rows), out.data_ptr(), OneThread.threads())
        return out.reshape(*x.shape[:-1], -1)


class Int8Embedding(nn.Module):
    """An embedding whose rows are int8, each with its scale."""

    words: Tensor
    scale: Tensor

    def __init__(self, count: int, width: int, padding_idx: int | None = None) -> None:
        super().__init__()
        self.register_buffer("words", torch.zeros(count, width, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(count))
        self.padding_idx = padding_idx

    @classmethod
    def of(cls, embedding: nn.Embedding) -> Int8Embedding:
        made = cls(embedding.num_embeddings, embedding.embedding_dim, embedding.padding_idx)
        made.words, made.scale = row_words(embedding.weight)
        return made

    @property
    def weight(self) -> Tensor:
        return self.words * self.scale[:, None]

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1)
        rows = self.words.index_select(0, flat) * self.scale.index_select(0, flat)[:, None]
        return rows.reshape(*ids.shape, -1)


@dataclass(frozen=True)
class EncoderSizes:
    """What a config says of an encoder."""

    layers: int
    hidden: int
    inner: int
    heads: int
    epsilon: float


class Int8EncoderLayer(nn.Module):
    """A layer's state; `Int8Encoder` runs all of them at once."""

    scales: Tensor
    """Of the words of Q, K and V."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.qkv = Int8Linear(sizes.hidden, 3 * sizes.hidden)
        self.out = Int8Linear(sizes.hidden, sizes.hidden)
        self.up = Int8Linear(sizes.hidden, sizes.inner)
        self.down = Int8Linear(sizes.inner, sizes.hidden)
        self.attention_norm = nn.LayerNorm(sizes.hidden, sizes.epsilon)
        self.network_norm = nn.LayerNorm(sizes.hidden, sizes.epsilon)
        self.register_buffer("scales", torch.ones(3))
        self.requires_grad_(False)

    def packed(self, head: int) -> PackedLayer:
        q, k, v = (float(s) for s in self.scales)
        unit = np.repeat([q, k, v], self.out.words.shape[0])
        return PackedLayer(
            self.qkv.packed(unit), self.out.packed(), self.up.packed(), self.down.packed(),
            _norm(self.attention_norm), _norm(self.network_norm), q * k * head**-0.5, v,
        )  # fmt: skip


def _norm(norm: nn.LayerNorm) -> Any:
    return tuple(x.detach().float().contiguous().numpy() for x in (norm.weight, norm.bias))


class Int8Encoder(nn.Module):
    """All layers of a post-norm encoder in one call of the native core. What is masked is left out, not computed."""

    def __init__(self, sizes: EncoderSizes, spec: AnySpec) -> None:
        super().__init__()
        self.sizes, self.spec = sizes, spec
        self.layer = nn.ModuleList(Int8EncoderLayer(sizes) for _ in range(sizes.layers))
        self._packed: PackedEncoder | None = None

    def packed(self) -> PackedEncoder:
        """Packed for the native path in use, once."""
        if self._packed is None:
            if isa() is None:
                raise RuntimeError(
                    "int8 models need the native core: `softermax info` says why it is missing"
                )
            head = self.sizes.hidden // self.sizes.heads
            layers = [layer.packed(head) for layer in self.layer]  # type: ignore[operator]
            self._packed = PackedEncoder(layers, self.sizes.heads, self.spec, self.sizes.epsilon)
        return self._packed

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Tensor:
        """Rows (batch, tokens, hidden) through layers first to last. ``attention_mask`` is (batch, tokens), true where a
        token takes part; the others' rows are zero."""
        batch, tokens, hidden = hidden_states.shape
        keep = None
        x = hidden_states.detach().float().reshape(-1, hidden)
        lengths = np.full(batch, tokens, np.int64)
        if attention_mask is not None:
            if attention_mask.shape != (batch, tokens):
                raise ValueError(
                    f"attention_mask of shape {tuple(attention_mask.shape)}: an int8 encoder takes one of shape "
                    f"({batch}, {tokens}), true where a token takes part"
                )
            keep = attention_mask.reshape(-1).bool()
            if bool(keep.all()):
                keep = None
            else:
                lengths = attention_mask.bool().sum(1).numpy()
        # Copied by NumPy: PyTorch would share this little out among its threads.
        kept = torch.from_numpy(x.numpy().copy()) if keep is None else x[keep]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.packed().run(kept.data_ptr(), starts, OneThread.threads(), first, last)
        if keep is not None:
            kept = torch.zeros(batch * tokens, hidden).masked_scatter_(keep[:, None], kept)
        return kept.reshape(batch, tokens, hidden).to(hidden_states.dtype)
