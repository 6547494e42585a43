"""The accuracy table beside the paper's: means, spreads, intervals, and verdicts where they are due."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.files import replacing, write_text
from softermax.finetune.cells import SWAP_ROWS, SWAPS, Cell
from softermax.finetune.data import load_rows
from softermax.finetune.features import references
from softermax.finetune.tasks import TASKS, Predictions, Task
from softermax.finetune.train import ARMS

RESAMPLES = 1000
SAME = 0.5
"""Points within which two arms count as the same: the paper's worst drop is under 0.5 %."""


@dataclass(frozen=True)
class Entry:
    """One arm on one task over its seeds."""

    task: str
    arm: str
    preset: str | None
    model: str
    metric: str
    seeds: list[int]
    mean: float
    spread: float
    """Standard deviation over seeds; 0 for one seed."""
    train_rows: int
    dev_rows: int
    epochs: float


@dataclass(frozen=True)
class Difference:
    """A preset less int8, on the seeds that both have."""

    task: str
    preset: str
    model: str
    seeds: list[int]
    mean: float
    low: float
    high: float
    """95 % interval: paired bootstrap over dev rows and seeds."""
    verdict: str
    """Empty where the interval allows none."""


def entries(cells: Sequence[Cell]) -> list[Entry]:
    groups: dict[tuple[str, str, str | None, str], list[Cell]] = {}
    for cell in cells:
        preset = cell.run.preset if cell.run.arm == "softermax" else None
        groups.setdefault((cell.run.task, cell.run.arm, preset, cell.run.model), []).append(cell)
    result = []
    for (task, arm, preset, model), members in groups.items():
        metric = TASKS[task].metric
        figures = [cell.scores[metric] for cell in members]
        result.append(
            Entry(
                task,
                arm,
                preset,
                model,
                metric,
                sorted(cell.run.seed for cell in members),
                float(np.mean(figures)),
                float(np.std(figures, ddof=1)) if len(figures) > 1 else 0.0,
                members[0].train_rows,
                members[0].dev_rows,
                members[0].run.epochs,
            )
        )
    order = list(TASKS)
    result.sort(key=lambda e: (e.model, order.index(e.task), ARMS.index(e.arm), e.preset or ""))
    return result


def differences(
    cells: Sequence[Cell], data_dir: str | os.PathLike[str] | None, resamples: int = RESAMPLES
) -> list[Difference]:
    """Every preset against int8, task by task, and over all tasks (task ``average``)."""
    result: list[Difference] = []
    models = sorted({cell.run.model for cell in cells})
    presets = sorted({cell.run.preset for cell in cells if cell.run.arm == "softermax"})
    for model in models:
        for preset in presets:
            samples: list[NDArray[np.float64]] = []
            means: list[float] = []
            for task in TASKS.values():
                ours = {
                    c.run.seed: c.predictions
                    for c in cells
                    if (c.run.model, c.run.task, c.run.arm, c.run.preset)
                    == (model, task.name, "softermax", preset)
                }
                baseline = [
                    c for c in cells if (c.run.model, c.run.task, c.run.arm) == (model, task.name, "int8")
                ]
                pairs = [(ours[c.run.seed], c.predictions) for c in baseline if c.run.seed in ours]
                if not pairs:
                    continue
                rows = load_rows(task, "dev", data_dir, baseline[0].run.dev_rows)
                mean, drawn = bootstrap(task, pairs, references(task, rows), resamples)
                seeds = sorted(c.run.seed for c in baseline if c.run.seed in ours)
                result.append(_difference(task.name, preset, model, seeds, mean, drawn))
                samples.append(drawn)
                means.append(mean)
            if len(means) > 1:
                together = np.mean(samples, axis=0)
                result.append(_difference("average", preset, model, [], float(np.mean(means)), together))
    return result


def bootstrap(
    task: Task,
    pairs: Sequence[tuple[Predictions, Predictions]],
    labels: Predictions,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, NDArray[np.float64]]:
    """Mean difference of paired predictions (ours, baseline), and what it is in resampled data.

    Each resample draws dev rows and seeds with replacement, the same for both sides of a pair.
    """
    for ours, baseline in pairs:
        if not len(ours) == len(baseline) == len(labels):
            raise ValueError(
                f"{task.name}: {len(ours)} and {len(baseline)} predictions for {len(labels)} dev rows: "
                "the data is not what the table was made on"
            )
    rng = np.random.default_rng(seed)

    def difference(rows: NDArray[np.int64] | slice, which: Sequence[int]) -> float:
        return float(
            np.mean(
                [
                    task.figure(pairs[i][0][rows], labels[rows])
                    - task.figure(pairs[i][1][rows], labels[rows])
                    for i in which
                ]
            )
        )

    drawn = [
        difference(
            rng.integers(0, len(labels), len(labels)), rng.integers(0, len(pairs), len(pairs)).tolist()
        )
        for _ in range(resamples)
    ]
    return difference(slice(None), range(len(pairs))), np.array(drawn)


def _difference(
    task: str, preset: str, model: str, seeds: list[int], mean: float, drawn: NDArray[np.float64]
) -> Difference:
    low, high = (float(v) for v in np.percentile(drawn, [2.5, 97.5]))
    if low > 0:
        verdict = "better"
    elif high < 0:
        verdict = "worse"
    elif low >= -SAME and high <= SAME:
        verdict = f"same within {SAME}"
    else:
        verdict = ""
    return Difference(task, preset, model, seeds, mean, low, high, verdict)


def swaps(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Softermax in fine-tuned int8 models without retraining: loss of each preset, task by task."""
    rows: list[dict[str, Any]] = []
    for model in sorted({cell.run.model for cell in cells}):
        for task in TASKS.values():
            members = [
                c for c in cells if (c.run.model, c.run.task) == (model, task.name) and c.run.arm == "int8"
            ]
            if not members:
                continue
            base = float(np.mean([c.swapped["int8"][task.metric] for c in members]))
            row: dict[str, Any] = {"task": task.name, "model": model, "seeds": len(members), "int8": base}
            for preset in SWAPS:
                row[preset] = float(np.mean([c.swapped[preset][task.metric] for c in members])) - base
            rows.append(row)
        ours = [row for row in rows if row["model"] == model]
        if len(ours) > 1:
            row = {"task": "average", "model": model, "seeds": None}
            row |= {key: float(np.mean([r[key] for r in ours])) for key in ("int8", *SWAPS)}
            rows.append(row)
    return rows


def write(
    folder: str | os.PathLike[str],
    cells: Sequence[Cell],
    found: Sequence[Difference],
    missing: int,
    command: str,
) -> None:
    """``accuracy.json`` (the entries), ``accuracy-differences.json``, ``accuracy-swaps.json``,
    ``accuracy.md`` and, with matplotlib, ``accuracy.svg``."""
    target = Path(folder)
    for name, rows in (
        ("accuracy", [dataclasses.asdict(e) for e in entries(cells)]),
        ("accuracy-differences", [dataclasses.asdict(d) for d in found]),
        ("accuracy-swaps", swaps(cells)),
    ):
        write_text(target / f"{name}.json", json.dumps(rows, indent=1) + "\n")
    write_text(target / "accuracy.md", markdown(cells, found, missing, command))
    # The table is whole without its picture; matplotlib comes with the extra cli.
    with contextlib.suppress(ImportError):
        plot(target / "accuracy.svg", found)


def markdown(cells: Sequence[Cell], found: Sequence[Difference], missing: int, command: str) -> str:
    table = entries(cells)
    versions = cells[-1].versions if cells else {}
    lines = [
        "# Accuracy: fp32, int8 and Softermax after fine-tuning",
        "",
        "Mean ± standard deviation over seeds, in per cent; in brackets the number of seeds. The difference is",
        "Softermax less int8 on equal seeds, with a 95 % interval (paired bootstrap over dev rows and seeds); a",
        "verdict stands only where the interval allows one. With one seed it is about that training: how far",
        "another seed would move it is not in the interval. The paper's rows are its BERT-Base: int8 baseline and",
        "Softermax. Its model is another, larger one trained on all data: compare differences, not levels.",
        "",
        f"Command: `{command}`. {len(cells)} cells done, {missing} to go; the command continues.",
        f"Dates {min((c.date for c in cells), default='')} to {max((c.date for c in cells), default='')}; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f". Training and evaluation took {sum(c.seconds for c in cells) / 3600:.1f} h in all, "
        + "cells that ran side by side counted apart.",
        "",
    ]
    for model in sorted({e.model for e in table}):
        lines += [f"## {model}", ""]
        presets = sorted({e.preset for e in table if e.preset and e.model == model})
        head = ["task", "metric", "train rows", "epochs", "dev rows", "fp32", "int8"]
        for preset in presets:
            head += [f"`{preset}`", "difference [95 %]", "verdict"]
        head += ["paper int8", "paper Softermax", "paper difference"]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for task in TASKS.values():
            mine = [e for e in table if e.model == model and e.task == task.name]
            if not mine:
                continue
            first = mine[0]
            row = [task.title, task.metric, str(first.train_rows), f"{first.epochs:g}", str(first.dev_rows)]
            row += [_shown(mine, arm, None) for arm in ("fp32", "int8")]
            for preset in presets:
                row += [_shown(mine, "softermax", preset), *_compared(found, task.name, preset, model)]
            row += (
                [f"{task.paper[0]:.2f}", f"{task.paper[1]:.2f}", f"{task.paper[1] - task.paper[0]:+.2f}"]
                if task.paper
                else ["", "", ""]
            )
            lines.append("| " + " | ".join(row) + " |")
        overall = ["average", *[""] * 6]
        for preset in presets:
            overall += ["", *_compared(found, "average", preset, model)]
        if any(overall[1:]):
            lines.append("| " + " | ".join([*overall, "", "", ""]) + " |")
        lines.append("")
        swapped = [row for row in swaps(cells) if row["model"] == model]
        if swapped:
            lines += [
                "### Without retraining",
                "",
                "Softermax put into the fine-tuned int8 models: difference to int8, mean over seeds, "
                f"on the first {SWAP_ROWS} dev rows where there are more.",
                "",
                "| task | int8 | " + " | ".join(f"`{preset}`" for preset in SWAPS) + " |",
                "|" + "---|" * (2 + len(SWAPS)),
            ]
            lines += [
                f"| {TASKS[r['task']].title if r['task'] in TASKS else r['task']} | {r['int8']:.2f} | "
                + " | ".join(f"{r[preset]:+.2f}" for preset in SWAPS)
                + " |"
                for r in swapped
            ]
            lines.append("")
    return "\n".join(lines)


def _shown(entries_of_task: Sequence[Entry], arm: str, preset: str | None) -> str:
    for e in entries_of_task:
        if (e.arm, e.preset) == (arm, preset):
            return (
                f"{e.mean:.2f} ± {e.spread:.2f} ({len(e.seeds)})" if len(e.seeds) > 1 else f"{e.mean:.2f} (1)"
            )
    return ""


def _compared(found: Sequence[Difference], task: str, preset: str, model: str) -> list[str]:
    for d in found:
        if (d.task, d.preset, d.model) == (task, preset, model):
            return [f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]", d.verdict]
    return ["", ""]


def plot(path: Path, found: Sequence[Difference]) -> None:
    """Differences to int8 with their intervals, task by task, beside the paper's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    series = sorted({(d.model, d.preset) for d in found})
    names = [*(t for t in TASKS if any(d.task == t for d in found)), "average"]
    for offset, (model, preset) in enumerate(series):
        mine = [d for d in found if (d.model, d.preset) == (model, preset)]
        x = [names.index(d.task) + 0.15 * (offset - len(series) / 2) for d in mine]
        y = [d.mean for d in mine]
        bars = [[d.mean - d.low for d in mine], [d.high - d.mean for d in mine]]
        axes.errorbar(x, y, yerr=bars, fmt="o", capsize=3, label=f"{model}, {preset}")
    paper = {n: t.paper for n in names if (t := TASKS.get(n)) is not None and t.paper}
    axes.plot(
        [names.index(n) + 0.25 for n in paper],
        [p[1] - p[0] for p in paper.values()],
        "k_",
        label="paper, BERT-Base",
    )
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(names)), [TASKS[n].title if n in TASKS else n for n in names], rotation=30)
    axes.set_ylabel("Softermax less int8, points")
    axes.legend()
    with replacing(path) as partial:
        figure.savefig(partial, format="svg")
