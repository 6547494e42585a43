"""IntAttention's IndexSoftmax: distances clipped at 6.6, a table of 32 bytes, one division per element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, divided_half_even
from softermax.rivals.designs.interface import About, Needs, Normalised

CLIP = 6.6
ENTRIES = 32
TOP = 255


def byte_table() -> NDArray[np.int64]:
    """exp(-6.6 i / 31) in 8 bits; the last entry is 0."""
    table = np.round(np.exp(-CLIP * np.arange(ENTRIES) / (ENTRIES - 1)) * TOP).astype(np.int64)
    table[-1] = 0
    return table


@dataclass(frozen=True)
class IndexSoftmax(Normalised):
    """Zhong et al., MLSys 2026, as the authors' simulation computes it; their NEON code rounds the index instead."""

    name: str = "index-softmax"

    about: About = About(
        title="IntAttention IndexSoftmax",
        sources=(
            "Zhong et al., IntAttention: A Fully Integer Attention Pipeline, MLSys 2026, arXiv 2511.21513",
            "WanliZhong/IntAttention@bccbdfaa ArtifactEvaluation/pysimulation/IntAttention.py",
        ),
        confidence="authors' code",
        needs=Needs(multipliers=2, table=ENTRIES),
        takes="int8 (int32 in the authors' pipeline)",
        claims=("Armv8 CPU, over FP16: up to 3.7x, energy -61 %",),
    )

    @property
    def gives(self) -> str:
        return "u8, p = y / 255"

    @property
    def unit(self) -> int:
        return TOP

    @property
    def lsb(self) -> float:
        return 1 / TOP

    def exponentials(self) -> NDArray[np.int64]:
        furthest = int(np.float32(CLIP) / np.float32(self.step))  # as the authors divide
        if furthest < 1:
            raise ValueError(f"{self.name}: scale = {self.step}: must be at most {CLIP}")
        distance = np.arange(furthest + 1)
        return np.asarray(byte_table()[distance * (ENTRIES - 1) // furthest], dtype=np.int64)

    def normalize(self, e: Array, total: Array) -> Array:
        return divided_half_even(TOP * e, total)


DESIGNS = (IndexSoftmax(),)
