"""The sections about hardware: RTL, set-up, units, processing element, sequence sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Cell, Chart, Origin, Section, Series, Table
from softermax.report.sources import Sources

_UNITS = {"unnormed": "Unnormed Softmax unit", "normalization": "Normalization unit"}
_LIBRARIES = {"nangate45": "45 nm (NanGate)", "asap7": "7 nm (ASAP7)"}
_SCHEMES = {
    "fixed": "fixed output",
    "row-scaled": "row-scaled output (ours)",
    "deferred": "deferred normalisation (ours)",
}
_COMPONENTS = 8
"""Parts of a PE that the chart names; the smaller ones are put together."""

Rows = Sequence[Mapping[str, Any]]


def architecture(sources: Sources) -> Section:
    said, result = paper()["architecture"], sources.result("rtl")
    comparisons = []
    tables = []
    if result is None:
        comparisons.append(verdict.exact("RTL against the golden model", None, None))
    else:
        for body in result["bodies"]:
            name = f"{body['body']}, {body['spec']}"
            comparisons.append(verdict.exact(name, body["words"], body["differ"], f"{body['cases']} cases"))
        tables.append(
            Table(
                "Words compared",
                ["body", "spec", "cases", "words", "differ"],
                [[b["body"], b["spec"], b["cases"], b["words"], b["differ"]] for b in result["bodies"]],
                "All pairs and single scores, equal and extreme rows, masks, saturation, random rows; with stalls.",
            )
        )
    gates = sources.result("units")
    if gates is not None:
        comparisons.append(
            verdict.exact(
                "mapped netlists, gate by gate, with and without delays",
                gates["words_equal"],
                0,
                f"{gates['netlists']} netlists, those of the baseline too; one that differs would end the stage units",
            )
        )
    return Section(
        "architecture", said["where"], "The hardware units, bit for bit", said["claim"], ["rtl", "units"],
        sources.origin("rtl"), comparisons, tables, [], [], sources.missing("rtl"),
    )  # fmt: skip


def setup(sources: Sources) -> Section:
    """What each side used. Sizes are compared, tools can only be named."""
    said = paper()["setup"]
    theirs = said["rows"]
    tools = {
        "description": ("hardware description", "Amaranth (Python), Verilog from Yosys"),
        "simulation": ("simulator", "Verilator for RTL; our own gate-level simulator with delays"),
        "synthesis": ("logic synthesis", "Yosys and ABC (pyosys)"),
        "power": ("power analysis", "our own, from Liberty tables and every toggle"),
        "technology": ("technology", "NanGate 45 nm, 1.1 V; ASAP7 where its files are given"),
    }
    rows: list[list[Cell]] = [[title, theirs[name], ours] for name, (title, ours) in tools.items()]
    comparisons, missing = [], []
    try:
        from softermax.rtl.pe.config import ACCUMULATOR_BITS, CONFIGS, OPERAND_BITS
    except ImportError as error:
        missing.append(f"The sizes of our processing element: {error}")
    else:
        comparisons.append(verdict.equal("weights and activations, bits", theirs["operands"], OPERAND_BITS))
        comparisons.append(verdict.equal("accumulation, bits", theirs["accumulation"], ACCUMULATOR_BITS))
        for width, config in CONFIGS.items():
            sizes = {
                "vector": config.vector_size,
                "lanes": config.lanes,
                "input buffer": config.input_bytes // 1024,
                "weight buffer": config.weight_bytes // 1024,
                "collector": config.collector_bytes // 1024,
            }
            printed = [theirs[name][str(width)] for name in sizes]
            comparisons.append(
                verdict.equal(
                    f"{width} wide: vector, lanes, input, weight and collector KB",
                    printed,
                    list(sizes.values()),
                )
            )
    return Section(
        "setup", said["where"], said["title"], said["claim"], [], [], comparisons,
        [Table("Tools and technology", ["", "paper", "here"], rows)], [],
        ["All of ours comes from the package registries; nothing commercial is needed."], missing,
    )  # fmt: skip


def units(sources: Sources) -> Section:
    said, result = paper()["units"], sources.result("units")
    rows, origins = _with_stored(
        sources, "units", "silicon", result, ("unit", "width", "library", "preset", "baseline")
    )
    comparisons = []
    for unit, ratios in said["ratios"].items():
        like = [r for r in rows if r["unit"] == unit and _is_paper(r)]
        for measure, printed in ratios.items():
            for row in like:
                comparisons.append(
                    verdict.ratio(
                        f"{_UNITS[unit]}, {measure}, {_LIBRARIES.get(row['library'], row['library'])}, "
                        f"{row['width']} wide",
                        printed,
                        row[f"{measure}_ratio"],
                        row["measured"],
                    )
                )
            if not like:
                comparisons.append(verdict.ratio(f"{_UNITS[unit]}, {measure}", printed, None))
    charts = []
    for measure in ("area", "energy"):
        like = [r for r in rows if _is_paper(r)]
        places = list(dict.fromkeys(f"{r['library']}, {r['width']}" for r in like))
        at = {(f"{r['library']}, {r['width']}", r["unit"]): r[f"{measure}_ratio"] for r in like}
        if like:
            charts.append(
                Chart(
                    f"units-{measure}", f"{measure.capitalize()} of the units, baseline = 1", "bars",
                    list(_UNITS.values()),
                    [Series("paper, 7 nm", [said["ratios"][unit][measure] for unit in _UNITS])]
                    + [Series(place, [at.get((place, unit)) for unit in _UNITS]) for place in places],
                    "", f"{measure} ratio",
                )
            )  # fmt: skip
    tables = [
        Table(
            "Units against the FP16 baseline",
            ["unit", "wide", "library", "spec", "baseline", "ns", "area, µm²", "area ratio", "pJ a score", "energy ratio",
             "measured"],
            [
                [r["unit"], r["width"], r["library"], r["preset"], r["baseline"], r["clock_ns"], r["area_um2"],
                 r["area_ratio"], r["energy_pj_per_element"], r["energy_ratio"], r["measured"]]
                for r in rows
            ],
            "Gate level, with glitches, rows of 384 attention scores of MiniLM. Two passes are the paper's baseline; "
            "online is a stronger one.",
        )
    ]  # fmt: skip
    notes = []
    if result is not None and result["late"]:
        notes.append("These designs miss the clock: " + "; ".join(result["late"]) + ".")
    if result is not None and result["note"]:
        notes.append(f"Gaussian scores only: {result['note']}.")
    return Section(
        "units", said["where"], said["title"], said["claim"], ["units"], origins, comparisons,
        tables if rows else [], charts, notes, sources.missing("units"),
    )  # fmt: skip


def _is_paper(row: Mapping[str, Any]) -> bool:
    preset = "paper-32" if row["width"] == 32 else "paper"
    return (row["baseline"], row["preset"]) == ("two-pass", preset)


def _with_stored(
    sources: Sources, stage: str, name: str, result: Mapping[str, Any] | None, same: Sequence[str]
) -> tuple[list[dict[str, Any]], list[Origin]]:
    """This run's rows, then stored ones of what it has not measured; each says when it was measured."""
    rows: list[dict[str, Any]] = []
    origins = sources.origin(stage)
    if result is not None:
        rows = [
            dict(row) | {"measured": origins[0].what.replace("measured in ", "")} for row in result["rows"]
        ]
    kept = None if sources.is_full(stage) else sources.stored(name)
    if kept is not None:
        known = {tuple(row[key] for key in same) for row in rows}
        label = f"stored, {kept.date}"
        more = [r for r in kept.values if tuple(r[key] for key in same) not in known]
        rows += [dict(row) | {"measured": label} for row in more]
        if more:
            origins = [*origins, sources.stored_origin(kept)]
    return rows, origins


def _pe_rows(sources: Sources) -> tuple[list[dict[str, Any]], list[Origin]]:
    rows, origins = _with_stored(
        sources, "pe", "pe", sources.result("pe"), ("width", "sequence", "library", "scheme", "baseline")
    )
    for row in rows:
        if "baseline_energy_pj" not in row:
            row["baseline_energy_pj"] = sum(p["baseline_energy_pj"] for p in row["breakdown"].values())
    return rows, origins


def pe(sources: Sources) -> Section:
    said = paper()["pe"]
    rows, origins = _pe_rows(sources)
    rows = [r for r in rows if r["sequence"] == said["sequence"]]
    comparisons = []
    like = [r for r in rows if r["baseline"] == "two-pass" and r["scheme"] in ("fixed", "deferred")]
    like.sort(key=lambda r: (r["scheme"] != "fixed", r["library"] != "nangate45", -r["width"]))
    for row in like:
        for measure, printed in said["ratios"].items():
            comparisons.append(
                verdict.ratio(
                    f"PE, {measure}, {_LIBRARIES.get(row['library'], row['library'])}, {row['width']} wide, "
                    f"{_SCHEMES[row['scheme']]}",
                    printed,
                    row[f"{measure}_ratio"],
                    row["measured"] + ("" if row["width"] == said["width"] else "; the paper's is 32 wide"),
                )
            )
    for measure, printed in said["ratios"].items():
        if not any(r["width"] == said["width"] for r in like):
            why = "softermax reproduce --full --stage pe measures it"
            comparisons.append(verdict.ratio(f"PE, {measure}, 32 wide, fixed output", printed, None, why))
    tables = [
        Table(
            f"Q·Kᵀ and softmax of one head, sequence {said['sequence']}",
            ["wide", "library", "scheme", "baseline", "area ratio", "energy ratio", "µJ", "baseline µJ", "measured"],
            [
                [r["width"], r["library"], r["scheme"], r["baseline"], r["area_ratio"], r["energy_ratio"],
                 round(r["energy_pj"] / 1e6, 3), round(r["baseline_energy_pj"] / 1e6, 3), r["measured"]]
                for r in rows
            ],
        )
    ]  # fmt: skip
    notes = [
        "Gates are simulated, memories are modelled, control and wires between the parts are left out of both designs.",
        *_common(rows),
    ]
    result = sources.result("pe")
    return Section(
        "pe", said["where"], said["title"], said["claim"], ["pe"], origins, comparisons, tables if rows else [],
        _components(rows), [*notes, *(result["notes"] if result else [])], sources.missing("pe"),
    )  # fmt: skip


def _common(rows: Rows) -> list[str]:
    """How much of the baseline's energy no softmax can save, for it is spent in both designs alike."""
    for row in rows:
        if row["scheme"] == "fixed" and row["baseline"] == "two-pass" and "breakdown" in row:
            parts = row["breakdown"].values()
            alike = sum(p["baseline_energy_pj"] for p in parts if p["energy_pj"] == p["baseline_energy_pj"])
            share = alike / sum(p["baseline_energy_pj"] for p in parts)
            return [
                f"What both designs spend alike (MACs, their buffers, loading operands) is by itself {share:.2f} of the "
                f"baseline's energy, {row['width']} wide at {_LIBRARIES.get(row['library'], row['library'])}."
            ]
    return []


def _components(rows: Rows) -> list[Chart]:
    """Where a PE's energy goes: ours beside the baseline, the widest measured."""
    like = [r for r in rows if r["baseline"] == "two-pass" and "breakdown" in r]
    if not like:
        return []
    width, library = max(
        ((r["width"], r["library"]) for r in like), key=lambda at: (at[0], at[1] == "nangate45")
    )
    chosen = {r["scheme"]: r for r in like if r["width"] == width and r["library"] == library}
    if "fixed" not in chosen:
        return []
    designs: dict[str, dict[str, float]] = {
        "baseline": {k: v["baseline_energy_pj"] / 1e6 for k, v in chosen["fixed"]["breakdown"].items()}
    }
    for scheme, row in chosen.items():
        designs[scheme] = {k: v["energy_pj"] / 1e6 for k, v in row["breakdown"].items()}
    parts = list(dict.fromkeys(part for design in designs.values() for part in design))
    parts.sort(key=lambda part: -max(design.get(part, 0.0) for design in designs.values()))
    named, rest = parts[: _COMPONENTS - 1], parts[_COMPONENTS - 1 :]
    series = [Series(part, [design.get(part, 0.0) for design in designs.values()]) for part in named]
    if rest:
        series.append(Series("other", [sum(d.get(part, 0.0) for part in rest) for d in designs.values()]))
    return [
        Chart(
            "pe-energy", f"Energy of one head by component, {width} wide, {library}", "stacked", list(designs), series,
            "", "µJ",
        )
    ]  # fmt: skip


def sweep(sources: Sources) -> Section:
    said = paper()["sweep"]
    rows, origins = _pe_rows(sources)
    rows = [r for r in rows if r["baseline"] == "two-pass"]
    comparisons, charts, table = [], [], []
    for library, width in dict.fromkeys((r["library"], r["width"]) for r in rows):
        like = [r for r in rows if (r["library"], r["width"]) == (library, width)]
        lengths = sorted({r["sequence"] for r in like})
        if len(lengths) < 2:
            continue
        at = {(r["scheme"], r["sequence"]): r for r in like}
        schemes = list(dict.fromkeys(r["scheme"] for r in like))
        theirs = [at["fixed", n]["baseline_energy_pj"] / 1e6 for n in lengths]
        ours = {s: [at[s, n]["energy_pj"] / 1e6 for n in lengths] for s in schemes}
        place = f"{width} wide, {_LIBRARIES.get(library, library)}"
        comparisons.append(
            verdict.slope(
                f"{place}, {lengths[0]} to {lengths[-1]} tokens",
                ours["fixed"],
                theirs,
                "; ".join(dict.fromkeys(at["fixed", n]["measured"] for n in lengths)),
            )
        )
        charts.append(
            Chart(
                f"sweep-{library}-{width}", f"Energy of Q·Kᵀ and softmax of one head, {place}", "lines", lengths,
                [Series("FP16, two passes", theirs)]
                + [Series(f"Softermax, {_SCHEMES[s]}", ours[s]) for s in schemes if s != "row-scaled"],
                "tokens", "µJ", log=True,
            )
        )  # fmt: skip
        table += [
            [width, library, n, theirs[i], *(ours.get(s, [None] * len(lengths))[i] for s in _SCHEMES)]
            for i, n in enumerate(lengths)
        ]
    missing = sources.missing("pe")
    for width in (16, 32):
        if not any(c.name.startswith(f"{width} wide") for c in comparisons):
            why = "" if missing else "softermax reproduce --full --stage pe measures it"
            comparisons.append(verdict.slope(f"{width} wide", [], [], why))
    tables = [Table("µJ a head", ["wide", "library", "tokens", "FP16, two passes", *_SCHEMES], table)]
    return Section(
        "sweep", said["where"], said["title"], said["claim"], ["pe"], origins, comparisons,
        tables if table else [], charts, [said["note"]], missing,
    )  # fmt: skip
