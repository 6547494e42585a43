"""Rows from NumPy: int8 words to uint8 words, float scores to probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from softermax.kernels.core import ISAS, isa, native, usable
from softermax.kernels.plan import native_spec
from softermax.spec import SoftermaxSpec

if TYPE_CHECKING:
    from softermax.golden import BoolArray

MAX_DIMS = 8
FLOATS = {"float32": 0, "float16": 2}
"""Scores that NumPy can hold, with the type's number in the C ABI."""


def path_number(path: str | None) -> int:
    """The C ABI's number of a path, or of the one in use."""
    chosen = isa() if path is None else path
    if chosen is None:
        raise RuntimeError("the native core is not available: `softermax info` says why")
    if chosen not in usable():
        raise ValueError(f"path {chosen!r}: this CPU and this build can run {', '.join(usable())}")
    return ISAS[chosen]


def softermax_int8(
    raw: NDArray[np.int8],
    spec: SoftermaxSpec,
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer[Any]] | None = None,
    causal: bool = False,
    out: NDArray[np.uint8] | None = None,
    path: str | None = None,
    threads: int = 1,
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Output words and exponents (A7; zero for a fixed output) of rows along the last axis.

    An element takes part where ``mask`` (boolean, broadcast) is True, its column is below the row's
    entry of ``lengths`` (broadcast to the leading axes), and, with ``causal``, not past its row: row i
    of the last two axes sees columns 0 to i + columns - rows.
    """
    prepared = PreparedRows(raw, spec, mask, lengths, causal, out, path, threads)
    prepared()
    return prepared.words, prepared.exponent


class PreparedRows:
    """A call of `softermax_int8` with everything checked: calling it again reads the same buffers anew."""

    def __init__(
        self,
        raw: NDArray[np.int8],
        spec: SoftermaxSpec,
        mask: NDArray[np.bool_] | None = None,
        lengths: NDArray[np.integer[Any]] | None = None,
        causal: bool = False,
        out: NDArray[np.uint8] | None = None,
        path: str | None = None,
        threads: int = 1,
    ) -> None:
        x = np.asarray(raw)
        if x.dtype != np.int8:
            raise TypeError(f"raw words must be int8, got {x.dtype}")
        if x.ndim == 0:
            raise ValueError("raw words need at least one dimension, got a scalar")
        if x.ndim - 1 > MAX_DIMS:
            raise ValueError(f"raw words have {x.ndim} dimensions; must be at most {MAX_DIMS + 1}")
        if causal and x.ndim < 2:
            raise ValueError(f"causal needs rows and columns, got shape {x.shape}")
        lead, columns = x.shape[:-1], x.shape[-1]
        if out is None:
            out = _on_a_line(x.shape)
        elif out.dtype != np.uint8 or out.shape != x.shape or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be dense uint8 of shape {x.shape}, got {out.dtype} of shape {out.shape}"
            )
        self.words = out
        self.exponent = np.zeros(lead, dtype=np.int32)
        number = path_number(path)
        if columns > 1 and x.strides[-1] != 1:
            x = np.ascontiguousarray(x)
        keep, keep_stride = dense_mask(mask, x.shape)
        counts = _lengths(lengths, lead)
        self._buffers = x, keep, counts
        self._empty = x.size == 0
        self._arguments = (
            native_spec(spec), list(lead), list(x.strides[:-1]), keep_stride, columns,
            0 if keep is None else address(keep), 0 if counts is None else address(counts),
            causal, columns - lead[-1] if causal else 0,
            address(x), address(out), address(self.exponent), number, threads,
        )  # fmt: skip

    def __call__(self) -> None:
        if not self._empty:
            native.rows_int8(*self._arguments)


@dataclass(frozen=True)
class FloatRows:
    """What the core makes of float scores: probabilities, and what a backward pass needs."""

    probabilities: NDArray[np.floating[Any]]
    words: NDArray[np.uint8]
    exponent: NDArray[np.int32]
    saturated: BoolArray
    """The scores that A1 clips: no gradient passes there."""


def softermax_float(
    scores: NDArray[np.floating[Any]],
    spec: SoftermaxSpec,
    mask: NDArray[np.bool_] | None = None,
    path: str | None = None,
    threads: int = 1,
) -> FloatRows:
    """Probabilities, of the scores' own type, along the last axis.

    An element takes part where ``mask`` (boolean, broadcast) is True; a NaN or an infinity elsewhere is an error.
    """
    if scores.dtype.name not in FLOATS:
        raise TypeError(f"scores must be one of {', '.join(FLOATS)}, got {scores.dtype}")
    if not 1 <= scores.ndim <= MAX_DIMS + 1:
        raise ValueError(f"scores have {scores.ndim} dimensions; must be 1 to {MAX_DIMS + 1}")
    x = np.ascontiguousarray(scores)
    lead, columns = x.shape[:-1], x.shape[-1]
    keep, keep_stride = dense_mask(mask, x.shape)
    y, words, exponent = np.empty_like(x), np.zeros(x.shape, np.uint8), np.zeros(lead, np.int32)
    marks = np.zeros(
        (*lead, 1 + (columns + 7) // 8), np.uint8
    )  # per row: any saturated; then a bit per score
    if x.size:
        stride = [step // x.itemsize for step in x.strides[:-1]]
        broken = native.rows_float(
            native_spec(spec), list(lead), stride, keep_stride, columns, 0 if keep is None else address(keep),
            0, False, 0, FLOATS[x.dtype.name], address(x), address(y), address(words), address(marks),
            address(exponent), path_number(path), threads,
        )  # fmt: skip
        if broken >= 0:
            raise ValueError(
                f"scores must be finite where they are not masked, found NaN or infinity in row {broken}"
            )
    bits = np.unpackbits(marks[..., 1:], axis=-1, bitorder="little", count=columns)
    return FloatRows(y, words, exponent, bits.astype(np.bool_))


def _on_a_line(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An array that starts on a cache line: only then can large outputs bypass the cache."""
    size = int(np.prod(shape, dtype=np.int64))
    buffer = np.empty(size + 64, dtype=np.uint8)
    start = -address(buffer) % 64
    return buffer[start : start + size].reshape(shape)


def address(array: NDArray[Any]) -> int:
    # Several times faster than array.ctypes.data.
    return int(array.__array_interface__["data"][0])


def dense_mask(mask: Any, shape: tuple[int, ...]) -> tuple[NDArray[np.bool_] | None, list[int]]:
    """A mask with dense columns, and its strides over the leading axes."""
    if mask is None:
        return None, [0] * (len(shape) - 1)
    keep = np.asarray(mask)
    if keep.dtype != np.bool_:
        raise TypeError(f"mask must be boolean, True where an element takes part, got dtype {keep.dtype}")
    try:
        whole = np.broadcast_to(keep, shape)
    except ValueError:
        raise ValueError(f"mask of shape {keep.shape} does not broadcast to the scores' {shape}") from None
    if whole.strides[-1] != 1 and shape[-1] > 1:
        whole = np.ascontiguousarray(whole)
    return whole, list(whole.strides[:-1])


def _lengths(lengths: Any, lead: tuple[int, ...]) -> NDArray[np.int32] | None:
    if lengths is None:
        return None
    counts = np.asarray(lengths)
    if counts.dtype.kind not in "iu":
        raise TypeError(f"lengths must be integers, got dtype {counts.dtype}")
    if counts.size and counts.min() < 0:
        raise ValueError(f"lengths must be 0 or more, got {counts.min()}")
    try:
        whole = np.broadcast_to(counts, lead)
    except ValueError:
        raise ValueError(f"lengths of shape {counts.shape} do not broadcast to the rows' {lead}") from None
    return np.ascontiguousarray(np.minimum(whole, np.iinfo(np.int32).max), dtype=np.int32)
