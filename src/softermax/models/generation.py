"""Text from language models, token by token, with the time and the memory that it takes.

Several models take turns at every step, each on its own text, so that their times can be compared on a busy machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from softermax.progress import Progress, silent


@dataclass
class Generated:
    """What a model wrote, and what it took."""

    prompt_tokens: int
    weight_bytes: int
    """Of all parameters, as they are stored."""
    tokens: list[int] = field(default_factory=list)
    prefill_seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    cache_bytes: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        return self.prompt_tokens / self.prefill_seconds

    @property
    def tokens_per_second(self) -> float | None:
        """From the median step after the prompt; None where there is none."""
        return 1 / float(np.median(self.step_seconds)) if self.step_seconds else None


@torch.inference_mode()
def generate_in_turn(
    models: Mapping[str, PreTrainedModel],
    prompt: Tensor,
    tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    stop: int | None = None,
    report: Progress = silent,
) -> dict[str, Generated]:
    """``tokens`` tokens after ``prompt`` (one sequence) from each model, the likeliest or, with a temperature, drawn.

    A model ends early at the token ``stop``. Times are a thread's own CPU time with one thread, wall time with more.
    """
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(
            f"prompt has shape {tuple(prompt.shape)}: must be one sequence of at least one token"
        )
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    made = {name: Generated(len(prompt), weight_bytes(model)) for name, model in models.items()}
    caches: dict[str, Any] = {name: DynamicCache(config=model.config) for name, model in models.items()}
    given = {name: prompt[None] for name in models}
    draws = {name: torch.Generator().manual_seed(seed) for name in models}
    for model in models.values():
        model(input_ids=prompt[None, :1], use_cache=False)  # packs and warms up
    for step in range(tokens):
        report(step, tokens, "tokens")
        for name, model in models.items():
            one = made[name]
            if stop is not None and one.tokens[-1:] == [stop]:
                continue
            began = clock()
            logits = model(
                input_ids=given[name], past_key_values=caches[name], use_cache=True, logits_to_keep=1
            ).logits
            chosen = _chosen(logits[0, -1], temperature, draws[name])
            seconds = clock() - began
            one.tokens.append(chosen)
            given[name] = torch.tensor([[chosen]])
            if step:
                one.step_seconds.append(seconds)
            else:
                one.prefill_seconds = seconds
    report(tokens, tokens, "")
    for name, cache in caches.items():
        made[name].cache_bytes = cache_bytes(cache)
    return made


def weight_bytes(model: torch.nn.Module) -> int:
    """Of a model's parameters and buffers, each once."""
    each = {one.data_ptr(): one.nbytes for one in (*model.parameters(), *model.buffers())}
    return sum(each.values())


def cache_bytes(cache: Any) -> int:
    """Of the keys and values in a cache of transformers, numbers or words."""
    return sum(
        layer.bytes if hasattr(layer, "bytes") else layer.keys.nbytes + layer.values.nbytes
        for layer in cache.layers
    )


def _chosen(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial(torch.softmax(logits.float() / temperature, -1), 1, generator=generator))
