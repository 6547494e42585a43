"""The sections about arithmetic, models and speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Cell, Chart, Section, Series, Table
from softermax.report.sources import Sources
from softermax.report.verdict import Comparison

_TASKS = {
    "squad": "SQuAD", "rte": "RTE", "cola": "CoLA", "mrpc": "MRPC", "qnli": "QNLI", "qqp": "QQP",
    "sst2": "SST-2", "stsb": "STS-B", "mnli": "MNLI",
}  # fmt: skip
_WORDS = {
    "input": "input", "max": "LocalMax", "unnormed": "unnormed", "powsum": "PowSum",
    "reciprocal": "reciprocal", "output": "output",
}  # fmt: skip
_PARTS = ("matrix products", "softmax", "dropout", "rest")


def runtime(sources: Sources) -> Section:
    said, result = paper()["runtime"], sources.result("breakdown")
    comparisons: list[Comparison] = []
    tables, charts = [], []
    if result is None:
        comparisons.append(verdict.growth("share of softmax, longer sequences", []))
    else:
        kinds = list(dict.fromkeys((row["precision"], row["softmax"]) for row in result["rows"]))
        for precision, softmax in kinds:
            rows = [r for r in result["rows"] if (r["precision"], r["softmax"]) == (precision, softmax)]
            rows.sort(key=lambda r: int(r["sequence"]))
            name = "torch.softmax" if softmax == "torch" else "Softermax"
            if softmax == "torch":
                comparisons.append(
                    verdict.growth(
                        f"share of softmax from {rows[0]['sequence']} to {rows[-1]['sequence']} tokens, {precision}",
                        [r["softmax_share"] for r in rows],
                    )
                )
            if precision == "fp32":
                charts.append(_shares(rows, name))
        tables.append(
            Table(
                "A BERT-Large layer, milliseconds",
                ["tokens", "precision", "softmax by", *_PARTS, "share of softmax, %"],
                [
                    [
                        r["sequence"], r["precision"], "torch" if r["softmax"] == "torch" else "Softermax",
                        *(round(r["milliseconds"][part], 3) for part in _PARTS),
                        round(100 * r["softmax_share"], 2),
                    ]
                    for r in result["rows"]
                ],
            )
        )  # fmt: skip
    notes = [
        said["note"],
        "Measured on this machine's CPU with tensors of the layer's shapes, one part at a time.",
    ]
    return Section(
        "runtime", said["where"], said["title"], said["claim"], ["breakdown"], sources.origin("breakdown"),
        comparisons, tables, charts, notes, sources.missing("breakdown"),
    )  # fmt: skip


def _shares(rows: Sequence[Mapping[str, Any]], name: str) -> Chart:
    totals = [sum(r["milliseconds"].values()) for r in rows]
    return Chart(
        f"runtime-{'softmax' if name.startswith('torch') else 'softermax'}",
        f"Where the time goes with {name}, fp32",
        "stacked",
        [str(r["sequence"]) for r in rows],
        [
            Series(part, [100 * r["milliseconds"][part] / t for r, t in zip(rows, totals, strict=True)])
            for part in _PARTS
        ],
        "tokens",
        "% of a layer's time",
    )


def layer(sources: Sources) -> Section:
    said, result = paper()["layer"], sources.result("drop-in")
    tables, charts = [], []
    if result is not None:
        tables.append(
            Table(
                f"The pretrained {'MiniLM' if result['model'] == 'minilm' else result['model']}, exact softmax replaced",
                ["text", "texts", "softmax by", "cosine to exact, mean", "lowest", "same nearest neighbour, %",
                 "attention moved, %", "row sum"],
                [
                    [
                        r["text"], r["rows"], r["spec"], round(r["cosine"], 4), round(r["cosine_low"], 4),
                        None if r["same_neighbour"] is None else round(100 * r["same_neighbour"], 1),
                        round(100 * r["attention_moved"], 2), round(r["row_sum"], 4),
                    ]
                    for r in result["rows"]
                ],
                f"Text: {result['source']}. Attention moved: half the sum of the differences to the exact "
                "probabilities of a row, for the same scores, mean over all rows, heads and layers.",
            )
        )  # fmt: skip
        kinds = list(dict.fromkeys(r["text"] for r in result["rows"]))
        specs = list(dict.fromkeys(r["spec"] for r in result["rows"]))
        at = {(r["text"], r["spec"]): 1 - r["cosine"] for r in result["rows"]}
        charts.append(
            Chart(
                "drop-in", "How far embeddings move when Softermax replaces softmax", "bars", specs,
                [Series(kind, [at[kind, spec] for spec in specs]) for kind in kinds],
                "", "distance to exact, 1 − cosine",
            )
        )  # fmt: skip
    notes = [
        "The paper fine-tunes behind the change of base and gives no figure without. Folding log2(e) into the attention "
        "scale (+fold) makes a pretrained model keep its answers; longer rows need the row-scaled output too."
    ]
    return Section(
        "layer", said["where"], "Drop-in: Softermax in a pretrained Transformer", said["claim"], ["drop-in"],
        sources.origin("drop-in"), [], tables, charts, notes, sources.missing("drop-in"),
    )  # fmt: skip


def algorithm(sources: Sources) -> Section:
    said, result = paper()["algorithm"], sources.result("ladder")
    example = said["example"]
    name = f"running sums of {example['scores']}"
    comparisons = [verdict.equal(name, example["running_sums"], result and result["running_sums"])]
    tables, charts, notes = [], [], []
    if result is not None:
        row = result["example"]
        by_name = {step["name"]: step for step in result["steps"]}
        online = max(
            by_name[step]["max_error"] for step in ("base two, online", "base two, online, integer max")
        )
        comparisons.append(
            verdict.equal(
                "online and integer maximum change nothing (difference below 1e-12)", True, online < 1e-12
            )
        )
        charts.append(
            Chart(
                "ladder", f"What '{row['query']}' attends to", "bars", _tokens(row["tokens"]),
                [Series(step, by_name[step]["y"]) for step in ("softmax", "base two", "Softermax (paper)")],
                "", "weight",
            )
        )  # fmt: skip
        notes.append(f"“{row['text']}” Scores: {row['source']}.")
        tables.append(
            Table(
                "What each idea changes",
                ["step", "compared with", "largest difference", "row sum"],
                [[s["name"], s["against"] or None, s["max_error"], s["row_sum"]] for s in result["steps"]],
            )
        )
        columns = list(result["trace"][0])
        tables.append(
            Table(
                "The row as the hardware sees it: slices of 16",
                columns,
                [[entry[column] for column in columns] for entry in result["trace"]],
            )
        )
        tables += _drawn(result, charts)
    return Section(
        "algorithm", said["where"], said["title"], said["claim"], ["ladder"], sources.origin("ladder"),
        comparisons, tables, charts, notes, sources.missing("ladder"),
    )  # fmt: skip


def _tokens(tokens: Sequence[str]) -> list[str]:
    """Labels that differ, for a token may stand in a sentence twice."""
    seen: dict[str, int] = {}
    labels = []
    for token in tokens:
        seen[token] = seen.get(token, 0) + 1
        labels.append(token if seen[token] == 1 else f"{token} ({seen[token]})")
    return labels


def _drawn(result: Mapping[str, Any], charts: list[Chart]) -> list[Table]:
    errors = result["errors"]
    lengths = list(dict.fromkeys(e["columns"] for e in errors))
    specs = list(dict.fromkeys(e["spec"] for e in errors))
    at = {(e["spec"], e["columns"]): e for e in errors}
    charts.append(
        Chart(
            "mass", "Probability that a row keeps, Gaussian scores", "lines", lengths,
            [Series(spec, [at[spec, n]["mass"] for n in lengths]) for spec in specs],
            "scores in a row", "sum of a row's outputs", mark=1.0, mark_label="softmax",
        )
    )  # fmt: skip
    return [
        Table(
            f"Errors on {errors[0]['rows']} drawn rows of each length (standard deviation 2)",
            ["spec", "scores in a row", "largest error", "mean row sum"],
            [[e["spec"], e["columns"], e["max_error"], e["mass"]] for e in errors],
            "Against softmax in base two for `paper`, in base e where log2(e) is folded in.",
        )
    ]


def bitwidths(sources: Sources) -> Section:
    said, result = paper()["bitwidths"], sources.result("ladder")
    words = result["words"] if result is not None else {}
    comparisons = [
        verdict.equal(f"{_WORDS[name]} word", word, words.get(name)) for name, word in said["words"].items()
    ]
    segments = said["pow2_segments"]
    comparisons.append(
        verdict.equal(
            f"segments of 2^x ({segments['where']})", segments["value"], result and result["pow2_segments"]
        )
    )
    tables = []
    if result is not None:
        tables.append(
            Table(
                "The linear piece-wise tables",
                ["function", "segments", "largest error", "in units of its word"],
                [[t["function"], t["segments"], t["max_error"], t["units"]] for t in result["tables"]],
            )
        )
    return Section(
        "bitwidths", said["where"], said["title"], said["claim"], ["ladder"], sources.origin("ladder"),
        comparisons, tables, [], ["What the paper leaves open is settled in the arithmetic's documentation, A1 to A9."],
        sources.missing("ladder"),
    )  # fmt: skip


def accuracy(sources: Sources) -> Section:
    said = paper()["accuracy"]
    base, worst = said["models"]["BERT-Base"], said["worst_drop"]
    found, origins = sources.result("accuracy"), sources.origin("accuracy")
    missing = []
    if found is None:
        kept = sources.stored("accuracy")
        if kept is not None:
            found, origins = kept.values, [sources.stored_origin(kept)]
        else:
            missing += sources.missing("accuracy")
    entries = {
        (e["task"], e["arm"]): e for e in (found or {}).get("entries", []) if e["preset"] in (None, "paper")
    }
    folded = {e["task"]: e for e in (found or {}).get("entries", []) if e["preset"] == "paper+fold"}
    differences = _differences(found or {}, "paper")
    comparisons = []
    rows: list[list[Cell]] = []
    for task, title in _TASKS.items():
        printed = round(base["softermax"][task] - base["baseline"][task], 2)
        ours = [entries.get((task, arm)) for arm in ("fp32", "int8", "softermax")]
        _, int8, softermax = ours
        gained = softermax["mean"] - int8["mean"] if int8 and softermax else None
        interval = _interval(differences.get(task))
        seeds = f"{len(softermax['seeds'])} seeds" if softermax else "no run of this task is at hand"
        comparisons.append(
            verdict.drop(
                f"{title}: points over int8", printed, gained, interval, worst,
                f"{seeds}{_between(interval)}",
            )
        )  # fmt: skip
        large = said["models"]["BERT-Large"]
        rows.append(
            [title, *(model[arm][task] for model in (base, large) for arm in ("baseline", "softermax"))]
            + [entry["mean"] if entry else None for entry in (*ours, folded.get(task))]
        )
    comparisons += [*_means(base, found or {}, worst), *_large(said)]
    tables = [
        Table(
            "The paper's models beside ours, per cent",
            ["task", "BERT-Base int8", "BERT-Base Softermax", "BERT-Large int8", "BERT-Large Softermax",
             "our fp32", "our int8", "our Softermax", "our Softermax, folded"],
            rows,
            "Ours is MiniLM (6 layers, 22.7 M parameters) on a part of the data: compare differences, not levels. "
            "Folded: log2(e) in the scores' scale, so that base two computes the softmax of base e.",
        )
    ]  # fmt: skip
    short, more = _short(sources, worst)
    return Section(
        "accuracy", said["where"], said["title"], said["claim"], ["finetune", "accuracy"],
        [*sources.origin("finetune"), *origins], [*short, *comparisons], [*more, *tables], [],
        ["The mean difference in the paper's table is "
         f"{_mean_difference(base):+.2f} points for BERT-Base and "
         f"{_mean_difference(said['models']['BERT-Large']):+.2f} for BERT-Large."],
        [*sources.missing("finetune"), *missing],
    )  # fmt: skip


def _between(interval: tuple[float, float] | None) -> str:
    return f", 95 % between {interval[0]:+.2f} and {interval[1]:+.2f}" if interval else ""


def _mean_difference(model: Mapping[str, Mapping[str, float]]) -> float:
    return sum(model["softermax"][task] - model["baseline"][task] for task in _TASKS) / len(_TASKS)


def _differences(found: Mapping[str, Any], preset: str) -> dict[str, Mapping[str, Any]]:
    return {d["task"]: d for d in found.get("differences", []) if d["preset"] == preset}


def _interval(difference: Mapping[str, Any] | None) -> tuple[float, float] | None:
    return (difference["low"], difference["high"]) if difference else None


def _means(
    base: Mapping[str, Mapping[str, float]], found: Mapping[str, Any], worst: float
) -> list[Comparison]:
    """Over all nine tasks: the paper's words, and the same with the fold where it was trained too."""
    comparisons = []
    for preset, what in (("paper", ""), ("paper+fold", ", folded")):
        mine = _differences(found, preset)
        mean = mine.get("average") if mine.keys() >= set(_TASKS) else None
        if mean is None and preset != "paper":
            continue
        interval = _interval(mean)
        comparisons.append(
            verdict.drop(
                f"Mean of nine tasks{what}: points over int8", round(_mean_difference(base), 2),
                mean["mean"] if mean else None, interval, worst,
                f"on equal seeds{_between(interval)}" if mean else "not all tasks are at hand",
            )
        )  # fmt: skip
    return comparisons


def _large(said: Mapping[str, Any]) -> list[Comparison]:
    model = said["models"]["BERT-Large"]
    why = (
        "no package registry has BERT-Large; softermax accuracy --model NAME --data-dir DATA measures it "
        "where the Hugging Face hub can be reached"
    )
    return [
        verdict.drop(
            "BERT-Large, mean of nine tasks: points over int8",
            round(_mean_difference(model), 2), None, None, said["worst_drop"], why,
        )
    ]  # fmt: skip


def _short(sources: Sources, worst: float) -> tuple[list[Comparison], list[Table]]:
    """The fine-tuning of this run: real text, few rows."""
    result = sources.result("finetune")
    name = "movie reviews, short run, not in the paper: points over int8"
    if result is None:
        return [verdict.drop(name, None, None, None, worst, "the stage finetune gave no result")], []
    entries = result["entries"]
    gained = next(d for d in result["differences"] if d["preset"] == "paper")
    first = entries[0]
    size = (
        f"{first['train_rows']:,} rows to train, {first['dev_rows']:,} to test, "
        f"{len(first['seeds'])} seed{'s' if len(first['seeds']) > 1 else ''}"
    )
    interval = _interval(gained)
    comparison = verdict.drop(name, None, gained["mean"], interval, worst, size + _between(interval))
    several = len(first["seeds"]) > 1
    names = {"softermax": "Softermax"}
    arms = Table(
        "Fine-tuned on movie reviews, accuracy in per cent",
        ["arm", "accuracy", *(["spread over seeds"] if several else [])],
        [
            [names.get(e["arm"], e["arm"]), e["mean"], *([e["spread"]] if several else [])]
            for e in entries
            if e["preset"] in (None, "paper")
        ],
        f"{size}, the same rows and seeds in every arm. A sample this small moves by points from one seed to the "
        "next: the interval above says how far it can be trusted.",
    )
    tables = [arms]
    for row in (r for r in result["swaps"] if r["task"] != "average"):
        specs = [key for key in row if key not in ("task", "model", "seeds", "int8")]
        tables.append(
            Table(
                "Softermax put into the fine-tuned int8 model without retraining, points",
                ["int8", *specs],
                [[row["int8"], *(row[spec] for spec in specs)]],
            )
        )
    return [comparison], tables


def kernels(sources: Sources) -> Section:
    result = sources.result("kernels")
    tables, charts, notes = [], [], []
    if result is not None:
        rows = result["rows"]
        versus = [r for r in rows if r["bench"] == "kernels" and "64 Mi" not in r["case"]]
        for rival in ("torch fp32", "onnxruntime fp32"):
            against = [r for r in versus if r["versus"] == rival]
            cases = list(dict.fromkeys(r["case"] for r in against))
            columns = sorted({r["columns"] for r in against})
            at = {(r["case"], r["columns"]): r["ratio"] for r in against}
            if against:
                charts.append(
                    Chart(
                        f"kernels-{rival.split()[0]}", f"Times as fast as {rival} softmax, one thread", "lines",
                        columns, [Series(c, [at.get((c, n)) for n in columns]) for c in cases],
                        "scores in a row", "their time over ours", mark=1.0, mark_label="equal",
                    )
                )  # fmt: skip
        tables.append(
            Table(
                "Ratios of time",
                ["bench", "case", "columns", "against", "their time over ours", "low", "high"],
                [[r["bench"], r["case"], r["columns"], r["versus"], round(r["ratio"], 3), round(r["low"], 3),
                  round(r["high"], 3)] for r in rows],
                "Median of interleaved rounds; eight of ten lie between low and high.",
            )
        )  # fmt: skip
        notes.append(f"Our path here: {result['isa']}; torch runs {result['torch_isa']}.")
    return Section(
        "kernels", "", "Kernel speed on this CPU", "The paper times no software; these are our own figures.", ["kernels"],
        sources.origin("kernels"), [], tables, charts, notes, sources.missing("kernels"),
    )  # fmt: skip


def perplexity(sources: Sources) -> Section:
    result, origins = sources.result("perplexity"), sources.origin("perplexity")
    rows = result["rows"] if result is not None else []
    missing = []
    if result is None:
        kept = sources.stored("perplexity")
        if kept is not None:
            rows, origins = kept.values, [sources.stored_origin(kept)]
        else:
            missing = sources.missing("perplexity")
    exact = {(r["model"], r["text"], r["context"]): r["perplexity"] for r in rows if r["variant"] == "exact"}
    table = [
        [r["model"], r["text"], r["context"], r["variant"], r["perplexity"],
         100 * (r["perplexity"] / exact[r["model"], r["text"], r["context"]] - 1)
         if (r["model"], r["text"], r["context"]) in exact else None]
        for r in rows
    ]  # fmt: skip
    tables = [
        Table(
            "Perplexity without retraining",
            ["model", "text", "context", "attention", "perplexity", "to exact, %"],
            table,
            "Less is better. `:deferred` divides once an output instead of once a score.",
        )
    ]
    return Section(
        "perplexity", "", "A language model without retraining", "The paper measures BERT only; these are our own figures.",
        ["perplexity"], origins, [], tables if rows else [], [], [], missing,
    )  # fmt: skip
