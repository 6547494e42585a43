"""Figure 4: the hardware units, bit for bit."""

from __future__ import annotations

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import ReportTable, Section
from softermax.report.sources import Sources


def section(sources: Sources) -> Section:
    said, result, gates = paper()["architecture"], sources.result("rtl"), sources.result("units")
    bodies = result["bodies"] if result else []
    comparisons = [
        verdict.exact(f"{b['body']}, {b['spec']}", b["words"], b["differ"], f"{b['cases']} cases")
        for b in bodies
    ]
    if result is None:
        comparisons.append(verdict.exact("RTL against the golden model", None, None))
    if gates is not None:
        note = f"{gates['netlists']} netlists, those of the baseline too; one that differs would end the stage units"
        name = "mapped netlists, gate by gate, with and without delays"
        comparisons.append(verdict.exact(name, gates["words_equal"], 0, note))
    compared = ReportTable(
        "Words compared",
        ["body", "spec", "cases", "words", "differ"],
        [[b["body"], b["spec"], b["cases"], b["words"], b["differ"]] for b in bodies],
        "All pairs and single scores, equal and extreme rows, masks, saturation, random rows; with stalls.",
    )
    return Section(
        "architecture", said["where"], "The hardware units, bit for bit", said["claim"],
        stages=["rtl", "units"],
        origins=sources.origin("rtl"),
        comparisons=comparisons,
        tables=[compared] if bodies else [],
        missing=sources.missing("rtl"),
    )  # fmt: skip
