"""TabPFN: a Transformer that classifies a table in one forward pass, so that nothing has to be trained to compare softmaxes.

Rows are tokens. Those with a label attend to each other, those without to the labelled ones. The weights are those of
Hollmann et al. (2022), release 0.1 on PyPI (MIT): 12 layers of width 512 with 4 heads, up to 100 features and 10 classes.
The forward pass here is a plain one: one order of features and classes, standardised columns, no ensemble.
"""

from __future__ import annotations

import math
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from softermax.functional import softermax
from softermax.spec import AnySpec, get_spec

HEADS = 4
CLIP = 100.0
"""Standard deviations beyond which a feature is cut off."""
_MEMBER = ".cpkt"

Attention = Callable[[Tensor], Tensor]
"""Probabilities of scores along the last axis."""


def attention_of(variant: str | AnySpec) -> Attention:
    """``exact``, or a spec."""
    if variant == "exact":
        return lambda scores: torch.softmax(scores, dim=-1)
    spec = get_spec(variant) if isinstance(variant, str) else variant
    return lambda scores: softermax(scores, spec=spec)


class TabPfn:
    """The network, from its source archive (``tabpfn-0.1.tar.gz``) or from the checkpoint in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.weights = {name.removeprefix("module."): value for name, value in _read(Path(path)).items()}
        try:
            self.features = self.weights["encoder.weight"].shape[1]
            self.classes = self.weights["decoder.2.weight"].shape[0]
            self.layers = 1 + max(int(n.split(".")[2]) for n in self.weights if n.endswith("norm1.weight"))
        except (KeyError, ValueError):
            raise ValueError(f"{path}: not a checkpoint of TabPFN 0.1") from None

    @torch.no_grad()
    def logits(
        self,
        known: NDArray[np.float64],
        labels: NDArray[np.int64],
        asked: NDArray[np.float64],
        attention: Attention,
    ) -> Tensor:
        """Of each row of ``asked``, by class, from rows whose labels (0, 1, ...) are known."""
        classes = int(labels.max()) + 1
        if known.shape[1] > self.features:
            raise ValueError(f"features = {known.shape[1]}: must be at most {self.features}")
        if classes > self.classes:
            raise ValueError(f"classes = {classes}: must be at most {self.classes}")
        count = len(known)
        x = self._linear("encoder", self._columns(known, asked))
        x[:count] += self._linear("y_encoder", torch.from_numpy(labels).float()[:, None])
        for layer in range(self.layers):
            x = self._layer(f"transformer_encoder.layers.{layer}", x, count, attention)
        out = self._linear("decoder.2", functional.gelu(self._linear("decoder.0", x[count:])))
        return out[:, :classes]

    def _columns(self, known: NDArray[np.float64], asked: NDArray[np.float64]) -> Tensor:
        """Standardised by the known rows; fewer features are larger, as in training; the rest are zero."""
        mean, spread = known.mean(0), known.std(0, ddof=1)
        used = spread > 0
        both = np.concatenate((known, asked))[:, used]
        scaled = np.clip((both - mean[used]) / spread[used], -CLIP, CLIP) * self.features / max(used.sum(), 1)
        padded = np.pad(scaled, ((0, 0), (0, self.features - scaled.shape[1])))
        return torch.from_numpy(padded).float()

    def _layer(self, name: str, x: Tensor, count: int, attention: Attention) -> Tensor:
        width = x.shape[1]
        weight, bias = (self.weights[f"{name}.self_attn.in_proj_{part}"] for part in ("weight", "bias"))
        # Queries of all rows, keys and values of the labelled ones.
        q, k, v = functional.linear(x, weight, bias).chunk(3, dim=-1)
        q, k, v = (
            part.reshape(len(part), HEADS, width // HEADS).transpose(0, 1)
            for part in (q, k[:count], v[:count])
        )
        mixed = attention(q @ k.mT / math.sqrt(width // HEADS)) @ v
        mixed = self._linear(f"{name}.self_attn.out_proj", mixed.transpose(0, 1).reshape(len(x), width))
        x = self._norm(f"{name}.norm1", x + mixed)
        inner = functional.gelu(self._linear(f"{name}.linear1", x))
        return self._norm(f"{name}.norm2", x + self._linear(f"{name}.linear2", inner))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(
            x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        )


def _read(path: Path) -> dict[str, Tensor]:
    """The checkpoint's tensors; nothing else in it is run."""
    try:
        if not tarfile.is_tarfile(path):
            with path.open("rb") as file:
                return _tensors(file)
        with tarfile.open(path) as archive:
            member = next((m for m in archive.getmembers() if m.name.endswith(_MEMBER)), None)
            file_in = archive.extractfile(member) if member else None
            if file_in is None:
                raise ValueError(f"{path}: has no checkpoint ({_MEMBER}) in it")
            return _tensors(file_in)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{path}: not a checkpoint of TabPFN 0.1 ({error})") from None


def _tensors(file: IO[bytes]) -> dict[str, Tensor]:
    found = torch.load(file, map_location="cpu", weights_only=True)
    tensors = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(tensors, dict):
        raise RuntimeError("it holds no dictionary of tensors")
    return tensors
