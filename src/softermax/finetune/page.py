"""The accuracy table as a page beside the paper's, and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softermax.files import replacing
from softermax.finetune.cells import Cell
from softermax.finetune.swap import SWAP_ROWS
from softermax.finetune.table import Difference, Entry, entries, first_stages, swapped_presets, swaps
from softermax.finetune.tasks import TASKS


def markdown(cells: Sequence[Cell], first: Sequence[Cell], found: Sequence[Difference], missing: int) -> str:
    """The page. ``first`` are the cells of first stages; none in a table of single stages."""
    table = entries(cells)
    dates = sorted(cell.date for cell in cells)
    lines = [
        "# Accuracy: fp32, int8 and Softermax after fine-tuning",
        "",
        "Mean ± standard deviation over seeds, in per cent; in brackets the number of seeds. The difference is",
        "Softermax less int8 on equal seeds, with a 95 % interval (paired bootstrap over dev rows and seeds); a",
        "verdict stands only where the interval allows one. With one seed it is about that training: how far",
        "another seed would move it is not in the interval. The paper's rows are its BERT-Base: int8 baseline and",
        "Softermax. Its model is another, larger one trained on all data: compare differences, not levels.",
        *_RECIPE[bool(first)],
        *_products_lines(cells),
        "",
        f"{len(cells)} cells done, {missing} to go; the command continues."
        + (f" Cells are from {dates[0]} to {dates[-1]};" if dates else "")
        + f" training and evaluation took {sum(c.seconds for c in [*cells, *first]) / 3600:.1f} h in all.",
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
            one = mine[0]
            epochs = (
                f"{one.epochs:g}" if one.first_epochs is None else f"{one.first_epochs:g} + {one.epochs:g}"
            )
            row = [task.title, task.metric, str(one.train_rows), epochs, str(one.dev_rows)]
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
        lines += _first_lines(first, model)
        lines += _swap_lines(cells, model)
    return "\n".join(lines)


_RECIPE = {
    True: [
        "Every arm starts from one fp32 model per task and seed, which was trained until its held-out figure was flat, and gets the",
        "same short second stage; `fp32` is the control with that stage in floating point. `+absorbed` has log2(e) in its",
        "query weights from the start of the second stage. Train rows are all there are but those held out to score",
        "training on the way. Rates and epochs are those of `softermax.finetune.recipe`; none was chosen on dev.",
    ],
    False: ["Every arm trains from the pretrained model, in one stage."],
}


def _products_lines(cells: Sequence[Cell]) -> list[str]:
    if not any(cell.run.products == "bfloat16" for cell in cells):
        return []
    return [
        "Linear layers multiply in bfloat16 while they train, in every arm, and in float32 when dev is scored.",
    ]


def _first_lines(first: Sequence[Cell], model: str) -> list[str]:
    """First stages: whether the loss had flattened."""
    stages = [stage for stage in first_stages(first) if stage.model == model]
    if not stages:
        return []
    lines = [
        "### First stage",
        "",
        "fp32, before the arms part: the mean training loss of each fifth of the steps, and the figure on the rows of train",
        "that were held out, at the end of each fifth.",
        "",
        "| task | seed | epochs | rate | fp32 on dev | training loss | held out |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage in stages:
        losses = " ".join(f"{loss:.3f}" for loss in stage.losses)
        held = " ".join(f"{figure:.1f}" for figure in stage.held_out)
        lines.append(
            f"| {TASKS[stage.task].title} | {stage.seed} | {stage.epochs:g} | {stage.learning_rate:g} "
            f"| {stage.figure:.2f} | {losses} | {held} |"
        )
    return [*lines, ""]


def _swap_lines(cells: Sequence[Cell], model: str) -> list[str]:
    swapped = [row for row in swaps(cells) if row["model"] == model]
    presets = swapped_presets(cells)
    if not swapped or not presets:
        return []
    lines = [
        "### Without retraining",
        "",
        "Softermax put into the fine-tuned int8 models: difference to int8, mean over seeds, "
        f"on the first {SWAP_ROWS} dev rows where there are more.",
        "",
        "| task | int8 | " + " | ".join(f"`{preset}`" for preset in presets) + " |",
        "|" + "---|" * (2 + len(presets)),
    ]
    for row in swapped:
        title = TASKS[row["task"]].title if row["task"] in TASKS else row["task"]
        figures = ["" if row[preset] is None else f"{row[preset]:+.2f}" for preset in presets]
        lines.append(f"| {title} | {row['int8']:.2f} | " + " | ".join(figures) + " |")
    return [*lines, ""]


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


def plot_curves(path: Path, first: Sequence[Cell]) -> None:
    """Losses of first stages over their epochs, one line per seed, one field per task."""
    from matplotlib.figure import Figure

    tasks = [task for task in TASKS.values() if any(cell.run.task == task.name for cell in first)]
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(3 * columns, 2.2 * rows), layout="constrained")
    for number, task in enumerate(tasks):
        axes = figure.add_subplot(rows, columns, number + 1)
        for cell in first:
            if cell.run.task == task.name:
                points = [(p["epoch"], p["loss"]) for p in cell.curve if "loss" in p]
                axes.plot(*zip(*points, strict=True), linewidth=1, label=f"seed {cell.run.seed}")
        axes.set_title(task.title, fontsize=9)
        axes.tick_params(labelsize=7)
    figure.supxlabel("epoch", fontsize=8)
    figure.supylabel("training loss", fontsize=8)
    with replacing(path) as partial:
        figure.savefig(partial, format="svg")
