"""How each task is trained in the accuracy table: rates, epochs, rows and seeds, as data; and the runs that follow.

``two-stage`` is the usual recipe of quantisation-aware training (Wu et al. 2020, the paper's reference): one fp32 stage
until the loss is flat, then for every arm the same short stage from that checkpoint. ``single`` trains every arm from
the pretrained model, on a part of the rows: it says who learns faster, not what is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from softermax.finetune.run import ARMS, Arm, Products, Run, Stage

Recipe = Literal["two-stage", "single"]
RECIPES: tuple[Recipe, ...] = get_args(Recipe)
PRESETS: dict[Recipe, tuple[str, ...]] = {
    "two-stage": ("paper", "paper+absorbed", "paper+fold", "lean+fold"),
    "single": ("paper",),
}
"""What the softermax arm is run with unless other presets are asked for."""
HELD_OUT = 250
"""Rows of train that the two-stage recipe scores on the way and does not train on."""


@dataclass(frozen=True)
class Share:
    """How much of a task the single-stage table takes, so that all of it fits into some hours on two cores."""

    seeds: int
    train_rows: int | None = None
    dev_rows: int | None = None
    epochs: float = 2.0
    batch: int = 16


SHARES = {
    "stsb": Share(seeds=5, train_rows=3000),
    "rte": Share(seeds=3, train_rows=800),
    "mrpc": Share(seeds=3, train_rows=1200),
    "cola": Share(seeds=3, train_rows=3600),
    "sst2": Share(seeds=1, train_rows=5000),
    "qnli": Share(seeds=1, train_rows=2000),
    "qqp": Share(seeds=1, train_rows=2000),
    "mnli": Share(seeds=1, train_rows=2000),
    "squad": Share(seeds=1, train_rows=800, dev_rows=400, batch=4),
}
"""In the order in which they are run."""


@dataclass(frozen=True)
class Schedule:
    """A task's two stages, on all rows of train but those held out."""

    first: Stage
    second: Stage
    seeds: int = 1
    batch: int = 16
    dev_rows: int | None = None
    """None: all of them."""


_RATE, _TUNE = 1e-4, 5e-5
TWO_STAGE = {
    "cola": Schedule(Stage(5, _RATE), Stage(0.5, _TUNE), seeds=3),
    "stsb": Schedule(Stage(4, _RATE), Stage(0.5, _TUNE), seeds=3),
    "rte": Schedule(Stage(6, _RATE), Stage(1, _TUNE), seeds=3),
    "mrpc": Schedule(Stage(5, _RATE), Stage(0.5, _TUNE), seeds=3),
    "sst2": Schedule(Stage(2, _RATE), Stage(0.125, _TUNE), seeds=2, batch=32),
    "qqp": Schedule(Stage(2, _RATE), Stage(0.125, _TUNE), seeds=2, batch=32),
    "qnli": Schedule(Stage(3, _RATE), Stage(0.25, _TUNE), seeds=2),
    "mnli": Schedule(Stage(3, _RATE), Stage(0.25, _TUNE), seeds=2),
    "squad": Schedule(Stage(3, _RATE), Stage(0.5, _TUNE), batch=8, dev_rows=2000),
}
"""For MiniLM, in the order in which they are run. Epochs are those after which the figure on held-out rows is flat. What half and
twice of each rate give on such rows is in docs/results/accuracy-choice.md."""
FACTORS = (1, 0.5, 2)
"""Rates that `softermax accuracy --choose` tries, over the schedule's own, with its epochs."""
TRIED_ROWS = {"sst2": 30000, "qqp": 15000, "mnli": 6000, "qnli": 6000, "squad": 2500}
"""How many rows of the large tasks it takes, so that the nine are tried in some hours; of the others, all."""
_PRODUCTS: Products = "bfloat16"
"""What the two-stage recipe trains with, in every arm: a table in fewer hours where processors have it."""
BASE_SIZE = 0.3
"""Rates of a model of base size, as a share of MiniLM's: the larger the model, the lower the rate that it bears."""


def candidates(run: Run) -> tuple[Run, list[Stage], list[Stage]]:
    """A planned run of two stages on the rows that trials take, and first and second stages to choose from, its own at the
    head of each."""
    if run.first is None:
        raise ValueError("recipe = 'single': has no stages to choose; take two-stage")
    first = [Stage(run.first.epochs, factor * run.first.learning_rate) for factor in FACTORS]
    second = [Stage(run.epochs, factor * run.learning_rate) for factor in FACTORS]
    tried = dataclasses.replace(run, train_rows=run.train_rows or TRIED_ROWS.get(run.task))
    return tried, first, second


def planned(
    tasks: Sequence[str],
    presets: Sequence[str] | None = None,
    model: str = "minilm",
    seeds: int | None = None,
    arms: Sequence[Arm] = ARMS,
    recipe: Recipe = "single",
    **changes: Any,
) -> list[Run]:
    """The runs of a table, a seed's arms together: of an interrupted table, what is there can be compared. A recipe of
    two stages takes every task once before it takes another seed; that of one stage tasks of several seeds first.

    ``changes`` are fields of `Run` that replace the recipe's, where they are not None; ``first_epochs`` and
    ``first_learning_rate`` are the first stage's.
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds = {seeds}: must be 1 or more")
    changes = {name: value for name, value in changes.items() if value is not None}
    sizes = {name: _size(name, model, recipe, changes) for name in tasks}
    counts = {name: size.pop("seeds") if seeds is None else seeds for name, size in sizes.items()}
    order = [(seed, name) for seed in range(max(counts.values())) for name in tasks if seed < counts[name]]
    if recipe == "single":
        order.sort(key=lambda entry: counts[entry[1]] == 1)
    runs: list[Run] = []
    for seed, name in order:
        for arm in arms:
            for preset in presets or PRESETS[recipe] if arm == "softermax" else ("paper",):
                fields = {k: v for k, v in sizes[name].items() if k != "seeds"}
                runs.append(Run(task=name, arm=arm, preset=preset, model=model, seed=seed, **fields))
    return runs


def _size(task: str, model: str, recipe: Recipe, changes: dict[str, Any]) -> dict[str, Any]:
    """Seeds and the fields of `Run` that a recipe sets for a task."""
    if recipe not in RECIPES:
        raise ValueError(f"unknown recipe {recipe!r}: must be one of {', '.join(RECIPES)}")
    if recipe == "single":
        if "first_epochs" in changes or "first_learning_rate" in changes:
            raise ValueError("a first stage has epochs and a learning rate in the recipe two-stage only")
        return dataclasses.asdict(SHARES.get(task, Share(seeds=1))) | changes
    changes = dict(changes)
    schedule = TWO_STAGE.get(task, Schedule(Stage(3, _RATE), Stage(0.5, _TUNE)))
    scale = BASE_SIZE if model in ("mpnet", "distilbert") else 1.0
    first = Stage(
        changes.pop("first_epochs", schedule.first.epochs),
        changes.pop("first_learning_rate", schedule.first.learning_rate * scale),
    )
    return {
        "seeds": schedule.seeds,
        "epochs": schedule.second.epochs,
        "learning_rate": schedule.second.learning_rate * scale,
        "batch": schedule.batch,
        "dev_rows": schedule.dev_rows,
        "held_out": HELD_OUT,
        "products": _PRODUCTS,
        "first": first,
    } | changes
