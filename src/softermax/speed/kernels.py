"""What the kernels are timed against, and how: every round runs every contestant once, in turn.

With one thread, time is the thread's own CPU time, so that other programs on the machine disturb it
little; with more it is wall time. A result is the ratio of their time to ours: the median over rounds,
and between which values eight of ten rounds lie.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from softermax.extras import need
from softermax.spec import PRESETS, DeferredSpec

if not TYPE_CHECKING:
    need("torch", "torch")

import numpy as np
import torch
from numpy.typing import NDArray

from softermax.functional import softermax
from softermax.kernels.rows import Prepared
from softermax.pytorch.attention import Spec, attention, int8_attention
from softermax.pytorch.operators import quantize_int8

Contestants = Mapping[str, Callable[[], Any]]
OURS = "softermax"

IN_CACHE = 1 << 16
"""Elements of a batch of rows: small enough for the second-level cache, in float and out again."""
IN_OPERATOR = 1 << 20
LARGE = 64 << 20
COLUMNS = (64, 128, 384, 512, 1024, 2048, 4096, 16384)
SEQUENCES = (384, 512, 2048)


@dataclass(frozen=True)
class Ratio:
    """One contestant's time over ours."""

    bench: str
    case: str
    columns: int
    versus: str
    ratio: float
    low: float
    high: float
    threads: int
    nanoseconds: float
    """Our time an element, for the plot."""

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        del values["nanoseconds"]
        return values


def race(
    contestants: Contestants, rounds: int, threads: int, each: float = 2e-3
) -> dict[str, NDArray[np.float64]]:
    """Seconds a call, one row of rounds a contestant. Quick calls are repeated to last about ``each`` seconds."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeats: dict[str, int] = {}
    for name, call in contestants.items():
        call()
        started = clock()
        call()
        repeats[name] = max(1, min(1000, int(each / max(clock() - started, 1e-7))))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            started = clock()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((clock() - started) / repeats[name])
    return {name: np.array(values) for name, values in seconds.items()}


def ratios(
    bench: str, case: str, columns: int, elements: int, contestants: Contestants, rounds: int, threads: int
) -> list[Ratio]:
    seconds = race(contestants, rounds, threads)
    ours = seconds.pop(OURS)
    found = []
    for versus, theirs in seconds.items():
        each = theirs / ours
        low, middle, high = (float(v) for v in np.percentile(each, [10, 50, 90]))
        found.append(
            Ratio(
                bench,
                case,
                columns,
                versus,
                middle,
                low,
                high,
                threads,
                float(np.median(ours)) / elements * 1e9,
            )
        )
    return found


def scores(rows: int, columns: int, seed: int = 0) -> NDArray[np.int8]:
    """Input words such as attention makes: Gaussian, a standard deviation of two."""
    drawn = np.random.default_rng(seed).normal(0, 8, (rows, columns))
    return np.clip(np.rint(drawn), -128, 127).astype(np.int8)


def bench_kernels(threads: int, rounds: int, large: bool) -> list[Ratio]:
    """int8 rows of every preset, and float rows, against torch, onnxruntime and memcpy."""
    found: list[Ratio] = []
    for columns in COLUMNS:
        rows = max(1, IN_CACHE // columns)
        x = scores(rows, columns)
        f = torch.from_numpy(x.astype(np.float32) / 4)
        theirs = _softmaxes(f) | _onnxruntime(f.numpy(), threads) | {"memcpy": _copy(x)}
        for name, spec in PRESETS.items():
            ours = {OURS: cast(Callable[[], Any], Prepared(x, spec, threads=threads))}
            contestants = ours | theirs
            if name == "whole-row":
                contestants |= _quantized_softmax(x, threads)
            found += ratios("kernels", f"int8 {name}", columns, x.size, contestants, rounds, threads)
        # Larger, because the operator makes its output anew, as torch.softmax does.
        g = torch.from_numpy(scores(max(1, IN_OPERATOR // columns), columns)).float() / 4
        ours = {OURS: partial(softermax, g, spec=PRESETS["paper"])}
        theirs = {"torch fp32": partial(torch.softmax, g, -1)}
        found += ratios("kernels", "float paper", columns, g.numel(), ours | theirs, rounds, threads)
    if large:
        found += _bench_large(threads, max(3, rounds // 4))
    return found


def _bench_large(threads: int, rounds: int) -> list[Ratio]:
    columns = 1024
    x = np.tile(scores(1024, columns), (LARGE // columns // 1024, 1))
    f = torch.from_numpy(x).float() / 4
    theirs = _softmaxes(f) | {"memcpy": _copy(x)}
    found: list[Ratio] = []
    for name in ("whole-row", "paper"):
        ours = {OURS: cast(Callable[[], Any], Prepared(x, PRESETS[name], threads=threads))}
        found += ratios("kernels", f"int8 {name}, 64 Mi", columns, x.size, ours | theirs, rounds, threads)
    return found


def _softmaxes(f: torch.Tensor) -> dict[str, Callable[[], Any]]:
    out = torch.empty_like(f)
    return {"torch fp32": lambda: torch.softmax(f, -1, out=out)}


def _copy(x: NDArray[np.int8]) -> Callable[[], Any]:
    out = np.empty_like(x)
    return lambda: np.copyto(out, x)


def _session(node: str, domain: str, element: int, threads: int, **attributes: Any) -> Any | None:
    """An onnxruntime session of one node, or None where it is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return None
    quantized = element != TensorProto.FLOAT
    scale = [
        helper.make_tensor("x_scale", TensorProto.FLOAT, [], [0.25]),
        helper.make_tensor("x_zero", element, [], [0]),
        helper.make_tensor("y_scale", TensorProto.FLOAT, [], [1 / 256]),
        helper.make_tensor("y_zero", element, [], [-128 if quantized else 0]),
    ]
    inputs = ["x", *(t.name for t in scale)] if quantized else ["x"]
    shape = ["rows", "columns"]
    graph = helper.make_graph(
        [helper.make_node(node, inputs, ["y"], domain=domain, **attributes)],
        "softmax",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, shape)],
        initializer=scale if quantized else [],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _bound(session: Any, x: NDArray[Any]) -> Callable[[], Any]:
    """A run that reads and writes the same buffers each time, as torch does with ``out=``."""
    import onnxruntime

    out = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(x))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", out)
    return lambda: session.run_with_iobinding(binding)


def _onnxruntime(x: NDArray[np.float32], threads: int) -> dict[str, Callable[[], Any]]:
    session = _session("Softmax", "", 1, threads, axis=-1)
    return {} if session is None else {"onnxruntime fp32": _bound(session, x)}


def _quantized_softmax(x: NDArray[np.int8], threads: int) -> dict[str, Callable[[], Any]]:
    session = _session("QLinearSoftmax", "com.microsoft", 3, threads, axis=-1, opset=13)
    return {} if session is None else {"onnxruntime QLinearSoftmax": _bound(session, x)}


def bench_attention(threads: int, rounds: int) -> list[Ratio]:
    """Fused attention of 12 heads of 64, from int8 and from float operands, against torch's SDPA."""
    found: list[Ratio] = []
    specs: dict[str, Spec] = {
        "paper": PRESETS["paper"],
        "whole-row": PRESETS["whole-row"],
        "deferred": DeferredSpec(),
    }
    sdpa: Callable[..., Any] = torch.nn.functional.scaled_dot_product_attention
    for length in SEQUENCES:
        generator = torch.Generator().manual_seed(length)
        floats = [torch.randn(1, 12, length, 64, generator=generator) for _ in range(3)]
        halves = [x.bfloat16() for x in floats]
        (q, q_scale), (k, k_scale), (v, v_scale) = (quantize_int8(x) for x in floats)
        scale = q_scale * k_scale / 8.0
        theirs: dict[str, Callable[[], Any]] = {
            "SDPA fp32": partial(sdpa, *floats),
            "SDPA bf16": partial(sdpa, *halves),
        }
        elements = 12 * length * length
        for name, spec in specs.items():
            ours: dict[str, Callable[[], Any]] = {
                OURS: partial(int8_attention, q, k, v, scale, v_scale, spec)
            }
            found += ratios(
                "attention", f"{name} from int8", length, elements, ours | theirs, rounds, threads
            )
            ours = {OURS: partial(attention, floats[0], floats[1], floats[2], spec)}
            found += ratios(
                "attention", f"{name} from float", length, elements, ours | theirs, rounds, threads
            )
    return found


def bench_training(threads: int, rounds: int) -> list[Ratio]:
    """Forward and backward of the operator, and of an encoder's whole step, against torch.softmax."""
    x = torch.randn(32, 12, 128, 128, generator=torch.Generator().manual_seed(0)).requires_grad_()
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))

    def both(operator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(operator(x), x, g)

    found: list[Ratio] = []
    theirs = {"torch.softmax": both(partial(torch.softmax, dim=-1))}
    for name, spec in PRESETS.items():
        ours = {OURS: both(partial(softermax, spec=spec))}
        found += ratios("training", f"operator {name}", 128, x.numel(), ours | theirs, rounds, threads)
    step = {
        OURS: _encoder_step(partial(softermax, spec=PRESETS["paper"])),
        "torch.softmax": _encoder_step(partial(torch.softmax, dim=-1)),
    }
    found += ratios("training", "encoder step paper", 128, x.numel() * 6, step, max(3, rounds // 4), threads)
    return found


def _encoder_step(operator: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
    """A full AdamW step of an encoder of MiniLM's size (6 layers, 384 wide, 12 heads) on 32 x 128 tokens,
    weights and activations quantised to int8 and back as in quantisation-aware training."""
    torch.manual_seed(0)
    model = _Encoder(operator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randn(32, 128, 384)

    def step() -> None:
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()

    return step


class _Linear(torch.nn.Linear):
    """Weights and activations through int8 and back; the gradient passes straight through."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(_through_int8(x), _through_int8(self.weight), self.bias)


def _through_int8(x: torch.Tensor) -> torch.Tensor:
    scale = float(x.detach().abs().max()) / 127 or 1.0
    return torch.fake_quantize_per_tensor_affine(x, scale, 0, -127, 127)


class _Encoder(torch.nn.Module):
    def __init__(self, operator: Callable[[torch.Tensor], torch.Tensor], layers: int = 6) -> None:
        super().__init__()
        self.operator = operator
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "qkv": _Linear(384, 3 * 384),
                    "out": _Linear(384, 384),
                    "up": _Linear(384, 1536),
                    "down": _Linear(1536, 384),
                    "first": torch.nn.LayerNorm(384),
                    "second": torch.nn.LayerNorm(384),
                }
            )
            for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            parts = cast(torch.nn.ModuleDict, layer)
            q, k, v = parts["qkv"](x).unflatten(-1, (3, 12, 32)).permute(2, 0, 3, 1, 4)
            p = self.operator(q @ k.transpose(-1, -2) / 32**0.5)
            x = parts["first"](x + parts["out"]((p @ v).transpose(1, 2).flatten(-2)))
            x = parts["second"](x + parts["down"](torch.nn.functional.gelu(parts["up"](x))))
        return x
