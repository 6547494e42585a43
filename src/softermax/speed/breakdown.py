"""Where the time of a BERT-Large layer goes: matrix products, softmax, dropout, rest.

Each part is run on its own, on tensors of the layer's shapes, and timed; a part's time is the least of
several runs. That is elapsed time, or on a CPU on request the processor's time, which does not count waiting for others
on a machine that is shared. Attention is worked on a few heads at a time where all heads' scores would not fit
comfortably, and its times are scaled up to all of them.

In ``int8`` the linear layers take 8-bit operands (PyTorch's quantised kernels); attention's own two products
stay in single precision, for PyTorch has no fast batched 8-bit product on a CPU. There Softermax takes 8-bit
scores and gives 8-bit probabilities.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from softermax.extras import need
from softermax.progress import Progress, silent
from softermax.spec import PRESETS

if not TYPE_CHECKING:
    need("torch", "torch")

import torch
import torch.nn.functional as F
from torch import Tensor

from softermax import functional
from softermax.pytorch import operators as ops
from softermax.pytorch import words

HIDDEN, HEADS, INNER = 1024, 16, 4096
"""BERT-Large's."""
SEQUENCES = (64, 128, 256, 384, 512, 1024, 2048, 4096)
PRECISIONS = ("fp32", "int8")
SOFTMAXES = ("torch", "native")
PARTS = ("matrix products", "softmax", "dropout", "rest")
MAX_SCORES = 1 << 25
"""Scores held at a time."""
_DROPOUT = 0.1

Part = Callable[[], object]


@dataclass(frozen=True)
class Breakdown:
    """Milliseconds of a layer's parts, for one sequence."""

    sequence: int
    precision: str
    softmax: str
    device: str
    threads: int
    clock: str
    """``elapsed`` or ``processor`` time."""
    milliseconds: dict[str, float]

    @property
    def softmax_share(self) -> float:
        return self.milliseconds["softmax"] / sum(self.milliseconds.values())

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"softmax_share": self.softmax_share}


def time_layers(
    sequences: Sequence[int] = SEQUENCES,
    precisions: Sequence[str] = PRECISIONS,
    softmaxes: Sequence[str] = SOFTMAXES,
    repeats: int = 3,
    progress: Progress = silent,
    processor_time: bool = False,
) -> list[Breakdown]:
    """Every combination, on the GPU where there is one. There ``processor_time`` means nothing and is refused."""
    for name, given, allowed in (
        ("precision", precisions, PRECISIONS),
        ("softmax", softmaxes, SOFTMAXES),
    ):
        unknown = [value for value in given if value not in allowed]
        if unknown:
            raise ValueError(f"{name} {unknown[0]!r}: must be one of {', '.join(allowed)}")
    if any(n < 1 for n in sequences) or repeats < 1:
        raise ValueError(f"sequences {list(sequences)} and repeats {repeats}: must be 1 or more")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and processor_time:
        raise ValueError(
            "processor_time = True: a GPU's work takes no time of the processor; allowed on a CPU"
        )
    if device == "cuda" and "int8" in precisions:
        precisions = [p for p in precisions if p != "int8"]
        if not precisions:
            raise ValueError(
                "precision 'int8': PyTorch's quantised layers run on a CPU only, and a GPU is used"
            )
    found = []
    steps = len(sequences) * len(precisions) * len(softmaxes)
    for sequence in sequences:
        for precision in precisions:
            for softmax in softmaxes:
                found.append(_layer(sequence, precision, softmax, device, repeats, processor_time))
                progress(len(found), steps, f"{sequence} {precision} {softmax}")
    return found


def _layer(
    sequence: int, precision: str, softmax: str, device: str, repeats: int, processor_time: bool
) -> Breakdown:
    generator = torch.Generator(device=device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    hidden, inner = random(sequence, HIDDEN), random(sequence, INNER)
    heads = max(1, min(HEADS, MAX_SCORES // sequence**2))
    q, k, v = (random(heads, sequence, HIDDEN // HEADS) for _ in range(3))
    scores = q @ k.transpose(1, 2) * (HIDDEN // HEADS) ** -0.5
    probabilities = torch.softmax(scores, -1)
    norm = torch.nn.LayerNorm(HIDDEN, device=device)
    linear = _linear_int8 if precision == "int8" else _linear
    layers = [
        linear(hidden, random(HIDDEN, HIDDEN) * 0.02, count=4),
        linear(hidden, random(INNER, HIDDEN) * 0.02),
        linear(inner, random(HIDDEN, INNER) * 0.02),
    ]
    share = HEADS / heads
    parts: dict[str, list[tuple[float, Part]]] = {
        "matrix products": [
            *((1.0, layer) for layer in layers),
            (share, lambda: q @ k.transpose(1, 2)),
            (share, lambda: probabilities @ v),
        ],
        "softmax": [(share, _softmax(scores, precision, softmax))],
        "dropout": [
            (share, lambda: F.dropout(probabilities, _DROPOUT, training=True)),
            (2.0, lambda: F.dropout(hidden, _DROPOUT, training=True)),
        ],
        "rest": [
            (share, lambda: scores * 0.125),
            (2.0, lambda: norm(hidden + hidden)),
            (1.0, lambda: F.gelu(inner)),
        ],
    }
    with torch.no_grad():
        times = {
            name: sum(times * _milliseconds(part, device, repeats, processor_time) for times, part in some)
            for name, some in parts.items()
        }
    clock = "processor" if processor_time else "elapsed"
    return Breakdown(sequence, precision, softmax, device, torch.get_num_threads(), clock, times)


def _linear(x: Tensor, weight: Tensor, count: int = 1) -> Part:
    def run() -> None:
        for _ in range(count):
            F.linear(x, weight)

    return run


def _linear_int8(x: Tensor, weight: Tensor, count: int = 1) -> Part:
    """Activations are quantised already, as they come from the layer before; weights are packed."""
    with warnings.catch_warnings():
        # PyTorch will drop quantised tensors one day; nothing else it has runs its 8-bit CPU kernels.
        warnings.simplefilter("ignore", UserWarning)
        quantised = torch.quantize_per_tensor(x, float(x.abs().max()) / 127, 128, torch.quint8)
        words = torch.quantize_per_tensor(weight, float(weight.abs().max()) / 127, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(words, None)

    def run() -> None:
        for _ in range(count):
            torch.ops.quantized.linear(quantised, packed, 0.1, 128)

    return run


def _softmax(scores: Tensor, precision: str, softmax: str) -> Part:
    if softmax == "torch":
        return lambda: torch.softmax(scores, -1)
    spec = PRESETS["paper"]
    if precision == "int8":
        raw = words.quantize(scores, spec).to(torch.int8)
        return lambda: ops.softermax_int8(raw, spec)
    return lambda: functional.softermax(scores, spec=spec)


def _milliseconds(part: Part, device: str, repeats: int, processor_time: bool) -> float:
    """The least of some runs, after one that is not counted."""
    now = time.process_time if processor_time else time.perf_counter
    best = float("inf")
    for run in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        start = now()
        part()
        if device == "cuda":
            torch.cuda.synchronize()
        if run:
            best = min(best, now() - start)
    return best * 1e3
