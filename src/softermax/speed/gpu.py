"""Kernels on GPUs: what a compiled one should take at best, and, where there is a GPU, what it takes.

The estimate is a roofline: bytes over the memory's bandwidth, instructions over the rate at which they are issued, those of each
pipe over its own, products over the tensor cores' rate; the largest counts, as if all else hid behind it. What we compare with
gets its own bound, without any instructions, or for flash attention the best rate that its authors report: the comparison
favours it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from softermax.gpu.compiled import Compiled
from softermax.progress import Progress, silent
from softermax.spec import PRESETS, DeferredSpec

SIZE = 64
"""Elements of a head."""


@dataclass(frozen=True)
class Gpu:
    """Published rates of a GPU. Those of instructions are results per multiprocessor and cycle."""

    name: str
    target: str
    bandwidth: float
    """Bytes per second."""
    multiprocessors: int
    clock: float
    floats: int
    """Sums and products in single precision."""
    tensor: dict[str, float]
    """Dense operations per second, a product and its sum being two."""
    flash: float
    """The best rate that flash attention's authors report, in operations per second."""
    sources: dict[str, str]


ISSUE = 128
"""Four schedulers issue one instruction of 32 threads each."""
INTEGERS = 64
"""Sums, shifts, comparisons, logic, min and max; 32-bit integer products with sums, on the pipe of floats, as well."""
SPECIAL = 16
"""2^x, conversions, and what a warp reduces in one instruction. Some conversions are faster; the least is taken for all."""
SHUFFLES = 32
"""Exchange between threads, and shared memory."""

_RATES = (
    "CUDA C++ Programming Guide 12.6, table 4, Throughput of Native Arithmetic Instructions (in 13 moved to the Best Practices "
    "Guide, 12.1.1), columns 8.0 and 9.0: floats 64 and 128, integers 64, 2^x and conversions 16, shuffles 32; read in public "
    "repositories that quote it, such as openxla/xla's cuda_core_info_table.cc. Shared memory's 32 words per cycle: from memory"
)
GPUS = (
    Gpu(
        "A100 SXM 80 GB", "sm_80", 2.039e12, 108, 1.41e9, 64, {"bfloat16": 312e12, "int8": 624e12}, 0.73 * 312e12,
        {
            "bandwidth, multiprocessors, clock, tensor cores": "NVIDIA A100 data sheet and architecture whitepaper v1.0",
            "instructions": _RATES,
            "flash": "FlashAttention-2, arXiv 2307.08691, abstract: up to 73 % of the A100's theoretical maximum",
        },
    ),
    Gpu(
        "H100 SXM", "sm_90", 3.35e12, 132, 1.98e9, 128, {"bfloat16": 989e12, "int8": 1979e12}, 497e12,
        {
            "bandwidth, multiprocessors, tensor cores": "NVIDIA H100 data sheet and architecture whitepaper v1.04, table 3",
            "clock": "the whitepaper's 66.9 TFLOPS in single precision over 132 multiprocessors of 128",
            "instructions": _RATES,
            "flash": "FlashAttention-3, arXiv 2407.08608, forward, heads of 64, 16k, no mask: 497 (a transcript of its figure)",
        },
    ),
)  # fmt: skip

_INTEGER_PIPE = {
    "BMSK", "FCHK", "FMNMX", "FSEL", "FSET", "FSETP", "IABS", "IADD3", "IMNMX", "ISETP", "LEA", "LOP3", "PLOP3", "PRMT",
    "SEL", "SGXT", "SHF", "VIADD", "VIADDMNMX", "VIMNMX", "VIMNMX3",
}  # fmt: skip
_FLOAT_PIPE = {"FADD", "FFMA", "FMUL", "HADD2", "HFMA2", "HMUL2"}
_INTEGER_PRODUCTS = {"IMAD"}
_SPECIAL_PIPE = {"MUFU", "F2F", "F2FP", "F2I", "FLO", "FRND", "I2F", "I2FP", "POPC", "REDUX"}
_SHUFFLE_PIPE = {"SHFL", "LDS", "LDSM", "STS"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


def _bytes(kernel: str, dtype: str) -> float:
    """Of memory, per score: what is read and written once."""
    size = _BYTES[dtype]
    if kernel in ("gradient of rows", "training"):
        return 2 * size + 1 + 1 / 8
    if kernel == "swept rows":
        return 3 * size
    return 2 * size


def _bounds(one: Compiled, gpu: Gpu) -> dict[str, float]:
    """Seconds per score that each part of a GPU needs at least."""

    def cycles(kinds: set[str], rate: float) -> float:
        return sum(count for kind, count in one.kinds.items() if kind in kinds) / rate

    products = cycles(_INTEGER_PRODUCTS, INTEGERS)
    times = {
        "instructions": one.per_score / ISSUE,
        "integer pipe": cycles(_INTEGER_PIPE, INTEGERS),
        "float pipe": max(cycles(_FLOAT_PIPE | _INTEGER_PRODUCTS, gpu.floats), products),
        "special functions": cycles(_SPECIAL_PIPE, SPECIAL),
        "shuffles": cycles(_SHUFFLE_PIPE, SHUFFLES),
    }
    bounds = {name: time / gpu.multiprocessors / gpu.clock for name, time in times.items()}
    if one.kernel.startswith("attention"):
        # Products of bytes for Q and K, with fixed output words twice; of 16 bits for P and V.
        scores = 2 if "fixed" in one.kernel else 1
        bounds["tensor cores"] = 2 * SIZE * (scores / gpu.tensor[one.dtype] + 1 / gpu.tensor["bfloat16"])
    else:
        bounds["memory"] = _bytes(one.kernel, one.dtype) / gpu.bandwidth
    return bounds


def estimate(found: Sequence[Compiled]) -> list[dict[str, Any]]:
    """Picoseconds per score at best, of ours and of what it is compared with, on each GPU a kernel was compiled for.

    ``busy`` is the share of that time in which the busiest pipe works, or instructions are issued.
    """
    rows = []
    for gpu in GPUS:
        for one in found:
            if one.target != gpu.target or (
                one.kernel.startswith("gradient of") and "rows" not in one.kernel
            ):
                continue
            bounds = _bounds(one, gpu)
            if one.kernel.startswith("attention"):
                versus, least = "flash attention, 16 bits", 4 * SIZE / gpu.flash
            else:
                size = 4 if one.dtype == "int8" else _BYTES[one.dtype]
                passes = 3 if one.kernel.startswith("gradient") else 2
                versus = f"torch.softmax, {'float32' if one.dtype == 'int8' else one.dtype}"
                least = passes * size / gpu.bandwidth
            bound = max(bounds, key=lambda name: bounds[name])
            busy = max(time for name, time in bounds.items() if name not in ("memory", "tensor cores"))
            rows.append(
                {
                    "gpu": gpu.name, "kernel": one.kernel, "dtype": one.dtype, "columns": one.columns,
                    "picoseconds": round(bounds[bound] * 1e12, 2), "bound": bound, "busy": round(busy / bounds[bound], 2),
                    "tensor_picoseconds": round(bounds.get("tensor cores", 0) * 1e12, 2),
                    "versus": versus, "versus_picoseconds": round(least * 1e12, 2),
                    "ratio": round(least / bounds[bound], 2),
                }
            )  # fmt: skip
    return rows


def require_gpu() -> Any:
    """PyTorch with a GPU, and Triton; or what is missing."""
    from softermax.extras import need

    torch = need("torch", "torch")
    need("triton", "gpu")
    if not torch.cuda.is_available():
        raise ValueError(
            f"bench gpu needs a GPU that PyTorch sees, and torch {torch.__version__} sees none here: install the build for CUDA "
            "or ROCm on a machine with one, and for a comparison with it sageattention==1.0.6; --compile needs no GPU"
        )
    return torch


def left_out() -> list[str]:
    """Who takes no part in the measurement, and what it needs."""
    from importlib.util import find_spec

    if find_spec("sageattention") is not None:
        return []
    return ["SageAttention is not installed, and left out; it comes with: pip install sageattention==1.0.6"]


def measure(rounds: int, progress: Progress = silent) -> list[dict[str, Any]]:
    """Times on the GPU that is here, in microseconds: the least of ``rounds``, everybody in turn."""
    torch = require_gpu()
    races = [*_row_races(torch), *_attention_races(torch)]
    found = []
    for i, (case, runs) in enumerate(races):
        progress(i, len(races), case)
        best: dict[str, float] = {}
        for name, run in runs.items():
            run()  # compiles
            best[name] = float("inf")
        for _ in range(rounds):
            for name, run in runs.items():
                best[name] = min(best[name], _timed(torch, run))
        ours = best["softermax"]
        found += [
            {
                "gpu": torch.cuda.get_device_name(), "case": case, "versus": name, "microseconds": round(time, 2),
                "softermax_microseconds": round(ours, 2), "ratio": round(time / ours, 3),
            }
            for name, time in best.items()
            if name != "softermax"
        ]  # fmt: skip
    progress(len(races), len(races), "")
    return found


def _timed(torch: Any, run: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


Race = tuple[str, dict[str, Callable[[], Any]]]


def _row_races(torch: Any) -> list[Race]:
    from softermax.functional import softermax, softermax_int8

    races: list[Race] = []
    spec = PRESETS["paper"]

    def gradient(rows: Callable[[Any], Any], x: Any, grad: Any) -> Any:
        return torch.autograd.grad(rows(x), x, grad)

    ours, theirs = partial(softermax, spec=spec), partial(torch.softmax, dim=-1)
    for columns in (128, 384, 1024, 4096, 16384):
        count = (1 << 26) // columns
        for dtype in (torch.float32, torch.bfloat16):
            kind = str(dtype)[6:]
            x = torch.randn(count, columns, device="cuda", dtype=dtype) * 3
            leaf, grad = x.clone().requires_grad_(), torch.randn_like(x)
            both = {"softermax": ours, "torch.softmax": theirs}
            races += [
                (f"rows of {columns}, {kind}", {name: partial(run, x) for name, run in both.items()}),
                (
                    f"rows of {columns} and their gradient, {kind}",
                    {name: partial(gradient, run, leaf, grad) for name, run in both.items()},
                ),
            ]
        raw = torch.randint(-128, 128, (count, columns), device="cuda", dtype=torch.int8)
        name = f"rows of {columns}, int8 against float32"
        races.append(
            (
                name,
                {
                    "softermax": partial(softermax_int8, raw, spec),
                    "torch.softmax": partial(theirs, raw.float() / 4),
                },
            )
        )
    return races


def _attention_races(torch: Any) -> list[Race]:
    from softermax.functional import int8_attention
    from softermax.gpu.float_attention import float_attention
    from softermax.pytorch.operators import quantize_int8

    sdpa = torch.nn.functional.scaled_dot_product_attention
    sageattn = None if left_out() else import_module("sageattention").sageattn

    def gradient(attend: Callable[..., Any], operands: tuple[Any, ...], grad: Any) -> Any:
        return torch.autograd.grad(attend(*operands), operands, grad)

    races: list[Race] = []
    for length in (512, 2048, 8192):
        shape = (4, 16, length, SIZE)
        operands = tuple(torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
        words, scales = zip(*(quantize_int8(x) for x in operands), strict=True)
        score_scale = scales[0] * scales[1] / SIZE**0.5
        others: dict[str, Callable[[], Any]] = {"SDPA": partial(sdpa, *operands)}
        if sageattn is not None:
            others["SageAttention"] = partial(sageattn, *operands)
        for spec, mode in ((PRESETS["row-scaled"], "fixed"), (DeferredSpec(PRESETS["paper"]), "deferred")):
            fused = partial(float_attention, spec=spec, scale=SIZE**-0.5)
            q, k, v = words
            int8 = partial(int8_attention, q, k, v, score_scale, scales[2], spec)
            races += [
                (
                    f"attention over {length}, float16, {mode}",
                    {"softermax": partial(fused, *operands), **others},
                ),
                (f"attention over {length}, int8 against float16, {mode}", {"softermax": int8, **others}),
            ]
            if length <= 2048:
                leaves = tuple(x.clone().requires_grad_() for x in operands)
                grad = torch.randn_like(leaves[0])
                both = {"softermax": fused, "SDPA": sdpa}
                races.append(
                    (
                        f"attention over {length} and its gradient, float16, {mode}",
                        {name: partial(gradient, run, leaves, grad) for name, run in both.items()},
                    )
                )
    return races
