"""Area and energy: by sub-unit, stacked, ours beside the baselines; and against error, ours among rivals."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softermax.extras import need
from softermax.files import replacing
from softermax.rivals.page import Row
from softermax.rivals.pareto import ERROR, front, wholes
from softermax.silicon.flow import Result
from softermax.silicon.table import UnitTable


def draw_units(table: UnitTable, folder: str | os.PathLike[str]) -> list[Path]:
    """A figure for each library and width; the files written."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    written: list[Path] = []
    for library, width in dict.fromkeys((r.library, r.width) for r in table.results):
        chosen = [r for r in table.results if (r.library, r.width) == (library, width)]
        units = list(dict.fromkeys(r.unit for r in chosen))
        figure: Any = Figure(figsize=(11, 4 * len(units)), layout="constrained")
        axes: Any = figure.subplots(len(units), 2, squeeze=False)
        for row, unit in enumerate(units):
            of_unit = [r for r in chosen if r.unit == unit]
            _stack(axes[row][0], of_unit, lambda r: r.area_by_unit, "area, µm²")
            _stack(
                axes[row][1],
                of_unit,
                lambda r: r.energy_by_unit(table.stimulus),
                "energy, pJ per element",
            )
            for axis in axes[row]:
                axis.set_title(f"{unit} unit")
        figure.suptitle(
            f"{library}, {width} wide, {chosen[0].clock_ns:g} ns, {table.stimulus} scores, with glitches"
        )
        path = Path(folder) / f"silicon-{library}-{width}.png"
        with replacing(path) as partial:
            figure.savefig(partial, dpi=130, format="png")
        written.append(path)
    return written


def _stack(axis: Any, results: list[Result], parts: Callable[[Result], dict[str, float]], label: str) -> None:
    """One bar per design; sub-units that are less than a hundredth everywhere are one part, "rest"."""
    from matplotlib import colormaps

    palette: Any = colormaps["tab20"]
    axis.set_prop_cycle(color=palette.colors)
    totals = [sum(parts(r).values()) for r in results]
    names = dict.fromkeys(name for r in results for name in parts(r))
    large = [
        n for n in names if any(parts(r).get(n, 0.0) > t / 100 for r, t in zip(results, totals, strict=True))
    ]
    bottom = [0.0] * len(results)
    ticks = [(r.preset or r.design).replace("+", "\n+") for r in results]
    for name in [*large, "rest"]:
        heights = [
            parts(r).get(name, 0.0)
            if name != "rest"
            else sum(v for n, v in parts(r).items() if n not in large)
            for r in results
        ]
        axis.bar(ticks, heights, bottom=bottom, label=name)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axis.set_ylabel(label)
    axis.legend(fontsize=7)


def draw_rivals(rows: Sequence[Row], folder: str | os.PathLike[str]) -> list[Path]:
    """Whole softmaxes of ours and of others, area and energy against error; a figure for each library and width."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    written: list[Path] = []
    for library, width in dict.fromkeys((r["library"], r["width"]) for r in rows if "area_um2" in r):
        chosen = wholes(rows, width, library)
        if not chosen:
            continue
        figure: Any = Figure(figsize=(11, 5), layout="constrained")
        axes: Any = figure.subplots(1, 2, sharey=True)
        _scatter(axes[0], chosen, "area_um2", "area with what waits, µm²")
        _scatter(axes[1], chosen, "pj_per_element", "energy, pJ per element")
        axes[0].set_ylabel("L1 to softmax, recorded attention")
        figure.suptitle(f"Whole softmaxes, {library}, {width} lanes: nobody is below and left of the line")
        path = Path(folder) / f"rivals-{library}-{width}.png"
        with replacing(path) as partial:
            figure.savefig(partial, dpi=130, format="png")
        written.append(path)
    return written


def _scatter(axis: Any, rows: Sequence[Row], cost: str, label: str) -> None:
    best = front(rows, cost)
    line = [row for name in best for row in rows if row["name"] == name]
    axis.step([r[cost] for r in line], [r[ERROR] for r in line], where="post", color="#9aa5b1", lw=1)
    for index, row in enumerate(sorted(rows, key=lambda row: float(row[cost]))):
        ours = row["kind"] == "ours"
        axis.scatter(row[cost], row[ERROR], color="#3b6fd4" if ours else "#d1495b", zorder=3)
        weight = "bold" if row["name"] in best else "normal"
        # Right above and left below in turn: neighbours are often alike.
        at: dict[str, Any] = (
            {"xytext": (-4, -11), "ha": "right"} if index % 2 else {"xytext": (4, 4), "ha": "left"}
        )
        at |= {"textcoords": "offset points", "fontsize": 7, "fontweight": weight}
        axis.annotate(row["name"], (row[cost], row[ERROR]), **at)
    axis.set(xscale="log", xlabel=label)
    axis.margins(x=0.2)
    axis.set_ylim(bottom=0)
