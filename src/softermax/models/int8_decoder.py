"""A decoder in int8 that generates: linear layers, the cache of keys and values and attention are words.

A token's activations get the scale of their own largest value, weights one per output. Queries, keys and values are
quantised per head by scales that calibration fixed, keys after their rotation: what the cache holds is never touched
again. Attention is the fused kernel of `softermax.kernels.attention`, with a scale per head of keys and values, and has the
bits of `softermax.golden.attention` on the same words. Norms, rotation and gating are in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from softermax.kernels.attention import int8_attention
from softermax.kernels.linear import PackedLinear
from softermax.models.int8_modules import LARGEST, Int8Embedding, OneThread, row_words
from softermax.spec import AnySpec

Float32 = NDArray[np.float32]
Int8 = NDArray[np.int8]

FIRST_CAPACITY = 64
"""Tokens that a cache has room for at first; it doubles."""
_WATCHED = "softermax_watched"
"""Name under which transformers knows the attention that notes how large its operands are."""


@dataclass(frozen=True)
class DecoderSizes:
    """What a config says of a decoder."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    epsilon: float

    @classmethod
    def of(cls, config: Any) -> DecoderSizes:
        heads = int(config.num_attention_heads)
        return cls(
            int(config.num_hidden_layers), int(config.hidden_size), int(config.intermediate_size), heads,
            int(config.num_key_value_heads), int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            float(config.rms_norm_eps),
        )  # fmt: skip

    @property
    def per_group(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.heads // self.kv_heads


class TokenLinear(nn.Module):
    """A linear layer without bias: weights int8 with a scale per output, inputs int8 with a scale per token."""

    words: Tensor
    scale: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("words", torch.zeros(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(outputs))
        self._packed: PackedLinear | None = None

    @classmethod
    def of(cls, layers: Sequence[Any]) -> TokenLinear:
        """One layer of several that share their input: their outputs one after another."""
        weight = torch.cat([layer.weight.detach() for layer in layers])
        made = cls(weight.shape[1], weight.shape[0])
        made.words, made.scale = row_words(weight)
        return made

    def run(self, x: Float32) -> Float32:
        """(rows, inputs) to (rows, outputs)."""
        if self._packed is None:
            self._packed = PackedLinear(self.words.numpy(), self.scale.numpy(), None, 1.0)
        return self._packed.by_row(x, OneThread.threads())

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().float().reshape(-1, x.shape[-1])
        return torch.from_numpy(self.run(rows.numpy())).reshape(*x.shape[:-1], -1)


class CachedWords(CacheLayerMixin):
    """Keys and values of one layer as int8 words, (batch, heads, tokens, size) each, with room to grow.

    transformers takes it for a layer of its cache.
    """

    is_sliding = False

    def __init__(self, batch: int, heads: int, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._words: Int8 = np.empty((2, batch, heads, FIRST_CAPACITY, size), np.int8)
        self.length = 0

    def append(self, k: Int8, v: Int8) -> tuple[Int8, Int8]:
        """All keys and values so far, with these at the end."""
        end = self.length + k.shape[2]
        capacity = self._words.shape[3]
        if end > capacity:
            while capacity < end:
                capacity *= 2
            wider = np.empty((*self._words.shape[:3], capacity, self._words.shape[4]), np.int8)
            wider[:, :, :, : self.length] = self._words[:, :, :, : self.length]
            self._words = wider
        self._words[0, :, :, self.length : end], self._words[1, :, :, self.length : end] = k, v
        self.length = end
        return self._words[0, :, :, :end], self._words[1, :, :, :end]

    @property
    def batch(self) -> int:
        return int(self._words.shape[1])

    @property
    def bytes(self) -> int:
        """Of the words that are in use."""
        return int(self._words[:, :, :, : self.length].size)

    def lazy_initialization(self, *_: Any) -> None:
        """There is nothing to wait for."""

    def update(self, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        raise TypeError("a cache of words belongs to an int8 decoder: no other model can append to it")

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0


class Int8DecoderLayer(nn.Module):
    """A layer's state; `Int8Decoder` runs it."""

    scales: Tensor
    """Of the words of each head: all of Q, then K, then V."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        hidden, width = sizes.hidden, sizes.heads * sizes.head
        parts = sizes.heads + 2 * sizes.kv_heads
        self.qkv = TokenLinear(hidden, parts * sizes.head)
        self.out = TokenLinear(width, hidden)
        self.up = TokenLinear(hidden, 2 * sizes.inner)
        self.down = TokenLinear(sizes.inner, hidden)
        self.register_buffer("scales", torch.ones(parts))
        self.attention_norm = _constant(torch.ones(hidden))
        self.network_norm = _constant(torch.ones(hidden))


class Int8Decoder(nn.Module):
    """A Llama body: tokens to hidden states, with a cache of words. It takes the place of transformers' own."""

    def __init__(self, config: Any, spec: AnySpec) -> None:
        super().__init__()
        self.config, self.spec, self.sizes = config, spec, DecoderSizes.of(config)
        self.embed_tokens = Int8Embedding(config.vocab_size, self.sizes.hidden)
        self.layers = nn.ModuleList(Int8DecoderLayer(self.sizes) for _ in range(self.sizes.layers))
        self.norm = _constant(torch.ones(self.sizes.hidden))
        self.rotary = LlamaRotaryEmbedding(config)

    def new_cache(self, batch: int = 1) -> list[CachedWords]:
        return [CachedWords(batch, self.sizes.kv_heads, self.sizes.head) for _ in range(self.sizes.layers)]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **others: Any,
    ) -> BaseModelOutputWithPast:
        """As transformers calls it. All sequences of a batch have the same length; none is padded."""
        for name in ("output_attentions", "output_hidden_states"):
            if others.get(name):
                raise ValueError(f"{name} = True: an int8 decoder keeps only what its last layer gives")
        if attention_mask is not None and not bool(attention_mask.bool().all()):
            raise ValueError(
                "attention_mask hides tokens: sequences of an int8 decoder must have the same length"
            )
        given = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds.detach().float()
        past = past_key_values
        if past is None and use_cache is not False:
            past = DynamicCache()
        cache = self.new_cache(len(given)) if past is None else _words_of(past, self, len(given))
        hidden = self.run(given.numpy(), cache)
        states: Any = torch.from_numpy(hidden)
        return BaseModelOutputWithPast(last_hidden_state=states, past_key_values=past)

    def run(self, embedded: Float32, cache: Sequence[CachedWords]) -> Float32:
        """Hidden states (batch, tokens, hidden) of tokens that follow those in the cache, which grows."""
        batch, tokens, _ = embedded.shape
        x = embedded.reshape(batch * tokens, -1).astype(np.float32, copy=True)
        before = cache[0].length
        cosine, sine = self._rotation(before, tokens, batch)
        for layer, words in zip(self.layers, cache, strict=True):
            assert isinstance(layer, Int8DecoderLayer)
            qkv = layer.qkv.run(_normed(x, layer.attention_norm.numpy(), self.sizes.epsilon))
            x += layer.out.run(self._attended(layer, qkv, cosine, sine, words))
            both = layer.up.run(_normed(x, layer.network_norm.numpy(), self.sizes.epsilon))
            x += layer.down.run(_gated(both))
        return _normed(x, self.norm.numpy(), self.sizes.epsilon).reshape(batch, tokens, -1)

    def _rotation(self, before: int, tokens: int, batch: int) -> tuple[Float32, Float32]:
        """Cosines and sines, (rows, 1, size). The sines of a head's first half have the sign of its rotation."""
        positions = torch.arange(before, before + tokens)[None]
        cosine, sine = (one[0].numpy() for one in self.rotary(torch.zeros(1), positions))
        sine = np.concatenate([-sine[:, : self.sizes.head // 2], sine[:, self.sizes.head // 2 :]], 1)
        return np.tile(cosine, (batch, 1))[:, None], np.tile(sine, (batch, 1))[:, None]

    def _attended(
        self, layer: Int8DecoderLayer, qkv: Float32, cosine: Float32, sine: Float32, cache: CachedWords
    ) -> Float32:
        sizes = self.sizes
        batch, size, rotated = cache.batch, sizes.head, sizes.heads + sizes.kv_heads
        heads = qkv.reshape(len(qkv), -1, size)
        turning, half = heads[:, :rotated], size // 2
        turned = np.concatenate([turning[..., half:], turning[..., :half]], 2)
        turned *= sine
        turning *= cosine
        turning += turned
        words = int8_words(heads, layer.scales.numpy()[:, None])
        words = words.reshape(batch, -1, *words.shape[1:]).transpose(0, 2, 1, 3)
        q, (k, v) = words[:, : sizes.heads], cache.append(words[:, sizes.heads : rotated], words[:, rotated:])
        out = int8_attention(
            q, k, v, self.spec, *head_scales(layer, sizes), causal=True, threads=OneThread.threads()
        ).transpose(0, 2, 1, 3)
        return out.reshape(len(qkv), -1)


def _constant(weight: Tensor) -> nn.Parameter:
    """A norm's weights: parameters, of which transformers reads a model's device."""
    return nn.Parameter(weight.detach().float().clone(), requires_grad=False)


def int8_words(x: Float32, scale: Float32) -> Int8:
    """x in units of ``scale``, to the nearest word."""
    inverse = (1.0 / scale).astype(np.float32)
    words: Int8 = np.clip(np.rint(x * inverse), -LARGEST, LARGEST).astype(np.int8)
    return words


def head_scales(layer: Int8DecoderLayer, sizes: DecoderSizes) -> tuple[list[float], list[float]]:
    """Per head of keys and values: what an integer score and an integer value are multiplied by."""
    scales = layer.scales.double().tolist()
    kv = sizes.kv_heads
    queries, keys, values = scales[: sizes.heads : sizes.per_group], scales[-2 * kv : -kv], scales[-kv:]
    return [q * k / sizes.head**0.5 for q, k in zip(queries, keys, strict=True)], values


def _normed(x: Float32, weight: Float32, epsilon: float) -> Float32:
    """RMS norm."""
    mean = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
    return np.asarray(x * weight * (1.0 / np.sqrt(mean + np.float32(epsilon))), dtype=np.float32)


def _gated(both: Float32) -> Float32:
    """SiLU of the first half times the second."""
    gate, up = torch.from_numpy(both).chunk(2, dim=1)
    return (nn.functional.silu(gate) * up).numpy()


def _words_of(cache: Any, decoder: Int8Decoder, batch: int) -> list[CachedWords]:
    """The layers of transformers' cache, which become words where it is still empty."""
    if not isinstance(cache, DynamicCache):
        raise ValueError(f"past_key_values is a {type(cache).__name__}: must be a DynamicCache")
    layers: list[Any] = cache.layers
    if not layers or not isinstance(layers[0], CachedWords):
        if cache.get_seq_length():
            raise ValueError("past_key_values holds another model's keys: must be empty at first")
        layers = decoder.new_cache(batch)
        cache.layers = list(layers)
    if layers[0].batch != batch:
        raise ValueError(f"a batch of {batch}, but past_key_values is for {layers[0].batch}")
    return layers


def refusal_to_deploy(model: Any) -> str | None:
    """Why a Llama cannot get an `Int8Decoder`, or None where it can."""
    if not hasattr(model, "lm_head"):
        return "it has no language model's head; take AutoModelForCausalLM"
    config = model.config
    for name, wanted in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        value = getattr(config, name, wanted)
        if value != wanted:
            return f"{name} = {value!r}: must be {wanted!r}"
    return None


def with_int8_body(model_class: type[PreTrainedModel], config: Any, spec: AnySpec) -> PreTrainedModel:
    """A causal language model with an int8 body and head, whose weights are still to come."""
    layers = config.num_hidden_layers
    config.num_hidden_layers = 0  # its layers would be thrown away
    with torch.device("meta"):
        model: Any = model_class(config)
    config.num_hidden_layers = layers
    model.model = Int8Decoder(config, spec)
    model.lm_head = TokenLinear(config.hidden_size, config.vocab_size)
    model.requires_grad_(False)
    return model.eval()  # type: ignore[no-any-return]


def convert(source: Any, made: Any, batches: Sequence[Mapping[str, Tensor]]) -> None:
    """The weights of a Llama as words, and the scales of its heads from what the batches bring about."""
    body, new = source.model, made.model
    new.embed_tokens = Int8Embedding.of(body.embed_tokens)
    made.lm_head = TokenLinear.of([source.lm_head])
    if source.lm_head.weight is body.embed_tokens.weight:
        made.lm_head.words, made.lm_head.scale = new.embed_tokens.words, new.embed_tokens.scale
    new.norm = _constant(body.norm.weight)
    largest = _largest_operands(source, batches)
    for layer, target, amax in zip(body.layers, new.layers, largest, strict=True):
        attention, network = layer.self_attn, layer.mlp
        target.qkv = TokenLinear.of([attention.q_proj, attention.k_proj, attention.v_proj])
        target.out = TokenLinear.of([attention.o_proj])
        target.up = TokenLinear.of([network.gate_proj, network.up_proj])
        target.down = TokenLinear.of([network.down_proj])
        target.attention_norm = _constant(layer.input_layernorm.weight)
        target.network_norm = _constant(layer.post_attention_layernorm.weight)
        target.scales = _scales(amax, new.sizes)


def _scales(amax: Sequence[Tensor], sizes: DecoderSizes) -> Tensor:
    """One per head; the query heads of a group share theirs, as they share a call of the kernel."""
    q, k, v = amax
    q = q.reshape(sizes.kv_heads, -1).amax(1).repeat_interleave(sizes.per_group)
    scales = torch.cat([q, k, v]).float() / LARGEST
    return torch.where(scales > 0, scales, 1.0)


def _largest_operands(source: Any, batches: Sequence[Mapping[str, Tensor]]) -> list[list[Tensor]]:
    """Per layer: the largest magnitude in each head of Q and K, both rotated, and V, over all batches."""
    found: dict[int, list[Tensor]] = {}

    def watched(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        here = [one.detach().abs().amax((0, 2, 3)) for one in (query, key, value)]
        known = found.setdefault(module.layer_idx, here)
        found[module.layer_idx] = [torch.maximum(a, b) for a, b in zip(known, here, strict=True)]
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)

    AttentionInterface.register(_WATCHED, watched)
    config = source.config
    before = config._attn_implementation_internal
    config._attn_implementation_internal = _WATCHED
    try:
        with torch.no_grad():
            for batch in batches:
                source(**batch, use_cache=False, logits_to_keep=1)
    finally:
        config._attn_implementation_internal = before
    return [found[number] for number in range(len(found))]
