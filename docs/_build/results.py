"""Tables and figures of the site and of the README, made from docs/results/*.json.

As a hook of mkdocs it fills ``<!-- results: NAME -->`` with a table, and figures in sentences (`figures`), while the site
is built, so that none can be older than the results. ``python docs/_build/results.py README.md docs/*.md`` rewrites them in
the files, tables between ``<!-- results: NAME -->`` and ``<!-- end -->``; a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import figures
import searches
from figures import ResultRow
from rival_tables import (
    add_built_rivals,
    add_rivals,
    add_rivals_in_models,
    rivals,
    rivals_by_length,
    rivals_cheaper,
    rivals_claims,
    rivals_in_models,
    rivals_in_silicon,
    rivals_learned,
    rivals_told,
    rivals_with_options,
)

from softermax.cli.output import markdown_table
from softermax.files import write_text
from softermax.finetune.tasks import TASKS
from softermax.paper import accuracy as paper_accuracy
from softermax.paper import figures as paper
from softermax.report.names import BASELINES, LIBRARIES, SCHEMES, UNITS
from softermax.report.verdict import ratio
from softermax.results import Envelope

PAPER = paper()
WHOLES = {"both units": "Both units", "whole": "Both units and what waits between them"}
TEXTS = {"wikitext2_test.txt": "WikiText-2", "tinyshakespeare.txt": "Shakespeare"}


def of_both_kinds(name: str) -> list[ResultRow]:
    """The rows of a result against two passes of either kind: all against the one, then all against the other."""
    found = figures.rows(name)
    return [row for baseline in BASELINES for row in found if row["baseline"] == baseline]


def judged(name: str, paper: ResultRow, ours: ResultRow) -> Iterator[ResultRow]:
    """A row each for area and energy: the paper's ratio, ours, the verdict."""
    for what in ("area", "energy"):
        compared = ratio(name, paper[what], ours[f"{what}_ratio"])
        yield {
            "ratio to FP16": f"{name}, {what}",
            "paper": f"{compared.paper:.2f}",
            "here": f"{compared.ours:.3f}",
            "verdict": compared.verdict,
        }


def units() -> list[ResultRow]:
    """The paper's words at both widths in every library, against both kinds of two passes."""
    rows: list[ResultRow] = []
    for found in of_both_kinds("silicon"):
        if found["unit"] in UNITS and found["preset"] in ("paper", "paper-32"):
            where = f"{LIBRARIES.get(found['library'], found['library'])}, {found['width']} wide"
            name = f"{UNITS[found['unit']]} over {BASELINES[found['baseline']]}, {where}"
            rows += judged(name, PAPER["units"]["ratios"][found["unit"]], found)
    return rows


def is_the_papers(row: ResultRow) -> bool:
    """Whether a row is of the width and sequence that the paper gives a figure for."""
    paper = PAPER["pe"]
    return (row["width"], row["sequence"]) == (paper["width"], paper["sequence"])


def processing_element() -> list[ResultRow]:
    """The paper's processing element: 32 wide, rows of 384, against both kinds of two passes."""
    rows: list[ResultRow] = []
    for found in of_both_kinds("pe"):
        if is_the_papers(found) and found["scheme"] in SCHEMES:
            where = LIBRARIES.get(found["library"], found["library"])
            scheme = SCHEMES[found["scheme"]]
            name = f"Processing element over {BASELINES[found['baseline']]}, {where}, {scheme}"
            rows += judged(name, PAPER["pe"]["ratios"], found)
    return rows


def title(task: str) -> str:
    return TASKS[task].title if task in TASKS else task


def accuracy() -> list[ResultRow]:
    """Softermax less int8 after fine-tuning, task by task and on average, on the seeds that both have."""
    pairs = {task: paper_accuracy(task) for task in TASKS}
    paper = {task: pair[1] - pair[0] for task, pair in pairs.items() if pair}
    found = figures.rows("accuracy-differences")
    rows: list[ResultRow] = []
    for d in found:
        name, said = title(d["task"]), paper.get(d["task"])
        if d["task"] == "average":
            tasks = sum((o["model"], o["preset"]) == (d["model"], d["preset"]) for o in found) - 1
            name = f"average of {tasks} tasks"
            said = sum(paper.values()) / tasks if tasks == len(paper) else None
        rows.append(
            {
                "task": name,
                "model": d["model"],
                "spec": f"`{d['preset']}`",
                "seeds": len(d["seeds"]) or "",
                "difference": f"{d['mean']:+.2f}",
                "95 %": f"{d['low']:+.2f} to {d['high']:+.2f}",
                "verdict": d["verdict"],
                "paper, BERT-Base": "" if said is None else f"{said:+.2f}",
            }
        )
    return rows


def swapped() -> list[ResultRow]:
    """Softermax put into fine-tuned int8 models without retraining: points gained, task by task."""
    rows: list[ResultRow] = []
    for found in figures.rows("accuracy-swaps"):
        presets = [key for key in found if key not in ("task", "model", "seeds", "int8")]
        rows.append(
            {
                "task": title(found["task"]),
                "model": found["model"],
                "int8": f"{found['int8']:.2f}",
            }
            | {f"`{preset}`": "" if found[preset] is None else f"{found[preset]:+.2f}" for preset in presets}
        )
    return rows


def perplexity() -> list[ResultRow]:
    """Language models without retraining, against the exact softmax on the same windows."""
    from softermax.models.perplexity import compared

    found = [row for row in figures.rows("perplexity") if "losses" in row]
    texts = dict.fromkeys((row["model"], row["text"], row["tokens"]) for row in found)
    rows: list[ResultRow] = []
    for row in (row for text in texts for row in compared(found, *text)):
        if row["to exact"] is not None and row["variant"] != "exact":
            rows.append(
                {
                    "model": row["model"],
                    "text": TEXTS.get(row["text"], row["text"]),
                    "context": str(row["context"]),
                    "windows": str(row["windows"]),
                    "spec": f"`{row['variant']}`",
                    "perplexity": f"{row['perplexity']:.2f}",
                    "exact softmax": f"{row['exact']:.2f}",
                    "difference": f"{row['to exact']:+.1%}".replace("%", " %"),
                    "95 %": ""
                    if row["low"] is None
                    else f"{row['low']:+.1%} to {row['high']:+.1%}".replace("%", " %"),
                }
            )
    return sorted(rows, key=lambda row: (row["model"], row["text"], int(row["context"]), row["spec"]))


def runtime() -> list[ResultRow]:
    """Softmax's share of a BERT-Large layer's time, with torch.softmax and with our kernel, by sequence length."""
    lengths: dict[int, ResultRow] = {}
    for found in figures.rows("breakdown"):
        by = "torch" if found["softmax"] == "torch" else "Softermax"
        row = lengths.setdefault(found["sequence"], {"tokens": found["sequence"]})
        row[f"{found['precision']}, {by}"] = f"{100 * found['share']['softmax']:.1f} %"
    return list(lengths.values())


_ROWS = "bench-kernels.ratio columns=384..4096 range"
_ATTENTION = "bench-attention.ratio range"
SPEED = (
    ("int8 rows `whole-row`, 384 to 4096 columns, torch fp32", f'{_ROWS} case="int8 whole-row" versus="torch fp32" .1f', "8 (AVX-512), 2 (AVX2)"),
    ("the same, onnxruntime fp32", f'{_ROWS} case="int8 whole-row" versus="onnxruntime fp32" .1f', "5 (AVX-512)"),
    ("the same, onnxruntime QLinearSoftmax", f'{_ROWS} case="int8 whole-row" versus="onnxruntime QLinearSoftmax" .0f', ""),
    ("int8 rows `paper` and `paper-32`, torch fp32", f'{_ROWS} case="int8 paper|int8 paper-32" versus="torch fp32" .1f', "4 (AVX-512), 2 (AVX2)"),
    ("int8 rows `whole-row`, 64 Mi elements, memcpy", 'bench-kernels.ratio case="int8 whole-row, 64 Mi" versus=memcpy range .2f', "0.85 (AVX-512)"),
    ("int8 rows of 64 columns, torch fp32", 'bench-kernels.ratio case="int8 paper|int8 paper-32|int8 row-scaled|int8 whole-row" columns=64 versus="torch fp32" range .1f', ""),
    ("float rows `paper`, 128 to 4096 columns, torch fp32", 'bench-kernels.ratio case="float paper" columns=128..4096 versus="torch fp32" range .1f', ""),
    ("attention from int8, paper's mode (`whole-row`), SDPA fp32", f'{_ATTENTION} case="whole-row from int8" versus="SDPA fp32" .1f', "4 (AVX-512)"),
    ("attention from float, paper's mode (`whole-row`), SDPA fp32", f'{_ATTENTION} case="whole-row from float" versus="SDPA fp32" .1f', "3 (AVX-512)"),
    ("attention from int8, paper's mode (`paper`), SDPA fp32", f'{_ATTENTION} case="paper from int8" versus="SDPA fp32" .1f', ""),
    ("attention from int8, deferred mode, SDPA fp32", f'{_ATTENTION} case="deferred from int8" versus="SDPA fp32" .1f', ""),
    ("attention from int8, paper's mode (`whole-row`), SDPA bf16", f'{_ATTENTION} case="whole-row from int8" versus="SDPA bf16" .1f', ""),
    ("operator forward and backward, 32x12x128x128, torch.softmax", 'bench-training.ratio case="operator paper|operator paper-32|operator row-scaled|operator whole-row" range .2f', "1"),
    ("a whole step of an encoder of MiniLM's size, torch.softmax", 'bench-training.ratio case="encoder step paper" .2f', "0.98"),
)  # fmt: skip
"""What is compared, the figure, and what was wanted."""


def speed() -> list[ResultRow]:
    """The kernels against others: their time over ours."""
    if not figures.rows("bench-kernels"):
        return []
    return [
        {"time of the other over ours": what, "measured": figures.figure(asked), "wanted": wanted}
        for what, asked, wanted in SPEED
    ]


def summary() -> list[ResultRow]:
    """The README's table."""
    rows: list[ResultRow] = []

    def add(what: str, here: str, paper: str, page: str, path: str = "") -> None:
        how = f"[{page}](docs/{path or f'results/{page}.md'})"
        rows.append({"": what, "here": here, "paper": paper, "how": how})

    for found in of_both_kinds("silicon"):
        over = BASELINES[found["baseline"]]
        if (found["width"], found["preset"]) == (16, "paper") and found["unit"] in UNITS:
            paper = PAPER["units"]["ratios"][found["unit"]]
            add(
                f"{UNITS[found['unit']]} over {over}, area / energy, {LIBRARIES[found['library']]}",
                f"{found['area_ratio']:.2f} / {found['energy_ratio']:.2f}",
                f"{paper['area']:.2f} / {paper['energy']:.2f}",
                "silicon",
            )
        if (found["width"], found["preset"]) == (16, "lean") and found["unit"] in WHOLES:
            add(
                f"{WHOLES[found['unit']]}, `lean`, over {over}, area / energy, {LIBRARIES[found['library']]}",
                f"{found['area_ratio']:.2f} / {found['energy_ratio']:.2f}",
                "",
                "silicon",
            )
    for found in of_both_kinds("pe"):
        if is_the_papers(found) and found["scheme"] in ("fixed", "lean", "deferred"):
            paper = PAPER["pe"]["ratios"]
            add(
                f"Processing element over {BASELINES[found['baseline']]}, {found['width']} wide, area / energy, "
                f"{LIBRARIES[found['library']]}, {SCHEMES[found['scheme']]}",
                f"{found['area_ratio']:.2f} / {found['energy_ratio']:.2f}",
                f"{paper['area']:.2f} / {paper['energy']:.2f}" if found["scheme"] == "fixed" else "",
                "pe",
            )
    for row in perplexity():
        if (row["model"], row["text"], row["context"]) != ("smollm2", TEXTS["wikitext2_test.txt"], "2048"):
            continue
        if "+fold" not in row["spec"]:
            continue  # a pretrained model is one of base e
        add(
            f"Perplexity of {row['model']} without retraining, {row['text']}, {row['context']} tokens, {row['spec']}",
            f"{row['difference']} ({row['95 %']})",
            "",
            "perplexity",
        )
    for row in accuracy():
        if row["task"].startswith("average"):
            add(
                f"Points over int8 after fine-tuning, {row['model']}, {row['task']}, {row['spec']}",
                f"{row['difference']} ({row['95 %']})",
                row["paper, BERT-Base"],
                "accuracy",
            )
    for row in swapped():
        if row["task"] == "average":
            spec = "`row-scaled+fold`"
            add(f"The same without retraining, {row['model']}, {spec}", row[spec], "", "accuracy")
    add_rivals(add)
    add_rivals_in_models(add)
    add_built_rivals(add)
    return rows


def lean_sets() -> list[ResultRow]:
    """Distance to the exact softmax and row sum, set by set, of the paper's words and of lean's."""
    found = {row["preset"]: row for row in figures.rows("lean") if row["change"] == "none"}
    names = next(iter(found.values()))["l1"] if found else []
    return [
        {"scores": name}
        | {preset: f"{row['l1'][name]:.3f} / {row['row_sum'][name]:.2f}" for preset, row in found.items()}
        for name in names
    ]


def lean_words() -> list[ResultRow]:
    """Each change of a word: its mean and its worst ratio to the paper's words, for both kinds of output."""
    found = {(row["preset"], row["change"]): row for row in figures.rows("lean")}
    columns = {"lean": "fixed", "lean-row-scaled": "row-scaled"}
    rows: list[ResultRow] = []
    for change in dict.fromkeys(change for preset, change in found if preset in columns):
        line: ResultRow = {"change": change}
        for preset, column in columns.items():
            row = found.get((preset, change))
            line |= {
                f"{column}, mean": f"{row['mean_ratio']:.3f}" if row else None,
                f"{column}, worst": f"{row['worst_ratio']:.3f}" if row else None,
                f"{column}, worst on": row["worst_on"] if row else None,
            }
        rows.append(line)
    return rows


def lean_silicon() -> list[ResultRow]:
    """Units of the paper's words and of lean's, as ratios to two passes of either kind; what is whole has no unit's name."""
    presets = ("paper", "lean", "row-scaled", "lean-row-scaled")
    rows: dict[tuple[Any, ...], ResultRow] = {}
    for row in of_both_kinds("silicon"):
        if row["preset"] in presets and row.get("area_ratio") and row.get("energy_ratio"):
            place = (LIBRARIES.get(row["library"], row["library"]), row["width"], row["unit"], row["preset"])
            named = dict(zip(("library", "width", "unit", "preset"), place, strict=True))
            over = f"over {BASELINES[row['baseline']]}"
            rows.setdefault(place, named)[f"area {over}"] = f"{row['area_ratio']:.3f}"
            rows[place][f"energy {over}"] = f"{row['energy_ratio']:.3f}"
    return list(rows.values()) if any(row["preset"].startswith("lean") for row in rows.values()) else []


def routed() -> list[ResultRow]:
    """Ratios before and after layout, and the slack that is left; of whole softmaxes none, their memories are not laid out."""
    return [
        {
            "unit": row["unit"],
            "spec": f"`{row['preset']}`",
            "baseline": row["baseline"],
            "area ratio, mapped": f"{row['mapped_area_ratio']:.4f}",
            "routed": f"{row['area_ratio']:.4f}",
            "energy ratio, mapped": f"{row['mapped_energy_ratio']:.4f}",
            "routed, energy": f"{row['energy_ratio']:.4f}",
            "by OpenROAD's report": f"{row['openroad_energy_ratio']:.4f}"
            if row["openroad_energy_ratio"]
            else None,
            "slack, ns": f"{row['slack_ns']:.3f}",
            "baseline's": f"{row['baseline_slack_ns']:.3f}",
        }
        for row in figures.rows("route")
        if row["area_ratio"] is not None and row["unit"] != "whole"
    ]


def routed_added() -> list[ResultRow]:
    """What layout adds to each design: ours, then the baselines'."""
    rows: dict[tuple[str, str], ResultRow] = {}
    for row in figures.rows("route"):
        if row["unit"] in UNITS:
            ours = row["energy_pj_per_element"]
            for design, prefix, energy in (
                (row["preset"], "", ours),
                (row["baseline"], "baseline_", ours / row["energy_ratio"]),
            ):
                rows[row["unit"], design] = {
                    "unit": row["unit"],
                    "design": f"`{design}`",
                    "clock tree cells": row[f"{prefix}clock_tree_cells"],
                    "buffers": row[f"{prefix}buffers"],
                    "resized": row[f"{prefix}resized"],
                    "wire, mm": f"{row[f'{prefix}wire_um'] / 1000:.1f}",
                    "clock's share of the energy": f"{row[f'{prefix}clock_share']:.1%}".replace("%", " %"),
                    "pJ per element": f"{energy:.3f}",
                    "by OpenROAD's report": f"{row[f'{prefix}openroad_pj_per_element']:.3f}",
                    "hold slack, ns": f"{row[f'{prefix}hold_slack_ns']:.3f}",
                }
    return sorted(rows.values(), key=lambda found: list(UNITS).index(found["unit"]))


def routed_in_detail() -> list[ResultRow]:
    """What detailed routing came to, where it was done."""
    rows: dict[tuple[str, str], ResultRow] = {}
    for row in figures.rows("route"):
        if row["unit"] in UNITS and row["violations"] is not None:
            rows[row["unit"], row["preset"]] = {
                "unit": row["unit"],
                "design": f"`{row['preset']}`",
                "violations of design rules": row["violations"],
                "wire, mm": f"{row['detailed_wire_um'] / 1000:.1f}",
                "global routing's, mm": f"{row['wire_um'] / 1000:.1f}",
            }
    return list(rows.values())


def lean_in_models() -> list[ResultRow]:
    """Put into models without retraining: a fine-tuned encoder's score, a language model's perplexity."""
    scores = {row["attention"]: row["pearson_spearman"] for row in figures.rows("lean/evaluate")}
    losses = {row["variant"]: row["perplexity"] for row in figures.rows("lean/perplexity")}
    exact = next((name for name in scores if name.startswith("exact")), "exact")
    names = {"exact": exact} | {name: name for name in (*scores, *losses) if not name.startswith("exact")}
    return [
        {
            "softmax": name,
            "MiniLM in int8, STS-B": f"{scores[column]:.1f}" if column in scores else None,
            "SmolLM2, perplexity": f"{losses[name]:.2f}" if name in losses else None,
        }
        for name, column in names.items()
        if column in scores or name in losses
    ]


def compared() -> list[ResultRow]:
    """One classifier, form by form; what was skipped or is a simulation only is not in the way."""
    rows: list[ResultRow] = []
    for found in figures.rows("compare"):
        if found["milliseconds"] is not None:
            rows.append(
                {
                    "runtime": found["runtime"],
                    "form": found["form"],
                    "accuracy, %": f"{found['accuracy']:.1f}",
                    "ms": f"{found['milliseconds']:.2f}",
                    "times as fast": f"{found['speedup']:.1f}",
                    "MB on disk": f"{found['disk_megabytes']:.0f}",
                    "MB in memory": f"{found['memory_megabytes']:.0f}",
                }
            )
    return rows


def tables_classified() -> list[ResultRow]:
    """TabPFN, which needs no training: accuracy on each table with each softmax."""
    found = figures.rows("tabpfn")
    return [
        {"softmax": attention if attention == "exact" else f"`{attention}`"}
        | {row["table"]: f"{row['accuracy']:.1f}" for row in found if row["attention"] == attention}
        for attention in dict.fromkeys(row["attention"] for row in found)
    ]


def onnx_nodes() -> list[ResultRow]:
    """Standard operators of one Softermax."""
    return [
        {"preset": f"`{row['preset']}`", "nodes": row["nodes"], "of them look-ups": row["gathers"]}
        for row in figures.rows("onnx-nodes")
    ]


def generated() -> list[ResultRow]:
    """A language model that writes, in int8 and in single precision; not what it wrote."""
    return [{k: v for k, v in row.items() if k not in ("text", "model")} for row in figures.rows("generate")]


def gpu() -> list[ResultRow]:
    """What compilers made of the kernels for GPUs."""
    return [
        {
            "kernel": row["kernel"], "type": row["dtype"], "columns or head": row["columns"], "target": row["target"],
            "registers": row["registers"], "spills": row["spills"], "shared": row["shared"],
            "instructions per score": row["per_score"],
        }
        for row in figures.rows("gpu")
    ]  # fmt: skip


def gpu_estimate() -> list[ResultRow]:
    """The roofline of the same kernels."""
    path = figures.RESULTS / "gpu.json"
    found = Envelope.load(path).notes["estimate"] if path.is_file() else []
    return [
        {
            "GPU": row["gpu"], "kernel": f"{row['kernel']}, {row['dtype']}, {row['columns']}", "ps per score": row["picoseconds"],
            "bound by": row["bound"], "busiest pipe": row["busy"], "tensor cores alone": row["tensor_picoseconds"] or "", "against": row["versus"], "its ps": row["versus_picoseconds"], "its time over ours": row["ratio"],
        }
        for row in found
    ]  # fmt: skip


def skid() -> list[ResultRow]:
    return [
        {
            "unit": row["unit"],
            "spec": f"`{row['preset']}`",
            "area, um2": f"{row['area_um2']:,.0f}",
            "with skid buffers": f"{row['skid_area_um2']:,.0f} (+{row['area_added']:.0%})",
            "pJ per element": f"{row['pj_per_element']:.3f}",
            "with skid buffers, pJ": f"{row['skid_pj_per_element']:.3f} (+{row['energy_added']:.0%})",
            "slack, ns": f"{row['skid_slack_ns']:.3f}",
        }
        for row in figures.rows("skid")
    ]


def fpga() -> list[ResultRow]:
    """The designs on both families, with look-up tables over those of either baseline's unit."""
    found = figures.rows("fpga")
    theirs = {
        (row["family"], row["unit"], row["design"]): row["luts"]
        for row in found
        if row["design"] in BASELINES
    }

    def over(row: ResultRow, baseline: str) -> str:
        luts = theirs.get((row["family"], row["unit"], baseline))
        return "" if luts is None or row["design"] in BASELINES else f"{row['luts'] / luts:.3f}"

    return [
        {
            "family": row["family"],
            "lanes": row["width"],
            "unit": row["unit"],
            "design": row["design"],
            "LUTs": f"{row['luts']:,}",
            "over two-pass": over(row, "two-pass"),
            "over generic": over(row, "generic"),
            "registers": row["registers"],
            "DSPs": row["dsps"],
            "block RAMs": row["block_rams"],
            "Fmax, MHz": "does not fit" if row["fmax_mhz"] is None else f"{row['fmax_mhz']:.1f}",
            "slowest in": row["slowest"],
        }
        for row in found
    ]


TABLES: dict[str, Callable[[], list[ResultRow]]] = {
    "runtime": runtime,
    "units": units,
    "processing element": processing_element,
    "accuracy": accuracy,
    "swapped": swapped,
    "perplexity": perplexity,
    "speed": speed,
    "compared": compared,
    "tables classified": tables_classified,
    "generated": generated,
    "onnx nodes": onnx_nodes,
    "summary": summary,
    "lean sets": lean_sets,
    "lean words": lean_words,
    "lean silicon": lean_silicon,
    "routed": routed,
    "routed, added": routed_added,
    "routed, in detail": routed_in_detail,
    "fpga": fpga,
    "skid": skid,
    "lean in models": lean_in_models,
    "gpu": gpu,
    "gpu estimate": gpu_estimate,
    "rivals": rivals,
    "rivals with options": rivals_with_options,
    "rivals in silicon": rivals_in_silicon,
    "rivals in models": rivals_in_models,
    "rivals by length": rivals_by_length,
    "rivals cheaper": rivals_cheaper,
    "rivals claims": rivals_claims,
    "rivals learned": rivals_learned,
    "rivals told": rivals_told,
    "search": searches.presets,
    "search finalists": searches.finalists,
    "search rivals": searches.rivals,
    "search perplexity": searches.perplexities,
    "search words": searches.words,
    "search model": searches.model,
    "search fronts": searches.fronts,
}


def table(name: str) -> str:
    if name not in TABLES:
        raise ValueError(f"results: {name}: must be one of {', '.join(TABLES)}")
    rows = TABLES[name]()
    return markdown_table(rows) if rows else "*Not measured yet.*"


# A table's end comes before an empty line; without one the page shows a table on the site only.
_TABLE = re.compile(r"<!-- results: ([\w, -]+?) -->(?:\n(?:.+\n)*?<!-- end -->)?")


def filled(text: str) -> str:
    """A file with its figures, and its tables that stand between two comments, made anew."""

    def fill(match: re.Match[str]) -> str:
        is_shown = match[0].endswith("<!-- end -->")
        return f"<!-- results: {match[1]} -->\n{table(match[1])}\n<!-- end -->" if is_shown else match[0]

    return figures.filled(_TABLE.sub(fill, text))


# Hooks of mkdocs.


def on_config(config: Any) -> Any:
    """The pages of docs/results in the menu, whichever there are, and at its end any page that it lacks."""
    results = figures.RESULTS
    docs = results.parent
    for section in config.nav:
        if "Results" in section:
            section["Results"] += [f"results/{path.name}" for path in sorted(results.glob("*.md"))]
            for path in sorted(results.glob("*/**/*.md")):
                where = " ".join(path.parent.relative_to(results).parts)
                name = f"{path.stem.capitalize()}, {where}"
                section["Results"].append({name: str(path.relative_to(docs))})
    listed = set(re.findall(r"[\w/.+-]+\.md", str(config.nav)))
    rest = [str(path.relative_to(docs)) for path in sorted(docs.rglob("*.md"))]
    more = [page for page in rest if page not in listed and not page.startswith("_build")]
    config.nav += [{"More": more}] if more else []
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return figures.plain(_TABLE.sub(lambda match: table(match[1]), markdown))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_text(name, filled(Path(name).read_text(encoding="utf-8")))
