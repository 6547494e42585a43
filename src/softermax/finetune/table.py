"""The accuracy table: means, spreads, intervals, verdicts where they are due, and how training went."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.finetune.cells import Cell
from softermax.finetune.data import load_rows
from softermax.finetune.features import references
from softermax.finetune.run import ARMS
from softermax.finetune.swap import SWAPS
from softermax.finetune.tasks import TASKS, Predictions, Task

RESAMPLES = 1000
_FIFTHS = 5
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
    first_epochs: float | None
    """Of the fp32 stage before, where there is one."""


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
                members[0].run.first.epochs if members[0].run.first else None,
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
                    c.run.seed: c
                    for c in cells
                    if (c.run.model, c.run.task, c.run.arm, c.run.preset)
                    == (model, task.name, "softermax", preset)
                }
                baseline = [
                    c for c in cells if (c.run.model, c.run.task, c.run.arm) == (model, task.name, "int8")
                ]
                for c in baseline:
                    if c.run.seed in ours and ours[c.run.seed].start != c.start:
                        raise ValueError(
                            f"{ours[c.run.seed].run.cell} and {c.run.cell}: from different first stages, so they "
                            "cannot be compared; delete one and run the command again"
                        )
                pairs = [
                    (ours[c.run.seed].predictions, c.predictions) for c in baseline if c.run.seed in ours
                ]
                if not pairs:
                    continue
                rows = load_rows(task, "dev", data_dir, baseline[0].run.dev_rows)
                mean, drawn = bootstrap(task, pairs, references(task, rows), resamples)
                seeds = sorted(c.run.seed for c in baseline if c.run.seed in ours)
                result.append(difference_of(task.name, preset, model, seeds, mean, drawn))
                samples.append(drawn)
                means.append(mean)
            if len(means) > 1:
                together = np.mean(samples, axis=0)
                result.append(difference_of("average", preset, model, [], float(np.mean(means)), together))
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


def difference_of(
    task: str, preset: str, model: str, seeds: list[int], mean: float, drawn: NDArray[np.float64]
) -> Difference:
    """A mean difference with its interval and its verdict, from what resampled data gave."""
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
    presets = swapped_presets(cells)
    for model in sorted({cell.run.model for cell in cells}):
        for task in TASKS.values():
            members = [
                c for c in cells if (c.run.model, c.run.task) == (model, task.name) and c.run.arm == "int8"
            ]
            if not members:
                continue
            base = float(np.mean([c.swapped["int8"][task.metric] for c in members]))
            row: dict[str, Any] = {"task": task.name, "model": model, "seeds": len(members), "int8": base}
            for preset in presets:
                figures = [c.swapped[preset][task.metric] for c in members if preset in c.swapped]
                row[preset] = float(np.mean(figures)) - base if len(figures) == len(members) else None
            rows.append(row)
        ours = [row for row in rows if row["model"] == model]
        if len(ours) > 1:
            row = {"task": "average", "model": model, "seeds": None}
            for key in ("int8", *presets):
                row[key] = (
                    None if any(r[key] is None for r in ours) else float(np.mean([r[key] for r in ours]))
                )
            rows.append(row)
    return rows


def swapped_presets(cells: Sequence[Cell]) -> list[str]:
    """What was put into fine-tuned int8 models: ours in their order, then others in the order in which cells have them."""
    there = dict.fromkeys(name for cell in cells for name in cell.swapped if name != "int8")
    return [*(name for name in SWAPS if name in there), *(name for name in there if name not in SWAPS)]


def curves(cells: Sequence[Cell], first: Sequence[Cell]) -> list[dict[str, Any]]:
    """How training went, by step: losses of first stages, and the held-out scores of all."""
    rows = []
    for stage, members in (("first", first), ("second", cells)):
        for cell in members:
            run = cell.run
            preset = run.preset if run.arm == "softermax" else None
            who = {"task": run.task, "model": run.model, "seed": run.seed, "stage": stage}
            who |= {"arm": run.arm, "preset": preset}
            rows += [who | point for point in cell.curve if stage == "first" or "held_out" in point]
    return rows


@dataclass(frozen=True)
class FirstStage:
    """A first stage in figures that show whether it had flattened."""

    task: str
    model: str
    seed: int
    epochs: float
    learning_rate: float
    figure: float
    """On dev, in fp32."""
    losses: list[float]
    """Mean training loss of each fifth of the steps."""
    held_out: list[float]
    """The task's figure on the held-out rows, at the last score in each fifth."""


def first_stages(first: Sequence[Cell]) -> list[FirstStage]:
    order = list(TASKS)
    rows = []
    for cell in sorted(first, key=lambda c: (c.run.model, order.index(c.run.task), c.run.seed)):
        last = max((point["step"] for point in cell.curve), default=1)
        losses: list[list[float]] = [[] for _ in range(_FIFTHS)]
        scores: list[list[float]] = [[] for _ in range(_FIFTHS)]
        for point in cell.curve:
            if point["step"] == 0:
                continue
            fifth = min(int(_FIFTHS * (point["step"] - 1) / last), _FIFTHS - 1)
            if "loss" in point:
                losses[fifth].append(point["loss"])
            if "held_out" in point:
                scores[fifth].append(point["held_out"])
        run = cell.run
        rows.append(
            FirstStage(
                run.task,
                run.model,
                run.seed,
                run.epochs,
                run.learning_rate,
                cell.scores[TASKS[run.task].metric],
                [float(np.mean(part)) for part in losses if part],
                [part[-1] for part in scores if part],
            )
        )
    return rows
