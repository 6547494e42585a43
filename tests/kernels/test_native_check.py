"""Paths that this CPU may not have, and sanitizers: `native_check` compares each with the scalar path."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from .native_build import build, run, write_specs

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="an x86-64 CPU is needed")

SCALAR, AVX2, AVX512, NEON = range(4)


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    write_specs(tmp_path / "specs.txt")
    return tmp_path / "specs.txt"


@pytest.mark.tool("simde")
def test_avx512_by_emulated_intrinsics(tmp_path: Path, specs: Path) -> None:
    program = build(["g++"], tmp_path / "check", ["-O1", '-DSMX_INTRINSICS="simde512.h"'])
    assert " 0 failures" in run([program, str(AVX512), specs, "140"])


@pytest.mark.tool("aarch64")
def test_neon_under_emulation(tmp_path: Path, specs: Path) -> None:
    program = build(["aarch64-linux-gnu-g++"], tmp_path / "check", ["-O1", "-static"])
    assert " 0 failures" in run(["qemu-aarch64", program, str(NEON), specs, "140"])


@needs_x86
@pytest.mark.slow
@pytest.mark.parametrize("isa", [SCALAR, AVX2, pytest.param(AVX512, marks=pytest.mark.tool("simde"))])
def test_sanitizers_find_nothing(isa: int, tmp_path: Path, specs: Path) -> None:
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    if isa == AVX512:  # the emulation's own signed sums wrap, as the instructions do: memory only
        flags[2] = "-fsanitize=address"
        flags.append('-DSMX_INTRINSICS="simde512.h"')
    program = build(["g++"], tmp_path / "check", flags)
    assert " 0 failures" in run([program, str(isa), specs])


@pytest.mark.slow
def test_threads_do_not_race(tmp_path: Path, specs: Path) -> None:
    isa = AVX2 if platform.machine() == "x86_64" else NEON
    program = build(["g++"], tmp_path / "check", ["-O1", "-g", "-fsanitize=thread"])
    assert " 0 failures" in run([program, str(isa), specs, "40"])
