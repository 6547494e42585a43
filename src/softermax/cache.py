"""Results that can be made again, kept by the content of everything that they depend on.

One helper for all of them. A key covers what the caller names and the package's own sources that compute the result:
whoever changes those gets a new result without having to remember a version number. A file in the cache that cannot be
read is named and made anew.
"""

from __future__ import annotations

import ast
import hashlib
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from softermax.files import replacing

T = TypeVar("T")

ROOT = Path(__file__).parent
"""The sources that keys are made of."""
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile)
"""What reading a broken file raises, whatever its format."""
_COMPUTES_NOTHING = {
    f"softermax.{name}" for name in ("cache", "executor", "extras", "files", "progress", "results")
}
"""What a module imports to keep and to tell its results, not to make them."""
_SEAL = 32
"""Bytes of the digest after a compiled file."""


def cache_dir(*parts: str) -> Path:
    """A folder below ``$SOFTERMAX_CACHE``, or below ``softermax`` in the user's cache; made if it is not there."""
    own = os.environ.get("SOFTERMAX_CACHE")
    # An empty variable counts as unset, as the XDG specification says.
    base = (
        Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "softermax"
    )
    folder = base.joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def key(*depends: object, sources: Iterable[str] = ()) -> str:
    """Changes with the text of any of ``depends`` and with the ``sources`` (see `fingerprint`)."""
    texts = [str(part) for part in depends] + [fingerprint(tuple(sources))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def kept(path: Path, make: Callable[[Path], object], read: Callable[[Path], T]) -> T:
    """What ``read`` finds at ``path``; ``make`` writes it first where it is missing or cannot be read.

    ``make`` gets a temporary path, which becomes ``path`` when it is whole.
    """
    there = look_up(path, read)
    if there is not None:
        return there
    with replacing(path) as partial:
        make(partial)
    return read(path)


def look_up(path: Path, read: Callable[[Path], T]) -> T | None:
    """What ``read`` finds at ``path``; None where it is missing or, with a warning, cannot be read."""
    if path.exists():
        try:
            return read(path)
        except _UNREADABLE as error:
            warnings.warn(f"{path} in the cache cannot be read ({error}); it is made anew", stacklevel=3)
    return None


def seal(path: Path) -> None:
    """Put a digest after a compiled file, which loaders ignore: one that is cut off would end whoever loads it."""
    with path.open("r+b") as stream:
        digest = hashlib.sha256(stream.read()).digest()
        stream.write(digest)


def sealed(path: Path) -> Path:
    """``path``, for a file that is as `seal` left it."""
    content = path.read_bytes()
    if hashlib.sha256(content[:-_SEAL]).digest() != content[-_SEAL:]:
        raise ValueError("its end or its content is not what was written")
    return path


@lru_cache(maxsize=64)
def fingerprint(sources: tuple[str, ...]) -> str:
    """A digest of parts of this package: ``silicon.power`` stands for that module and all that it imports when it is
    imported, ``silicon/engine.cpp`` for that file, ``golden/`` for every source in that folder.

    Comments, docstrings and the layout of Python are not part of it: they cannot change a result.
    """
    files: set[Path] = set()
    for name in sources:
        if name.endswith("/"):
            found = {
                path for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".cpp", ".h", ".json")
            }
        elif "/" in name:
            found = {ROOT / name}
        else:
            found = _imported(f"softermax.{name}")
        if not found or not all(path.is_file() for path in found):
            raise ValueError(f"source {name!r}: there is no such part of the package")
        files |= found
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + _code(path) + b"\0")
    return digest.hexdigest()


def _imported(module: str) -> set[Path]:
    """The files of a module and of everything of this package that importing it imports."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        path = _file_of(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += [name for name in _imports(path) if name not in _COMPUTES_NOTHING]
    return found


def _file_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split(".")[1:])
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports at its top level; what a function imports is the caller's."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("softermax."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "softermax":
            if node.module != "softermax":
                yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _Bare(ast.NodeTransformer):
    """Leaves out texts that stand by themselves: docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def _code(path: Path) -> bytes:
    """What a source makes the machine do."""
    if path.suffix != ".py":
        return path.read_bytes()
    return ast.dump(_Bare().visit(ast.parse(path.read_text(encoding="utf-8")))).encode()
