"""Energy of Q·K^T and softmax over the sequence length, and the plots of the PE's figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softermax.extras import need
from softermax.files import replacing
from softermax.silicon.pe.table import PECost, PERow

SEQUENCES = (64, 128, 256, 384, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class EnergyLine:
    """One design's energy over the sequence lengths."""

    library: str
    width: int
    design: str
    sequences: tuple[int, ...]
    energy_pj: tuple[float, ...]

    @property
    def slope_pj(self) -> float:
        """Picojoules per further score: the slope of the line of energy over the number of scores."""
        scores = np.array(self.sequences, dtype=np.float64) ** 2
        # Relative errors count, so that the longest sequence does not stand for all of them.
        weights = 1 / np.array(self.energy_pj)
        return float(np.polyfit(scores, np.array(self.energy_pj), 1, w=weights)[0])

    @property
    def power(self) -> float:
        """The power of the number of scores that the energy grows with, by least squares of the logarithms:
        1 is in proportion."""
        scores = 2 * np.log(np.array(self.sequences, dtype=np.float64))
        return float(np.polyfit(scores, np.log(np.array(self.energy_pj)), 1)[0])

    @property
    def pj_per_score(self) -> tuple[float, ...]:
        """At each sequence length."""
        return tuple(pj / n**2 for n, pj in zip(self.sequences, self.energy_pj, strict=True))


def energy_lines(rows: Sequence[PERow]) -> list[EnergyLine]:
    """The designs of a sweep, ours and the baselines."""
    points: dict[tuple[str, int, str], dict[int, PECost]] = {}
    for row in rows:
        for cost in (row.ours, row.theirs):
            points.setdefault((row.library, row.width, cost.design), {})[row.sequence] = cost
    made = []
    for (library, width, design), costs in points.items():
        order = sorted(costs)
        energy = tuple(costs[n].energy_pj for n in order)
        made.append(EnergyLine(library, width, design, tuple(order), energy))
    return made


def draw_sweep(rows: Sequence[PERow], folder: str | os.PathLike[str]) -> list[Path]:
    """The paper's figure, one for each library: energy over sequence length, both widths."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    written = []
    for library in dict.fromkeys(row.library for row in rows):
        chosen = [line for line in energy_lines(rows) if line.library == library]
        widths = sorted({line.width for line in chosen})
        figure: Any = Figure(figsize=(6 * len(widths), 5), layout="constrained")
        axes: Any = figure.subplots(1, len(widths), squeeze=False)
        for axis, width in zip(axes[0], widths, strict=True):
            for line in (line for line in chosen if line.width == width):
                label = f"{line.design} ({line.slope_pj:.3g} pJ per score)"
                axis.loglog(
                    line.sequences,
                    [e * 1e-6 for e in line.energy_pj],
                    marker="o",
                    label=label,
                    linestyle="-" if line.design.startswith("softermax") else "--",
                )
            axis.set(xlabel="sequence length", ylabel="energy of a head, µJ", title=f"{width} wide")
            axis.legend(fontsize=8)
        figure.suptitle(f"{library}: Q·K^T and softmax")
        written.append(_save(figure, Path(folder) / f"pe-sweep-{library}.png"))
    return written


def draw_table(rows: Sequence[PERow], folder: str | os.PathLike[str]) -> list[Path]:
    """Area and energy by component, a bar for each design; a figure for each library, width and length."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    written = []
    for library, width, sequence in dict.fromkeys((r.library, r.width, r.sequence) for r in rows):
        chosen = [r for r in rows if (r.library, r.width, r.sequence) == (library, width, sequence)]
        costs = {cost.design: cost for row in chosen for cost in (row.ours, row.theirs)}
        names = list(dict.fromkeys(name for cost in costs.values() for name in cost.components))
        figure: Any = Figure(figsize=(12, 5), layout="constrained")
        axes: Any = figure.subplots(1, 2)
        for axis, field, label, scale in (
            (axes[0], "area_um2", "area, mm²", 1e-6),
            (axes[1], "energy_pj", "energy of a head, µJ", 1e-6),
        ):
            bottom = [0.0] * len(costs)
            for name in names:
                heights = [
                    getattr(cost.components[name], field) * scale if name in cost.components else 0.0
                    for cost in costs.values()
                ]
                axis.bar(list(costs), heights, bottom=bottom, label=name)
                bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
            axis.set_ylabel(label)
            axis.tick_params(axis="x", rotation=20)
        axes[1].legend(fontsize=7)
        figure.suptitle(f"{library}, {width} wide, sequence {sequence}")
        written.append(_save(figure, Path(folder) / f"pe-{library}-{width}-{sequence}.png"))
    return written


def _save(figure: Any, path: Path) -> Path:
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png")
    return path
