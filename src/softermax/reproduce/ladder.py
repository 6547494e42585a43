"""The paper's ladder on one row of real attention: what each idea changes, and the trace of the row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax import reference
from softermax.extras import need
from softermax.files import replacing
from softermax.golden import Trace
from softermax.spec import LOG2E, PRESETS, get_spec

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """One query's scores over the tokens of a sentence."""

    source: str
    text: str
    query: str
    tokens: list[str]
    scores: FloatArray


@dataclass(frozen=True)
class Step:
    """A rung of the ladder and its distance from the one that it approximates."""

    name: str
    against: str
    y: FloatArray
    max_error: float

    @property
    def row_sum(self) -> float:
        return float(self.y.sum())


def load_example() -> Example:
    values = json.loads(
        files("softermax.reproduce").joinpath("attention_row.json").read_text(encoding="utf-8")
    )
    return Example(**values | {"scores": np.array(values["scores"])})


def ladder(scores: FloatArray) -> list[Step]:
    """Every rung for a row, from softmax to the fixed-point words."""
    steps: list[Step] = []

    def climb(name: str, y: FloatArray, against: str = "") -> None:
        other = next((s.y for s in steps if s.name == against), y)
        steps.append(Step(name, against, y, float(np.abs(y - other).max())))

    climb("softmax", reference.softmax(scores))
    climb("base two", reference.base_two(scores), "softmax")
    climb("base two, online", reference.base_two_online(scores), "base two")
    climb("base two, online, integer max", reference.softermax(scores), "base two, online")
    climb("Softermax (paper)", get_spec("paper").compute(scores), "base two, online, integer max")
    climb("log2(e) folded", reference.softermax(scores * LOG2E), "softmax")
    climb("Softermax (paper+fold)", get_spec("paper+fold").compute(scores), "softmax")
    climb("Softermax (row-scaled+fold)", get_spec("row-scaled+fold").compute(scores), "softmax")
    return steps


def paper_trace(scores: FloatArray) -> Trace:
    trace = PRESETS["paper"].run(scores, trace=True).trace
    assert trace is not None
    return trace


def trace_rows(trace: Trace) -> list[dict[str, Any]]:
    """One row per slice: what the Unnormed Softmax unit holds, then what the row ends with."""
    spec = PRESETS["paper"]
    return [
        {
            "slice": s,
            "LocalMax": int(trace.local_max[s]),
            "running max": int(trace.running_max[s]),
            "shift of d": int(trace.renorm_shift[s]) if s else None,
            "slice sum": float(trace.slice_powsum[s] * spec.powsum.lsb),
            "PowSum d": float(trace.powsum[s] * spec.powsum.lsb),
            "shift of u": int(trace.numerator_shift[s]),
        }
        for s in range(len(trace.running_max))
    ]


def draw(example: Example, path: Path) -> None:
    """Softmax against Softermax over the tokens, and the trace of the row below them."""
    need("matplotlib", "cli")
    from matplotlib.figure import Figure

    spec, trace = PRESETS["paper"], paper_trace(example.scores)
    columns = len(example.tokens)
    at = np.arange(columns)
    figure = Figure(figsize=(11, 7), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    shown = {"softmax": "#9aa5b1", "base two": "#5b8def", "Softermax (paper)": "#e4572e"}
    by_name = {step.name: step for step in ladder(example.scores)}
    for i, (name, colour) in enumerate(shown.items()):
        top.bar(at + 0.27 * (i - 1), by_name[name].y, 0.27, label=name, color=colour)
    top.set_ylabel(f"weight for '{example.query}'")
    top.set_title(example.text, fontsize=10)
    top.legend()
    width = spec.slice_width or columns
    bottom.plot(at, example.scores, "o", color="#333333", ms=4, label="score")
    for s, m in enumerate(trace.running_max):
        first, last = s * width - 0.45, min((s + 1) * width, columns) - 0.55
        bottom.plot(
            [first, last], [m, m], color="#e4572e", lw=2, label="running integer max" if s == 0 else None
        )
        d = trace.powsum[s] * spec.powsum.lsb
        bottom.annotate(
            f"slice {s}: PowSum {d:g}", (first, m), xytext=(0, 5), textcoords="offset points", fontsize=9
        )
    bottom.set_ylabel("score")
    bottom.set_ylim(top=float(trace.running_max.max()) + 2.5)
    bottom.set_xticks(at, example.tokens, rotation=60, ha="right")
    bottom.legend(loc="lower right")
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as partial:
        figure.savefig(partial, format=path.suffix.lstrip("."), dpi=130)
