"""A processing element of one's own: its sizes and its dataflow, from a JSON file.

    {"name": "edge", "lanes": 8, "vector_size": 16, "input_bytes": 8192, "weight_bytes": 16384, "collector_bytes": 3072,
     "head_size": 64, "sequence": 512, "normalization_shared_by": 2, "normalize": "on read"}

Every field but the name has a default, the paper's 32-wide PE. The softmax units are as wide as there are lanes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from softermax.files import read_text
from softermax.rtl.pe.attention_run import Tiling
from softermax.rtl.pe.config import PEConfig
from softermax.rtl.sizes import check_count
from softermax.silicon.memory import Node
from softermax.silicon.pe.counts import HEAD_SIZE, Workload
from softermax.silicon.pe.measurement import PEFigures
from softermax.silicon.pe.table import (
    ON_READ,
    SCHEMES,
    SEQUENCE,
    SHARED_BY,
    PERow,
    baseline_cost,
    softermax_cost,
)
from softermax.silicon.units import BASELINES

WRITTEN, READ = "when written", "on read"
CHOICES = {
    "normalize": (WRITTEN, READ),
    "keeps": ("scores", "unnormed"),
    "baseline_max": ("second pass", "while written"),
}
"""The dataflow: when rows are normalised; what ours keeps of an open row in the global buffer; how two passes find the max."""
MAX_HEAD, MAX_SEQUENCE, MAX_SHARED = 1024, 65536, 256


@dataclass(frozen=True)
class Architecture:
    """A PE, what it works on, and how the data flows."""

    name: str
    config: PEConfig = PEConfig()
    head_size: int = HEAD_SIZE
    sequence: int = SEQUENCE
    normalization_shared_by: int = SHARED_BY
    """PEs that share a Normalization unit."""
    normalize: str = WRITTEN
    keeps: str = "scores"
    baseline_max: str = "second pass"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name = {self.name!r}: must be a text")
        check_count("head_size", self.head_size, MAX_HEAD)
        check_count("sequence", self.sequence, MAX_SEQUENCE)
        check_count("normalization_shared_by", self.normalization_shared_by, MAX_SHARED)
        for field, permitted in CHOICES.items():
            if getattr(self, field) not in permitted:
                choices = " or ".join(repr(choice) for choice in permitted)
                raise ValueError(f"{field} = {getattr(self, field)!r}: must be {choices}")
        Tiling.of(self.config, self.head_size, self.sequence, self.sequence)

    @classmethod
    def load(cls, path: Path) -> Architecture:
        """A file with fields of the PE and of the work; what is wrong is named by file, field and value."""
        try:
            values = json.loads(read_text(path))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not a PE: JSON is broken at line {error.lineno}") from None
        if not isinstance(values, dict):
            raise ValueError(
                f"{path}: a PE is an object with fields such as lanes, vector_size, weight_bytes"
            )
        sizes = [field.name for field in fields(PEConfig)]
        own = [field.name for field in fields(cls) if field.name != "config"]
        unknown = [name for name in values if name not in (*sizes, *own)]
        if unknown:
            raise ValueError(
                f"{path}: {unknown[0]} = {values[unknown[0]]!r}: no such field; fields are {', '.join((*own, *sizes))}"
            )
        try:
            config = PEConfig(**{name: value for name, value in values.items() if name in sizes})
            rest: dict[str, Any] = {name: value for name, value in values.items() if name in own}
            return cls(**{"name": path.stem, **rest, "config": config})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def workload(self) -> Workload:
        return Workload(self.sequence, self.head_size)

    @property
    def schemes(self) -> list[str]:
        on_read = self.normalize == READ
        found = [scheme for scheme in SCHEMES if scheme.endswith(ON_READ) == on_read]
        # Unnormed words are what the paper's own output is made of; other schemes have none to keep.
        return found if self.keeps == "scores" else [scheme for scheme in found if scheme.startswith("fixed")]

    def rows(
        self, figures: PEFigures, baselines: Sequence[str] = BASELINES, node: Node | None = None
    ) -> list[PERow]:
        """Every scheme against every baseline."""
        on_read, early = self.normalize == READ, self.baseline_max == "while written"
        rows = []
        for name in baselines:
            theirs = baseline_cost(
                figures,
                name,
                self.workload,
                node,
                self.normalization_shared_by,
                on_read,
                max_while_written=early,
            )
            for scheme in self.schemes:
                ours = softermax_cost(
                    figures, scheme, self.workload, node, self.normalization_shared_by, self.keeps
                )
                rows.append(PERow(figures.width, self.sequence, figures.library, scheme, name, ours, theirs))
        return rows
