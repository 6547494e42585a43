"""The kernels compiled for GPUs that need not be there: registers, spills, shared memory, instructions.

Triton brings the assembler of one vendor and the back end of the other. What runs per score is counted in the program's text, by
its loops. A row that stays in registers needs none: those that are there, and any within another, run rarely (sums added
in order, accumulators shifted slice by slice). Where a row is swept, one step of the loop counts, and the rest of the text by
the number of steps. Other branches count as if both sides ran.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from softermax.extras import need
from softermax.gpu.plan import most_warps, numbers
from softermax.progress import Progress, silent
from softermax.spec import get_spec

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
"""A100, H100 and MI300, as Triton names them: back end, architecture, threads of a warp."""
KEYS = 4096
"""Keys, and queries, of the attention that the estimates are about."""
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
    steps: int = 0
    """Of that loop, for the rows that the estimates are about; 0 where there is none."""
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
    """Bytes of a thread's stack. Scalars that AMD's compiler keeps in lanes of vector registers are none."""
    shared: int
    """Bytes of a program."""
    warps: int
    instructions: int
    """Of the text."""
    per_score: float
    """Instructions that run per score."""
    rare: float
    """Beside these, instructions per score of loops that run rarely, each counted once."""
    kinds: dict[str, float] = field(repr=False)
    """``per_score`` by kind."""


def jobs() -> Iterator[Job]:
    """Every kernel, for the tensors that the estimates are about."""
    from softermax.gpu import attention, launch, launch_attention, rows

    # A signature has a type where a launch has a value.
    batch, operands_of = cast(Any, rows.Batch), cast(Any, attention.Operands)
    for name, dtype, columns, preset in (
        ("rows", "float32", 1024, "paper"),
        ("rows", "bfloat16", 1024, "paper"),
        ("rows", "float16", 1024, "paper"),
        ("rows", "int8", 1024, "paper"),
        ("rows", "bfloat16", 384, "paper"),
        ("training", "bfloat16", 1024, "paper"),
        ("rows", "bfloat16", 16384, "paper"),
        ("swept rows", "bfloat16", 65536, "paper"),
        ("rows, row-scaled", "bfloat16", 1024, "row-scaled"),
        ("rows, lean", "bfloat16", 1024, "lean"),
        ("rows, lean-row-scaled", "bfloat16", 1024, "lean-row-scaled"),
    ):
        row_spec = get_spec(preset)
        has = rows.Has(
            floats=dtype != "int8", words=dtype == "int8" or name == "training", marks=name == "training",
            exponents=dtype == "int8",
        )  # fmt: skip
        tile = launch.row_tile(row_spec, 1 << 20, columns)
        kind = _TYPES[dtype]
        yield Job(
            name, dtype, columns, rows.forward_kernel,
            {
                "batch": batch(kind, "*u8", "*i32", *["i32"] * 4, *["i64"] * 4, "i32", "fp32"),
                "out": kind if has.floats else "*u8", "kept": "*u8", "marks": "*u8", "exponents": "*i32", "tables": "*i64",
            },
            {"p": numbers(row_spec), "has": has, "tile": tile}, launch.warps(tile),
            tile.rows * (columns if tile.resident else tile.step),
            0 if tile.resident else columns // tile.step,
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
            {"row_scaled": False, "tile": tile}, launch.warps(tile), tile.rows * tile.lanes, 0, True,
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
            kind,
            kind,
            kind if floats else "*fp16",
            "*u8",
            "*i32",
            *["i32"] * 4,
            *["i64"] * 4,
            "i32",
            "fp32",
            "fp32",
        )
        block = launch_attention.block_of(
            spec, KEYS, 64, KEYS, floats=floats, keeps=floats, mask=False, lengths=False, causal=False
        )
        known = {"p": numbers(spec), "b": block}
        yield Job(
            f"attention, {mode}", dtype, 64, attention.forward_kernel,
            {
                "operands": operands, "out": kind if floats else "*fp32", "value_scale": "*fp64", "state": "*i32",
                "maxima": "*i8", "tables": "*i64",
            },
            known, launch_attention.WARPS, block.queries * block.slices * block.lanes, KEYS // block.step,
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
        block = launch_attention.gradient_block(spec, block, KEYS, keys)
        yield Job(
            f"gradient of {name}, {mode}", "bfloat16", 64, kernel, {**common, **out, "factor": "fp32"},
            {"p": numbers(spec), "b": block}, warps, block.queries * block.lanes,
            KEYS // (keys if name == "queries" else block.queries),
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
    warps = min(job.warps, most_warps(back_end == "hip"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = triton.compile(
            source, target=GPUTarget(back_end, architecture, threads),
            options={"num_warps": warps, "enable_fp_fusion": job.fusion},
        )  # fmt: skip
    count = _cuda if back_end == "cuda" else _hip
    registers, spills, text = count(made.asm)
    per_thread = job.elements / (threads * warps)
    depths = _depths(text)
    kinds: dict[str, float] = defaultdict(float)
    rare = 0
    for one, depth in zip(text, depths, strict=True):
        if depth > (1 if job.steps else 0):
            rare += depth != NEVER
        else:
            kinds[one.name] += 1 if depth or not job.steps else 1 / job.steps
    each = {
        name: round(number / per_thread, 3)
        for name, number in sorted(kinds.items(), key=lambda kind: -kind[1])
    }
    return Compiled(
        job.name, job.dtype, job.columns, target, registers, spills, int(made.metadata.shared), warps,
        len(text), round(sum(each.values()), 1), round(rare / per_thread, 1), each,
    )  # fmt: skip


NEVER = 99


class Instruction(NamedTuple):
    """One of a program's text; for a branch, which one it may lead to; and whether the next one may follow it."""

    name: str
    target: int | None
    goes_on: bool


def _read(
    assembly: str, label: str, instruction: str, ends: str, strays: str, skipped: tuple[str, ...]
) -> list[Instruction]:
    """An assembly's text, by patterns: a label's name; an instruction's condition, name, and the label that it leads to;
    those after which, without a condition, no next one follows; those that lead to code for threads that have strayed."""
    places: dict[str, int] = {}
    found: list[tuple[str, str | None, bool]] = []
    for line in assembly.splitlines():
        if named := re.match(label, line):
            places[named[1]] = len(found)
        elif (one := re.match(instruction, line)) and one[2] not in skipped:
            led = None if re.match(strays, one[2]) else one[3]
            found.append((one[2].split(".")[0], led, bool(one[1]) or not re.fullmatch(ends, one[2])))
    return [Instruction(name, places.get(target) if target else None, on) for name, target, on in found]


def _depths(text: list[Instruction]) -> list[int]:
    """How many loops an instruction is in, `NEVER` for code of strayed threads. A loop is a branch to what every way to the branch leads through, and all that
    lies on ways from there to it."""
    count = len(text)
    heads = sorted({0, *(one.target for one in text if one.target is not None and one.target < count)}
                   | {i + 1 for i, one in enumerate(text) if (one.target is not None or not one.goes_on) and i + 1 < count})  # fmt: skip
    block_of = {head: b for b, head in enumerate(heads)}
    ends = [*heads[1:], count]
    after: list[set[int]] = []
    for end in ends:
        last = text[end - 1]
        places = ({last.target} if last.target is not None else set()) | ({end} if last.goes_on else set())
        after.append({block_of[place] for place in places if place in block_of})
    reached, waiting = {0}, [0]
    while waiting:
        waiting += (new := after[waiting.pop()] - reached)
        reached |= new
    before: list[set[int]] = [set() for _ in heads]
    for b in reached:
        for f in after[b]:
            before[f].add(b)
    over = {b: reached if b else {0} for b in reached}  # the blocks that every way to one leads through
    changed = True
    while changed:
        changed = False
        for b in sorted(reached - {0}):
            found = {b} | set.intersection(*(over[x] for x in before[b]))
            changed |= found != over[b]
            over[b] = found
    loops: dict[int, set[int]] = {}
    for b in reached:
        for head in after[b] & over[b]:
            body, waiting = {head}, [b]
            while waiting:
                x = waiting.pop()
                if x not in body:
                    body.add(x)
                    waiting += before[x]
            loops.setdefault(head, set()).update(body)
    depths = []
    for b, (head, end) in enumerate(zip(heads, ends, strict=True)):
        depth = sum(b in body for body in loops.values()) if b in reached else NEVER
        depths += [depth] * (end - head)
    return depths


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


def _cuda(assembly: Any) -> tuple[int, int, list[Instruction]]:
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
    return (
        int(found[1]),
        int(found[2]) + int(found[3]),
        _read(
            text,
            r"^(\.L_x_\d+):",
            r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?([A-Z0-9_.]+)(?:.*`\((\.L_x_\d+)\))?",
            r"BRA(\.U|\.CONV)?|BRX|EXIT|RET.*",
            r"BRA\.DIV|CALL",
            ("NOP",),
        ),
    )


def _hip(assembly: Any) -> tuple[int, int, list[Instruction]]:
    text = str(assembly["amdgcn"])

    def number(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", text)
        if found is None:
            raise RuntimeError(f"the assembly has no {name}")
        return int(found[1])

    body = text[: text.index(".amdhsa_kernel")]
    return (
        number("vgpr_count"),
        number("private_segment_fixed_size"),
        _read(
            body,
            r"^(\.LBB\w+):",
            r"^\t()([a-z]+_[a-z0-9_]+)(?:\s+(\.LBB\w+))?",
            "s_branch|s_endpgm",
            "s_call",
            ("s_nop", "s_code_end"),
        ),
    )
