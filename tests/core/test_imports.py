"""The plan of rooms, held to by reading every import of the package, those inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import softermax

ROOT = Path(softermax.__file__).parent

# The one exception: a spec computes itself and makes its own hardware, as in Amaranth's lib/crc.
REACHES_UP = {("softermax.spec", "softermax.golden"), ("softermax.spec", "softermax.rtl.units")}

FOUNDATION = {
    "cache",
    "executor",
    "extras",
    "files",
    "fixedpoint",
    "paper",
    "progress",
    "results",
    "spec",
    "tables",
}
"""Modules at the top that know nothing of the rooms."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in FILES.items()}


def imported(module: str) -> Iterator[tuple[str, str]]:
    """Modules that a module imports, with the name that it takes from each ('' for the module itself)."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner, "") if inner in FILES else (str(node.module), alias.name)


def edges() -> Iterator[tuple[str, str]]:
    """Pairs of modules of this package, the first importing the second."""
    for module in FILES:
        for other, _ in imported(module):
            if other in FILES and (module, other) not in REACHES_UP:
                yield module, other


def room_of(module: str) -> str:
    """A module at the top is a room of its own; below, a room is the package that holds the module."""
    path = FILES[module]
    folder = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return module if folder == "softermax" else folder


def top(module: str) -> str:
    """The name directly below the package: ``rtl`` of ``softermax.rtl.baseline.add``."""
    return module.split(".")[1] if "." in module else ""


def test_rooms_do_not_import_each_other() -> None:
    known: dict[str, set[str]] = {}
    for module, other in edges():
        if room_of(module) != room_of(other):
            known.setdefault(room_of(module), set()).add(room_of(other))

    def reaches(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for room in known.get(waiting.pop(), ()):
                if room not in found:
                    found.add(room)
                    waiting.append(room)
        return found

    cycles = sorted(room for room in known if room in reaches(room))
    assert cycles == []


def test_golden_knows_numpy_and_the_foundation_only() -> None:
    for module in FILES:
        if top(module) in {"golden", *FOUNDATION}:
            for other, _ in imported(module):
                if other in FILES:
                    allowed = FOUNDATION | {"golden"} if top(module) == "golden" else FOUNDATION | {""}
                    lazily = (module, other) in REACHES_UP or (module, top(other)) == (
                        "softermax.results",
                        "kernels",
                    )
                    assert top(other) in allowed or lazily, f"{module} imports {other}"
                else:
                    assert other.split(".")[0] not in ("torch", "scipy", "amaranth", "transformers"), (
                        module,
                        other,
                    )


def test_rivals_know_numpy_golden_and_the_foundation_only() -> None:
    for module in FILES:
        if top(module) == "rivals":
            for other, _ in imported(module):
                if other in FILES:
                    assert top(other) in FOUNDATION | {"golden", "rivals"}, f"{module} imports {other}"
                else:
                    assert other.split(".")[0] not in ("torch", "scipy", "transformers"), (module, other)


def test_hardware_never_imports_torch_or_the_rooms_that_do() -> None:
    for module in FILES:
        if top(module) in ("rtl", "silicon"):
            for other, _ in imported(module):
                assert other.split(".")[0] not in ("torch", "transformers", "onnx", "onnxruntime"), (
                    module,
                    other,
                )
                if other in FILES:
                    allowed = FOUNDATION | {"golden", "rivals", "rtl", "verify"}
                    allowed |= {"silicon"} if top(module) == "silicon" else set()
                    assert top(other) in allowed | {""}, f"{module} imports {other}"


def test_kernels_for_gpus_know_pytorchs_operators_and_never_who_uses_them() -> None:
    for module, other in edges():
        if top(module) == "gpu":
            allowed = FOUNDATION | {"golden", "gpu", "pytorch", "verify"}
            assert top(other) in allowed, f"{module} imports {other}"


def test_search_never_imports_torch_or_the_rooms_that_do() -> None:
    allowed = FOUNDATION | {"golden", "rivals", "rtl", "silicon", "search"}
    for module in FILES:
        if top(module) == "search":
            for other, _ in imported(module):
                assert other.split(".")[0] not in ("torch", "transformers"), (module, other)
                if other in FILES:
                    assert top(other) in allowed, f"{module} imports {other}"


def test_nothing_imports_the_command_line_and_it_alone_the_report_and_the_explorer() -> None:
    for module, other in edges():
        if top(other) != top(module):
            assert top(other) != "cli", f"{module} imports {other}"
            if top(other) in ("report", "explorer"):
                assert top(module) == "cli", f"{module} imports {other}"


def test_private_names_stay_in_their_module() -> None:
    taken = [
        f"{module} takes {name} from {other}"
        for module in FILES
        for other, name in imported(module)
        if other.startswith("softermax") and name.startswith("_") and name != "__version__"
    ]
    assert taken == []
