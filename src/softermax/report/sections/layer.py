"""Figure 2: Softermax in the layers of a pretrained Transformer, without retraining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softermax.paper import figures as paper
from softermax.report.document import Chart, ReportTable, Section, Series
from softermax.report.sources import Sources


def section(sources: Sources) -> Section:
    said, result = paper()["layer"], sources.result("drop-in")
    return Section(
        "layer", said["where"], "Drop-in: Softermax in a pretrained Transformer", said["claim"],
        stages=["drop-in"],
        origins=sources.origin("drop-in"),
        tables=[_replaced(result)] if result else [],
        charts=[_distances(result)] if result else [],
        notes=[
            "The paper fine-tunes after the change of base and gives no figure without. Folding log2(e) into the "
            "attention scale (+fold) makes a pretrained model keep its answers; longer rows need the row-scaled output too."
        ],
        missing=sources.missing("drop-in"),
    )  # fmt: skip


def _replaced(result: Mapping[str, Any]) -> ReportTable:
    model = "MiniLM" if result["model"] == "minilm" else result["model"]
    return ReportTable(
        f"The pretrained {model}, exact softmax replaced",
        ["text", "texts", "softmax by", "cosine to exact, mean", "lowest", "same nearest neighbour, %",
         "attention moved, %", "row sum"],
        [
            [
                row["text"], row["rows"], row["spec"], round(row["cosine"], 4), round(row["cosine_low"], 4),
                None if row["same_neighbour"] is None else round(100 * row["same_neighbour"], 1),
                round(100 * row["attention_moved"], 2), round(row["row_sum"], 4),
            ]
            for row in result["rows"]
        ],
        f"Text: {result['source']}. Attention moved: half the sum of the differences to the exact "
        "probabilities of a row, for the same scores, mean over all rows, heads and layers.",
    )  # fmt: skip


def _distances(result: Mapping[str, Any]) -> Chart:
    kinds = list(dict.fromkeys(row["text"] for row in result["rows"]))
    specs = list(dict.fromkeys(row["spec"] for row in result["rows"]))
    at = {(row["text"], row["spec"]): 1 - row["cosine"] for row in result["rows"]}
    return Chart(
        "drop-in",
        "How far embeddings move when Softermax replaces softmax",
        "bars",
        specs,
        [Series(kind, [at[kind, spec] for spec in specs]) for kind in kinds],
        "",
        "distance to exact, 1 − cosine",
    )
