"""The kernels compiled for GPUs that need not be there: registers, spills, shared memory, instructions.

Triton brings the assembler of one vendor and the back end of the other. Instructions are those of a program's text, so code
that rarely runs, such as sums added in order, counts too, and a loop counts once.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from softermax.extras import need
from softermax.gpu.plan import numbers
from softermax.progress import Progress, silent
from softermax.spec import get_spec

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
"""A100, H100 and MI300, as Triton names them: back end, architecture, threads of a warp."""
_TYPES = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16", "int8": "*i8"}


class Job(NamedTuple):
    """A kernel as it is launched for one kind of tensors."""

    name: str
    dtype: str
    columns: int
    kernel: Any
    signature: dict[str, Any]
    constants: dict[str, Any]
    warps: int
    elements: int
    """Scores of a program, of one step of its loop where it has one."""
    fusion: bool = False


@dataclass(frozen=True)
class Compiled:
    """What a compiler made of a kernel."""

    kernel: str
    dtype: str
    columns: int
    target: str
    registers: int
    spills: int
    """Bytes of a thread's stack on the one vendor's GPUs, spilled registers on the other's."""
    shared: int
    """Bytes of a program."""
    warps: int
    instructions: int
    per_score: float
    """Instructions of the text that a thread has per score: an upper bound of what runs, where no loop is in it."""
    kinds: dict[str, int] = field(repr=False)


def jobs() -> Iterator[Job]:
    """Every kernel, for the tensors that the estimates are about."""
    from softermax.gpu import attention, launch, launch_attention, rows

    paper = get_spec("paper")
    # A signature has a type where a launch has a value.
    batch, operands_of = cast(Any, rows.Batch), cast(Any, attention.Operands)
    for name, dtype, columns in (
        ("rows", "float32", 1024),
        ("rows", "bfloat16", 1024),
        ("rows", "float16", 1024),
        ("rows", "int8", 1024),
        ("rows", "bfloat16", 384),
        ("training", "bfloat16", 1024),
        ("swept rows", "bfloat16", 16384),
    ):
        has = rows.Has(
            floats=dtype != "int8", words=dtype == "int8" or name == "training", marks=name == "training",
            exponents=dtype == "int8",
        )  # fmt: skip
        tile = launch.row_tile(paper, 1 << 20, columns)
        kind = _TYPES[dtype]
        yield Job(
            name, dtype, columns, rows.forward_kernel,
            {
                "batch": batch(kind, "*u8", "*i32", *["i32"] * 4, *["i64"] * 4, "i32", "fp32"),
                "out": kind if has.floats else "*u8", "kept": "*u8", "marks": "*u8", "exponents": "*i32", "tables": "*i64",
            },
            {"p": numbers(paper), "has": has, "tile": tile}, launch.warps(tile), tile.rows * tile.slices * tile.lanes,
        )  # fmt: skip
    for dtype in ("float32", "bfloat16"):
        kind = _TYPES[dtype]
        tile = launch.gradient_tile(1 << 20, 1024)
        yield Job(
            "gradient of rows", dtype, 1024, rows.backward_kernel,
            {
                "grads": kind, "words": "*u8", "marks": "*u8", "exponents": "*i32", "out": kind, "rows": "i32",
                "columns": "i32", "factor": "fp32", "lsb": "fp32",
            },
            {"row_scaled": False, "tile": tile}, launch.warps(tile), tile.rows * tile.lanes, True,
        )  # fmt: skip
    for name, dtype in (
        ("paper", "int8"),
        ("paper:deferred", "int8"),
        ("paper", "bfloat16"),
        ("paper:deferred", "bfloat16"),
    ):
        spec = get_spec(name)
        mode = "deferred" if name != "paper" else "fixed"
        kind = _TYPES[dtype]
        floats = dtype != "int8"
        operands = operands_of(
            kind, kind, kind, "*u8", "*i32", *["i32"] * 4, *["i64"] * 4, "i32", "fp32", "fp32"
        )
        block = launch_attention.block_of(
            spec, 4096, 64, 4096, floats=floats, keeps=floats, mask=False, lengths=False, causal=False
        )
        known = {"p": numbers(spec), "b": block}
        yield Job(
            f"attention, {mode}", dtype, 64, attention.forward_kernel,
            {
                "operands": operands, "out": kind if floats else "*fp32", "value_scale": "*fp64", "state": "*i32",
                "maxima": "*i8", "tables": "*i64",
            },
            known, launch_attention.WARPS, block.queries * block.slices * block.lanes,
        )  # fmt: skip
        if floats:
            yield from _gradient_jobs(mode, kind, spec, operands, block)


def _gradient_jobs(mode: str, kind: str, spec: Any, operands: Any, block: Any) -> Iterator[Job]:
    from softermax.gpu import attention_gradient, launch_attention

    common = {
        "operands": operands, "grads": kind, "deltas": "*fp32", "state": "*i32", "maxima": "*i8", "tables": "*i64",
    }  # fmt: skip
    for name, kernel, out, keys, warps in (
        (
            "queries",
            attention_gradient.queries_kernel,
            {"out": kind},
            launch_attention.QUERY_GRADIENT_KEYS,
            launch_attention.WARPS,
        ),
        (
            "keys",
            attention_gradient.keys_kernel,
            {"out_k": kind, "out_v": kind},
            launch_attention.KEYS,
            launch_attention.KEY_GRADIENT_WARPS,
        ),
    ):
        block = launch_attention.gradient_block(spec, block, 4096, keys)
        yield Job(
            f"gradient of {name}, {mode}", "bfloat16", 64, kernel, {**common, **out, "factor": "fp32"},
            {"p": numbers(spec), "b": block}, warps, block.queries * block.lanes, True,
        )  # fmt: skip


def compile_kernels(
    targets: tuple[str, ...] = tuple(TARGETS),
    wanted: Callable[[Job], bool] = lambda job: True,
    progress: Progress = silent,
) -> list[Compiled]:
    """Every kernel that is ``wanted`` for every target."""
    for name in targets:
        if name not in TARGETS:
            raise ValueError(f"target {name!r}: must be one of {', '.join(TARGETS)}")
    need("triton", "gpu")
    some = [job for job in jobs() if wanted(job)]
    found: list[Compiled] = []
    for target in targets:
        for job in some:
            progress(len(found), len(some) * len(targets), f"{target}: {job.name}, {job.dtype}")
            found.append(_compile(job, target))
    progress(len(found), len(found), "")
    return found


def _compile(job: Job, target: str) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: "constexpr" for name in job.constants}
    named = {name: job.signature.get(name, signature.get(name)) for name in job.kernel.arg_names}
    source = ASTSource(job.kernel, signature=named, constexprs=job.constants, attrs=_aligned(named))
    back_end, architecture, threads = TARGETS[target]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = triton.compile(
            source, target=GPUTarget(back_end, architecture, threads),
            options={"num_warps": job.warps, "enable_fp_fusion": job.fusion},
        )  # fmt: skip
    count = _cuda if back_end == "cuda" else _hip
    registers, spills, kinds = count(made.asm)
    per_thread = job.elements / (threads * job.warps)
    return Compiled(
        job.name, job.dtype, job.columns, target, registers, spills, int(made.metadata.shared), job.warps,
        sum(kinds.values()), round(sum(kinds.values()) / per_thread, 1), dict(kinds.most_common()),
    )  # fmt: skip


def _aligned(signature: dict[str, Any]) -> dict[tuple[int, ...], list[list[object]]]:
    """What a launch finds of tensors as PyTorch makes them: pointers, and lengths here, are multiples of 16."""
    found: dict[tuple[int, ...], list[list[object]]] = {}
    for i, kind in enumerate(signature.values()):
        inner = kind if isinstance(kind, tuple) else (kind,)
        names = getattr(kind, "_fields", ("",))
        for j, (name, one) in enumerate(zip(names, inner, strict=True)):
            if one.startswith("*") or name in ("columns", "keys"):
                found[(i, j) if isinstance(kind, tuple) else (i,)] = [["tt.divisibility", 16]]
        if list(signature)[i] == "columns":
            found[(i,)] = [["tt.divisibility", 16]]
    return found


def _tool(name: str) -> str:
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


def _cuda(assembly: Any) -> tuple[int, int, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(assembly["cubin"])
        usage = subprocess.run(
            [_tool("cuobjdump"), "-res-usage", str(path)], capture_output=True, text=True, check=True
        ).stdout
        text = subprocess.run(
            [_tool("nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+).*? LOCAL:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {usage!r}")
    names = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)", text, re.MULTILINE)
    return int(found[1]), int(found[2]) + int(found[3]), Counter(name for name in names if name != "NOP")


def _hip(assembly: Any) -> tuple[int, int, Counter[str]]:
    text = str(assembly["amdgcn"])

    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        if found is None:
            raise RuntimeError(f"the assembly has no {name}")
        return int(found[1])

    body = text[: text.index(".amdhsa_kernel")]
    names = re.findall(r"^\t([a-z]+_[a-z0-9_]+)", body, re.MULTILINE)
    kinds = Counter(name for name in names if name not in ("s_nop", "s_code_end"))
    return number("vgpr_count"), number("vgpr_spill_count") + number("sgpr_spill_count"), kinds
