"""Tables of rivals: error, cost, what they do to models, and who is ahead of ours in what."""

from __future__ import annotations

from collections.abc import Callable

import figures
from figures import ResultRow

from softermax.report.names import LIBRARIES
from softermax.rivals import PREFIX, is_rival, pareto
from softermax.rivals.in_models import attention_of, in_models

LENGTHS = {"128": "l1_128", "384": "l1_384", "2048": "l1_2048", "recorded, 384": "l1_recorded"}
"""Columns of error by a row's elements: Gaussian ones, and recorded ones."""
WORDS = {
    "8 bits of fixed scale": ("u8, p", "s8, p"),
    "8 bits and an exponent per row": ("u8 and",),
    "8 bits, divided after P·V": ("u8 unnormed",),
    "16 bits of fixed scale": ("u16", "s16"),
    "a power of two, or one per element": ("u4", "exponent of two", "8-bit fraction"),
    "BF16 or float": ("BF16", "float"),
}
"""Kinds of output words, by how a design's own begins."""
INT8 = PREFIX + "int8-scores"
"""No rival's design: the exact softmax of int8 scores."""


def word_of(row: ResultRow) -> str:
    """The kind of a design's output word."""
    if row["gives"] == "u8":
        return next(iter(WORDS))
    return next(kind for kind, begins in WORDS.items() if row["gives"].startswith(begins))


def rival_designs() -> list[ResultRow]:
    """The rows of rivals.json, one per design: a design that was built has several."""
    return list({row["name"]: row for row in figures.rows("rivals")}.values())


def rivals() -> list[ResultRow]:
    """Every design as its authors have it: words, error, mass, and what it needs."""
    rows: list[ResultRow] = []
    for found in rival_designs():
        if ":" in found["name"] and found["kind"] == "rival":
            continue
        needs = found["needs"]
        wants = {
            "max": "row_max",
            "second pass": "second_pass",
            "divider": "divider",
            "retraining": "retraining",
        }
        rows.append(
            {
                "design": f"`{found['name']}`",
                "in": found["takes"],
                "out": found["gives"],
                "L1, 128": f"{found['l1_128']:.3f}",
                "L1, recorded": f"{found['l1_recorded']:.3f}",
                "KL, recorded": f"{found['kl_recorded']:.3f}",
                "mass, 2048": f"{found['mass_2048']:.2f}",
                "needs": ", ".join(name for name, key in wants.items() if needs[key])
                + (f", {needs['table']} table entries" if needs["table"] else ""),
                "known from": found["confidence"],
            }
        )
    return rows


def rivals_with_options() -> list[ResultRow]:
    """Rivals whose output word has a fixed scale, as published and with our two normalisations."""
    by_name = {row["name"]: row for row in rival_designs()}
    rows: list[ResultRow] = []
    for name, found in by_name.items():
        if f"{name}:deferred" not in by_name or found["kind"] != "rival":
            continue
        scaled, deferred = by_name[f"{name}:row-scaled"], by_name[f"{name}:deferred"]
        rows.append(
            {
                "design": f"`{name}`",
                "mass at 384": f"{found['mass_384']:.2f}",
                "at 2048": f"{found['mass_2048']:.2f}",
                "at 8192": f"{found['mass_8192']:.2f}",
                "L1, recorded": f"{found['l1_recorded']:.3f}",
                "row-scaled": f"{scaled['l1_recorded']:.3f}",
                "deferred": f"{deferred['l1_recorded']:.3f}",
            }
        )
    return rows


def rivals_in_silicon() -> list[ResultRow]:
    """Whole softmaxes that were built, the smallest first; where nobody is both cheaper and nearer."""
    rows: list[ResultRow] = []
    measured = figures.rows("rivals")
    for library, width in dict.fromkeys((r["library"], r["width"]) for r in measured if "area_um2" in r):
        found = pareto.wholes(measured, width, library)
        least = {"area": pareto.front(found, "area_um2"), "energy": pareto.front(found, "pj_per_element")}
        for row in found:
            rows.append(
                {
                    "lanes": width,
                    "design": f"`{row['name']}`",
                    "library": LIBRARIES.get(library, library),
                    "area, um2": f"{row['area_um2']:.0f}",
                    "pJ per element": f"{row['pj_per_element']:.2f}",
                    "slack, ns": f"{row['slack_ns']:.2f}",
                    "L1, recorded": f"{row['l1_recorded']:.3f}",
                    "mass, 2048": f"{row['mass_2048']:.2f}",
                    "least error for its": " and ".join(cost for cost in least if row["name"] in least[cost]),
                }
            )
    return rows


def rivals_in_models() -> list[ResultRow]:
    """Without retraining: fine-tuned models' scores and a language model's perplexity with each design."""
    columns = in_models(figures.rows)
    names = {name for column in columns.values() for name in column}
    return [
        {"attention": f"`{name}`"} | {what: _signed(found, name) for what, found in columns.items()}
        for name in sorted(names, key=lambda name: (is_rival(name), name))
    ]


def rivals_learned() -> list[ResultRow]:
    """ConSmax on STS-B: put into a fine-tuned model, and after training on with it, in points of that model."""
    swapped = figures.rows("rivals/stsb/evaluate")
    scores = {
        what: row["pearson_spearman"]
        for row in swapped
        for begins, what in {"exact": "exact softmax, fp32", PREFIX + "consmax": "ConSmax put in"}.items()
        if row["attention"].startswith(begins)
    }
    for row in figures.rows("rivals/stsb/learned-consmax"):
        what = f"ConSmax, constants and weights learned, int8, epochs: {row['epochs']:g}"
        scores[what] = row["scores"]["pearson_spearman"]
    base = next(iter(scores.values()), 0.0)
    return [
        {"attention": what, "STS-B": f"{score:.2f}", "points": f"{score - base:+.2f}"}
        for what, score in scores.items()
    ]


def rivals_by_length() -> list[ResultRow]:
    """The nearest of the rivals and the nearest of ours for each output word and row length; what needs training is left out."""
    rows: list[ResultRow] = []
    for kind in WORDS:
        found = [
            row
            for row in rival_designs()
            if row["kind"] != "reference" and not row["needs"]["retraining"] and word_of(row) == kind
        ]
        for whose in ("rival", "ours"):
            mine = [row for row in found if row["kind"] == whose]
            if mine:
                rows.append(
                    {"output word": kind, "whose": whose}
                    | {shown: _nearest(mine, column) for shown, column in LENGTHS.items()}
                )
    return rows


def _nearest(rows: list[ResultRow], column: str) -> str:
    best = min(rows, key=lambda row: float(row[column]))
    return f"`{best['name']}` {best[column]:.3f}"


CLAIMED = {"e2softmax-online": ("2.82", "3.04"), "consmax": ("2.75", "3.35, power")}
"""By design: area and energy of Softermax over its own, as its authors measured a Softermax that they had built."""


def rivals_claims() -> list[ResultRow]:
    """Papers that built a Softermax to compare with: their factors beside those to ours, in both words."""
    measured = [row for row in figures.rows("rivals") if "area_um2" in row]
    rows: list[ResultRow] = []
    for name, claimed in CLAIMED.items():
        if not any(row["name"] == name for row in measured):
            continue
        for cost, what, claim in (
            ("area_um2", "area", claimed[0]),
            ("pj_per_element", "energy", claimed[1]),
        ):
            row: ResultRow = {"design": f"`{name}`", "Softermax over it": what, "its authors": claim}
            for ours in ("paper", "lean"):
                factors = []
                for width in (16, 32):
                    found = {r["name"]: r for r in pareto.wholes(measured, width, "nangate45")}
                    own = found.get(f"{ours}-{width}+fold") or found.get(f"{ours}+fold")
                    if own and name in found:
                        factors.append(f"{own[cost] / found[name][cost]:.2f}")
                row[f"here, `{ours}+fold`, 16 and 32 lanes"] = ", ".join(factors)
            rows.append(row)
    return rows


def rivals_told() -> list[ResultRow]:
    """What the authors of each design say of it, beside what is measured here, by a paper's first design."""
    measured = figures.rows("rivals")
    models = in_models(figures.rows)
    rows: dict[str, ResultRow] = {}
    for row in rival_designs():
        if row["kind"] != "rival" or row["title"] in rows or not row["claims"]:
            continue
        built = [r for r in pareto.wholes(measured, 16, "nangate45") if r["name"] == row["name"]]
        here = [f"L1 {row['l1_recorded']:.3f}", f"mass at 2048 {row['mass_2048']:.2f}"]
        here += [f"{r['area_um2']:.0f} µm², {r['pj_per_element']:.2f} pJ" for r in built]
        here += [
            f"{what} {_signed(found, attention_of(row))}"
            for what, found in models.items()
            if attention_of(row) in found
        ]
        rows[row["title"]] = {
            "design": f"`{row['name']}`",
            "its authors": "; ".join(row["claims"]),
            "here": "; ".join(here),
        }
    return list(rows.values())


def rivals_cheaper() -> list[ResultRow]:
    """Rivals that take less area or energy than the cheapest of ours, beside ours: what they take and what they lose."""
    measured = [row for row in figures.rows("rivals") if "area_um2" in row]
    models = in_models(figures.rows)
    by_width = {width: pareto.wholes(measured, width, "nangate45") for width in (16, 32)}
    ours = {
        width: min((r for r in rows if r["kind"] == "ours"), key=lambda r: r["pj_per_element"], default=None)
        for width, rows in by_width.items()
    }
    names = {r["name"] for own in ours.values() if own for r in (own,)}
    for width, own in ours.items():
        if own:
            names |= {
                r["name"]
                for r in by_width[width]
                if r["area_um2"] < own["area_um2"] or r["pj_per_element"] < own["pj_per_element"]
            }
    names |= {"lean-row-scaled+fold"} & {r["name"] for r in measured}
    rows: list[ResultRow] = []
    for row in rival_designs():
        if row["name"] not in names:
            continue
        costs: ResultRow = {}
        for width, found in by_width.items():
            own, mine = ours[width], next((r for r in found if r["name"] == row["name"]), None)
            costs[f"area / energy over ours, {width} lanes"] = (
                f"{mine['area_um2'] / own['area_um2']:.2f} / {mine['pj_per_element'] / own['pj_per_element']:.2f}"
                if mine and own
                else ""
            )
        rows.append(
            {"design": f"`{row['name']}`"}
            | costs
            | {
                "L1, recorded": f"{row['l1_recorded']:.3f}",
                "KL, recorded": f"{row['kl_recorded']:.3f}",
                "mass at 384 / 2048 / 8192": " / ".join(f"{row[f'mass_{n}']:.2f}" for n in (384, 2048, 8192)),
            }
            | {what: _signed(found, attention_of(row)) for what, found in models.items()}
        )
    return rows


def _signed(found: dict[str, float], name: str) -> str:
    return f"{found[name]:+.2f}" if name in found else ""


def add_rivals(add: Callable[[str, str, str, str], None]) -> None:
    """Where others are nearer to the softmax: all that are, with each kind of output word that ours has, and as published with any."""
    found = [row for row in rival_designs() if row["kind"] != "reference"]
    kinds = [(kind, [row for row in found if word_of(row) == kind]) for kind in WORDS]
    published = [row for row in found if row["kind"] == "ours" or ":" not in row["name"]]
    for what, rows in [*kinds, ("any words", published)]:
        ours = min((r for r in rows if r["kind"] == "ours"), key=lambda r: r["l1_recorded"], default=None)
        if ours is None:
            continue
        nearer = [r for r in rows if r["kind"] == "rival" and r["l1_recorded"] < ours["l1_recorded"]]
        if nearer:
            nearer.sort(key=lambda r: float(r["l1_recorded"]), reverse=True)
            names = ", ".join(f"`{r['name']}`" for r in nearer)
            add(
                f"L1 to softmax on real attention, {what}: `{ours['name']}`, and nearer, {names}",
                ", ".join(f"{r['l1_recorded']:.3f}" for r in (ours, *nearer)),
                "",
                "rivals",
            )


def add_rivals_in_models(add: Callable[[str, str, str, str, str], None]) -> None:
    """Where others do better in a model without retraining than the best of ours: tasks on average, and context by context."""
    columns = in_models(figures.rows)
    tasks = [found for what, found in columns.items() if what.endswith("points")]
    shared = set.intersection(*map(set, tasks)) if tasks else set()
    points = {name: sum(found[name] for found in tasks) / len(tasks) for name in shared}
    _add_better(add, f"points over the exact softmax, average of {len(tasks)} tasks", points, 1)
    for what, found in columns.items():
        if what.startswith("perplexity"):
            where = what.removeprefix("perplexity ").removesuffix(", %")
            _add_better(add, f"% of SmolLM2's perplexity over the exact softmax's {where}", found, -1)


def _add_better(
    add: Callable[[str, str, str, str, str], None], what: str, found: dict[str, float], sign: int
) -> None:
    """The best of ours and all rivals that are better; ``sign`` is that of a gain. Exact softmaxes of int8 scores are none."""
    ours = max((name for name in found if not is_rival(name)), key=lambda n: sign * found[n], default=None)
    if ours is None:
        return
    better = [n for n in found if is_rival(n) and n != INT8 and sign * found[n] > sign * found[ours]]
    if better:
        better.sort(key=lambda n: sign * found[n])
        names = ", ".join(f"`{n.removeprefix(PREFIX)}`" for n in better)
        values = ", ".join(_signed(found, n) for n in (ours, *better))
        add(
            f"Without retraining, {what}: `{ours}`, and better, {names}",
            values,
            "",
            "rivals",
            "rivals.md#in-models",
        )


def add_built_rivals(add: Callable[[str, str, str, str], None]) -> None:
    """Where others are cheaper than the cheapest of ours, and who of ours is beaten in area, energy and error at once."""
    measured = figures.rows("rivals")
    for library, width in dict.fromkeys((r["library"], r["width"]) for r in measured if "area_um2" in r):
        found = pareto.wholes(measured, width, library)
        where = f"whole softmax, {width} lanes, {LIBRARIES.get(library, library)}"
        for what, cost, form in (
            ("Area, µm²", "area_um2", ".0f"),
            ("pJ per element", "pj_per_element", ".2f"),
        ):
            ours = min((r for r in found if r["kind"] == "ours"), key=lambda r: r[cost], default=None)
            if ours is None:
                continue
            less = [r for r in found if r["kind"] == "rival" and r[cost] < ours[cost]]
            if less:
                less.sort(key=lambda r: float(r[cost]), reverse=True)
                names = ", ".join(f"`{r['name']}`" for r in less)
                add(
                    f"{what}, {where}: `{ours['name']}`, and less, {names}",
                    ", ".join(f"{r[cost]:{form}}" for r in (ours, *less)),
                    "",
                    "rivals",
                )
        for ours in (row for row in found if row["kind"] == "ours"):
            better = pareto.beaten_by(ours, found, ("area_um2", "pj_per_element"))
            better = [
                name for name in better if any(r["name"] == name and r["kind"] == "rival" for r in found)
            ]
            if better:
                names = ", ".join(f"`{name}`" for name in better)
                add(f"Less area, energy and error than `{ours['name']}`, {where}", names, "", "rivals")
