"""Files that are whole or absent."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it on success and deleted on failure.

    What was made executable is so from its first moment in place: another process may run it at once.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        mode = 0o777 if partial.stat().st_mode & stat.S_IXUSR else 0o666
        os.chmod(partial, mode & ~_umask())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file that a user gave; an error names the file, and the line that is not UTF-8."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{os.fspath(path)}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x} at {error.start})"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
