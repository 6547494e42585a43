"""Tables of what searches found."""

from __future__ import annotations

import figures
from figures import ResultRow

from softermax.fixedpoint import QFormat
from softermax.results import Envelope
from softermax.spec import PRESETS

SEARCHES = ("minilm-128", "minilm-384", "mpnet-384", "smollm2-2048")


def presets() -> list[ResultRow]:
    """Presets with the fold, and the cheapest point of each search that is as accurate."""
    table: list[ResultRow] = []
    for name in SEARCHES:
        rows = figures.rows(f"search-{name}")
        for preset in ("paper+fold", "lean+fold", "row-scaled+fold", "lean-row-scaled+fold"):
            own = next((row for row in rows if row["name"] == preset), None)
            if own is None:
                continue
            better = [
                row
                for row in rows
                if row["l1"] <= own["l1"] and row["area"] <= own["area"] and row["energy"] <= own["energy"]
            ]
            best = min(better, key=lambda row: row["area"] * row["energy"])
            table.append(
                {
                    "model, length": name.replace("-", ", "),
                    "preset": f"`{preset}`",
                    "area / energy / L1": _three(own),
                    "best that dominates it": "itself" if best is own else f"`{best['name']}`",
                    "its area / energy / L1": "" if best is own else _three(best),
                    "its words": "" if best is own else _words(best["spec"]),
                }
            )
    return table


def model() -> list[ResultRow]:
    """How far off modelled silicon is, by set of specs."""
    sets = {"held out": "held out", "seen": "seen", "cross validation": "in turn"}
    return [
        {
            "specs": f"{row['specs']} {sets[row['set']]}, {row['kind']}",
            "quantity": row["quantity"],
            "within 10 %": f"{row['close']:.0%}",
            "median": f"{row['median']:.1%}",
            "nine of ten below": f"{row['nine_tenths']:.1%}",
            "worst": f"{row['largest']:.1%}",
        }
        for name in sets
        for row in figures.rows("search-model")
        if row["set"] == name
    ]


TABLE_1 = {
    "input": "input",
    "unnormed": "unnormed",
    "powsum": "PowSum",
    "reciprocal": "reciprocal",
    "output": "output",
}
"""Words of the paper's Table I that a search draws: the max has the input's integer bits."""


def fronts() -> list[ResultRow]:
    """Bits of each of Table I's words on the fronts, and how many of their points are built otherwise."""
    found = {
        name.replace("-", ", "): [row for row in figures.rows(f"search-{name}") if row["front"]]
        for name in SEARCHES
    }
    if not all(found.values()):
        return []
    table: list[ResultRow] = []
    for field, title in TABLE_1.items():
        # Of the unnormed word and the reciprocal the integer bit is not drawn.
        for part in ("fraction",) if field in ("unnormed", "reciprocal") else ("integer", "fraction"):
            own = getattr(getattr(PRESETS["paper"], field), part)
            row: ResultRow = {"bits": f"{title}, {part}", "Table I": str(own)}
            for name, points in found.items():
                bits = sorted(getattr(QFormat.parse(point["spec"][field]), part) for point in points)
                row[name] = f"{bits[len(bits) // 2]} ({bits[0]} to {bits[-1]})"
            table.append(row)
    for title, field, value in (
        ("row products", "normalization", "row-products"),
        ("row-scaled output", "output_mode", "row-scaled"),
    ):
        row = {"bits": title, "Table I": "no"}
        for name, points in found.items():
            row[name] = f"{sum(p['spec'][field] == value for p in points)} of {len(points)}"
        table.append(row)
    return table


def words() -> list[ResultRow]:
    """How short each of the paper's words can be by itself."""
    return [
        {
            "what": row["dimension"].replace("_", " "),
            "Table I": row["paper"],
            "needed": row["needed"],
            "area saved": f"{row['area_saved']:.1%}",
            "energy saved": f"{row['energy_saved']:.1%}",
        }
        for row in figures.rows("search-words")
    ]


def _three(row: ResultRow) -> str:
    return f"{row['area']:,.0f} / {row['energy']:.2f} / {row['l1']:.3f}"


def _words(spec: ResultRow) -> str:
    shown = f"input {spec['input']}, unnormed {spec['unnormed']}, PowSum {spec['powsum']}, 1/x {spec['reciprocal']}, output {spec['output']}"
    products = f", products {spec['product']}" if spec["normalization"] == "row-products" else ""
    tables = f", {spec['pow2_segments']} and {spec['reciprocal_segments']} segments"
    return shown + products + tables + f", {spec['output_mode']}"


def finalists() -> list[ResultRow]:
    """What was measured of the front of MiniLM at 384, beside what was predicted."""
    rows = [row for row in figures.rows("search-minilm-384") if "measured_area" in row]
    papers = [row for row in rows if row["name"] in ("paper", "paper+fold")]

    def beats(row: ResultRow, paper: ResultRow) -> bool:
        return all(row[key] < paper[key] for key in ("measured_area", "measured_energy", "l1"))

    return [
        {
            "spec": f"`{row['name']}`",
            "area, measured": f"{row['measured_area']:,.0f}",
            "predicted": f"{row['area'] / row['measured_area'] - 1:+.1%}",
            "energy, measured": f"{row['measured_energy']:.3f}",
            "predicted ": f"{row['energy'] / row['measured_energy'] - 1:+.1%}",
            "slack, ns": f"{row['measured_slack_ns']:.2f}",
            "L1": f"{row['l1']:.3f}",
            "dominates": ", ".join(f"`{paper['name']}`" for paper in papers if beats(row, paper)),
        }
        for row in rows
    ]


def rivals() -> list[ResultRow]:
    """Rivals on the axes of MiniLM at 384, each beside the front's point of least area that is no worse in any."""
    path = figures.RESULTS / "search-minilm-384.json"
    if not path.is_file():
        return []
    found = Envelope.load(path)
    # Rivals' energies are of more rows: presets that were measured in both ways tell how much that is at most.
    longer = {
        row["name"]: row["pj_per_element"]
        for row in figures.rows("rivals-silicon")
        if (row["unit"], row["width"], row["library"]) == ("both units", 16, "nangate45")
    }
    more = [
        longer[row["name"]] / row["measured_energy"]
        for row in found.rows
        if row["name"] in longer and "measured_energy" in row
    ]
    factor = {"area": 1.0, "energy": max(more, default=1.0), "l1": 1.0}
    table: list[ResultRow] = []
    for rival in sorted(found.notes.get("rivals", []), key=lambda row: float(row["area"])):
        better = [
            row for row in found.rows if all(_cost(row, key) * factor[key] <= rival[key] for key in factor)
        ]
        best = min(better, key=lambda row: _cost(row, "area"), default=None)
        table.append(
            {
                "rival": rival["name"],
                "area / energy / L1": _three(rival),
                "slack, ns": f"{rival['measured_slack_ns']:.2f}",
                "a spec that dominates it": "none found" if best is None else f"`{best['name']}`",
                "its area / energy / L1": ""
                if best is None
                else _three({key: _cost(best, key) for key in factor}),
            }
        )
    return table


def _cost(row: ResultRow, key: str) -> float:
    """As it was measured, where it was."""
    return float(row.get(f"measured_{key}", row[key]))


def perplexities() -> list[ResultRow]:
    """Finalists of SmolLM2 at 2048, in the model."""
    return [
        {
            "spec": f"`{row['name']}`",
            "area, measured": f"{row['measured_area']:,.0f}",
            "predicted": f"{row['area'] / row['measured_area'] - 1:+.1%}",
            "energy, measured": f"{row['measured_energy']:.3f}",
            "predicted ": f"{row['energy'] / row['measured_energy'] - 1:+.1%}",
            "slack, ns": f"{row['measured_slack_ns']:.2f}",
            "L1": f"{row['l1']:.3f}",
            "perplexity": f"{row['perplexity']:.2f}",
            "over exact": f"{row['perplexity_lost']:+.1%}",
        }
        for row in figures.rows("search-smollm2-2048")
        if row.get("perplexity") is not None
    ]
