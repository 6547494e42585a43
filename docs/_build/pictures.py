"""The pictures of the site, drawn from the golden model and from results: `python docs/_build/pictures.py [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from figures import RESULTS
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from searches import SEARCHES

from softermax import PRESETS, get_spec, golden, reference
from softermax.files import replacing
from softermax.reproduce.ladder import load_example
from softermax.results import Envelope
from softermax.tables import PiecewiseTable, pow2_table, reciprocal_table

GREY, BLUE, RED, GREEN = "#9aa5b1", "#3b6fd4", "#d1495b", "#2a9d8f"
PICTURES = Path(__file__).parents[1] / "pictures"
WORDS = {
    "input": "score x",
    "max": "IntMax m",
    "unnormed": "unnormed u",
    "powsum": "PowSum d",
    "reciprocal": "reciprocal r",
    "output": "probability y",
}


def words() -> Figure:
    """The six words of the paper's Table I, bit by bit, aligned at the binary point."""
    spec = PRESETS["paper"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes: Any = figure.subplots()
    for line, (field, title) in enumerate(WORDS.items()):
        q = getattr(spec, field)
        for bit in range(-q.fraction, q.integer):
            sign = q.signed and bit == q.integer - 1
            # IntMax is an integer: its fraction bits are always zero.
            still = field == "max" and bit < 0
            colour = "white" if still else RED if sign else BLUE if bit >= 0 else GREEN
            axes.add_patch(Rectangle((-bit - 1, -line), 1, 0.8, facecolor=colour, alpha=0.75, edgecolor="k"))
            axes.text(
                -bit - 0.5,
                0.4 - line,
                "0" if still else "±" if sign else f"{bit}",
                ha="center",
                va="center",
                fontsize=7,
            )
        axes.text(-10.4, 0.4 - line, f"{title}  {q}", ha="right", va="center", fontsize=9)
    axes.axvline(0, color="k", lw=1.5)
    axes.set(xlim=(-17, 15.4), ylim=(-5.2, 1.6))
    axes.text(0, 1.2, "binary point", ha="center", fontsize=8)
    axes.text(3, 1.2, "number in a box: its power of two", fontsize=8, color="#444444")
    axes.axis("off")
    return figure


def slices() -> Figure:
    """One row of real attention: scores and running integer max, unnormed words, running sum."""
    spec, example = PRESETS["paper"], load_example()
    trace = spec.run(example.scores, trace=True).trace
    assert trace is not None
    columns, width = len(example.scores), spec.slice_width or len(example.scores)
    at = np.arange(columns)
    figure = Figure(figsize=(9, 7), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    top.plot(at, example.scores, "o", color="k", ms=4, label="score")
    as_words = golden.quantize(example.scores, spec) * spec.input.lsb
    top.plot(at, as_words, "s", mfc="none", color=BLUE, ms=8, label=f"as a {spec.input} word")
    middle.bar(
        at, trace.unnormed.reshape(-1)[:columns] * spec.unnormed.lsb, color=GREEN, label="u = 2^(x − m)"
    )
    for s, m in enumerate(trace.running_max):
        ends = [s * width - 0.45, min((s + 1) * width, columns) - 0.55]
        top.plot(ends, [m, m], color=RED, lw=2, label="running integer max m" if s == 0 else None)
        d, own = trace.powsum[s] * spec.powsum.lsb, trace.slice_powsum[s] * spec.powsum.lsb
        bottom.bar(np.mean(ends), d, ends[1] - ends[0], color=BLUE, alpha=0.35)
        shift = f"old sum >> {trace.renorm_shift[s]}, " if s else ""
        bottom.text(np.mean(ends), d / 2, f"{shift}+ {own:g}\n= {d:g}", ha="center", va="center", fontsize=8)
    for axes in (top, middle, bottom):
        for s in range(1, len(trace.running_max)):
            axes.axvline(s * width - 0.5, color=GREY, lw=0.8, ls="--")
        axes.spines[["top", "right"]].set_visible(False)
    top.set(ylabel="score", title="a slice at a time: the max so far, powers below it, the sum so far")
    middle.set(ylabel="unnormed")
    bottom.set(ylabel="PowSum d", xlabel="element of the row")
    top.legend(fontsize=8)
    middle.legend(fontsize=8)
    return figure


def tables() -> Figure:
    """2^x and 1/x as the hardware has them, and how far they are off."""
    spec = PRESETS["paper"]
    finer = spec.replace(input="Q(6,8)")
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    axes: Any = figure.subplots(2, 3, sharex=True, height_ratios=[2, 1])
    drawn: list[tuple[str, PiecewiseTable]] = [
        ("2^x, Q(6,2) scores: four points", pow2_table(spec)),
        ("2^x, Q(6,8) scores: four lines", pow2_table(finer)),
        ("1/(1+x): four lines", reciprocal_table(spec)),
    ]
    for column, (title, table) in enumerate(drawn):
        z = np.unique(np.linspace(0, (1 << table.argument_bits) - 1, 512).astype(np.int64))
        x = z * 2.0**-table.argument_bits
        exact = np.exp2(x) if table.function == "pow2" else 1 / (1 + x)
        found = table(z) * 2.0**-table.fraction
        fine = np.linspace(0, 1, 200)
        upper, lower = axes[0][column], axes[1][column]
        upper.plot(
            fine,
            np.exp2(fine) if table.function == "pow2" else 1 / (1 + fine),
            color=GREY,
            lw=3,
            label="function",
        )
        style = "o" if len(z) < 10 else "-"
        upper.plot(x, found, style, color=RED, lw=1, ms=4, label=f"table, {table.fraction} fraction bits")
        lower.plot(x, (found - exact) * 2**table.fraction, style, color=RED, lw=0.8, ms=4)
        lower.axhline(0, color="k", lw=0.6)
        for edge in range(1, table.segments):
            for one in (upper, lower):
                one.axvline(edge / table.segments, color=GREY, lw=0.6, ls="--")
        upper.set_title(title, fontsize=9)
        upper.legend(fontsize=7)
        lower.set(xlabel="x", ylabel="error, units" if column == 0 else "")
    return figure


def mass() -> Figure:
    """What the output word keeps of a row's mass as rows grow, and what the two cures keep."""
    rng = np.random.default_rng(0)
    lengths = [16, 32, 64, 128, 256, 384, 512, 1024, 2048]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    wide = get_spec("whole-row+fold").replace(output="Q(1,15)")
    kinds = {
        "Q(1,7), fixed (paper)": get_spec("paper+fold"),
        "Q(0,8), row-scaled (A7)": get_spec("row-scaled+fold"),
        "Q(1,15), fixed": wide,
    }
    rows = {n: rng.normal(0, 1, (200, n)) for n in lengths}
    for (title, spec), colour in zip(kinds.items(), (RED, GREEN, BLUE), strict=True):
        left.plot(
            lengths,
            [spec.compute(rows[n]).sum(axis=1).mean() for n in lengths],
            "o-",
            color=colour,
            ms=4,
            label=title,
        )
    left.set(
        xscale="log",
        xlabel="elements per row",
        ylabel="sum of the outputs, mean",
        title="rows of standard Gaussian scores",
    )
    left.title.set_fontsize(9)
    left.set_xticks(lengths, [str(n) for n in lengths], rotation=45, fontsize=7)
    left.minorticks_off()
    left.legend(fontsize=7)
    example = load_example()
    exact = reference.softmax(example.scores)
    order = np.argsort(-exact)
    right.plot(exact[order], "o-", color=GREY, ms=4, label="softmax")
    for (title, spec), colour in list(zip(kinds.items(), (RED, GREEN), strict=False)):
        right.plot(spec.compute(example.scores)[order], ".-", color=colour, ms=4, label=title)
    right.set(yscale="symlog", xlabel="elements, largest first", title="a row of real attention")
    right.set_yscale("symlog", linthresh=1 / 512)
    right.title.set_fontsize(9)
    right.legend(fontsize=7)
    return figure


def fronts() -> Figure:
    """Every published search: what it found, the presets and the rivals."""
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).flat, SEARCHES, strict=True):
        found = Envelope.load(RESULTS / f"search-{name}.json")
        trials = [row for row in found.rows if row["trial"] is not None]
        presets = [row for row in found.rows if row["trial"] is None]
        for rows, mark, colour, title in (
            ([row for row in trials if not row["front"]], ".", GREY, "other specs"),
            ([row for row in trials if row["front"]], "o", GREEN, "on the front"),
            (presets, "D", RED, "presets"),
            (found.notes.get("rivals", []), "s", BLUE, "rivals, measured"),
        ):
            x, y = [row["area"] for row in rows], [row["l1"] for row in rows]
            axes.plot(x, y, mark, color=colour, ms=4, label=title)
            if rows and mark in "Ds":
                for row in rows:
                    axes.annotate(
                        row["name"],
                        (row["area"], row["l1"]),
                        (4, 2),
                        textcoords="offset points",
                        fontsize=5,
                        color=colour,
                    )
        axes.set(xscale="log", yscale="log", title=name.replace("-", ", "))
        axes.set(xlabel="area of the units, µm²", ylabel="L1 to softmax")
        axes.title.set_fontsize(9)
    figure.axes[0].legend(fontsize=7)
    return figure


DRAWN = {"words": words, "slices": slices, "tables": tables, "mass": mass, "fronts": fronts}


def main(folder: Path = PICTURES) -> None:
    # The same bytes at every run: no date, and names of parts from a fixed salt.
    matplotlib.rcParams["svg.hashsalt"] = "softermax"
    matplotlib.rcParams["svg.fonttype"] = "none"
    for name, draw in DRAWN.items():
        with replacing(folder / f"{name}.svg") as partial:
            draw().savefig(partial, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*(Path(given) for given in sys.argv[1:]))
