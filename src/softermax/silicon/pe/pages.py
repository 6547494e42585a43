"""What is said of a measured processing element: sections of a page, filled with their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from softermax.paper import figures as paper_figures
from softermax.rtl.pe.config import CONFIGS
from softermax.silicon.pages import PageSection, paper_ratios, ranged
from softermax.silicon.pe.account import (
    AS_COUNTED,
    SHARED,
    PEVariant,
    differences,
    memory_sensitivity,
    row_states,
)
from softermax.silicon.pe.architecture import Architecture
from softermax.silicon.pe.counts import HEAD_SIZE
from softermax.silicon.pe.measurement import DEFERRED, PEFigures
from softermax.silicon.pe.sweep import energy_lines
from softermax.silicon.pe.table import ON_READ, SEQUENCE, TWO_PASSES, PERow
from softermax.silicon.units import BASELINE_LABELS, NORMALIZATION, UNNORMED

TWO_PASS = "two-pass"
_BUFFERS = ("input buffer", "weight buffer", "collector")
_SHOWN_BY_COMPONENT = ("fixed", "lean", DEFERRED)
_TRAFFIC = tuple(f"global buffer, {name}" for name in ("scores", "exponentials", "probabilities", "weights"))


def table_rows(rows: Sequence[PERow]) -> list[dict[str, object]]:
    """The rows without their components, beside the paper's where it has such a one."""
    paper = paper_figures()["pe"]
    shown = []
    for row in rows:
        values = row.to_json()
        del values["breakdown"], values["energy_pj"]
        values["baseline"] = BASELINE_LABELS[row.baseline]
        values["µJ per head"] = round(row.ours.energy_pj * 1e-6, 4)
        is_papers = (row.width, row.sequence) == (paper["width"], paper["sequence"])
        is_papers = is_papers and row.baseline in TWO_PASSES
        for name, ratio in paper["ratios"].items():
            values[f"paper_{name}_ratio"] = ratio if is_papers else None
        shown.append(values)
    return shown


def _measured_on(figures: Sequence[PEFigures], head_size: int = HEAD_SIZE) -> str:
    """What holds for all of a page's figures."""
    libraries = ", ".join(dict.fromkeys(f"{one.library} at {one.clock_ns:g} ns" for one in figures))
    operands = (
        "operands and scores of MiniLM, two of whose heads of 32 stand side by side for one of 64"
        if figures[0].operands == "attention"
        else f"{figures[0].operands} operands and {figures[0].stimulus} scores"
    )
    late = [f"{one.library}, {one.width} wide: {name}" for one in figures for name in one.late()]
    notes = "".join(f"\n\n{note}." for note in dict.fromkeys(one.note for one in figures) if note)
    clock = f"These miss the clock: {'; '.join(late)}." if late else "All netlists meet the clock."
    return (
        f"One head of {head_size} elements in {libraries}; {operands}. Netlists are simulated with glitches, memories are "
        f"modelled (`softermax.silicon.memory`); `docs/processing-element.md` says what is counted. {clock}{notes}"
    )


def table_sections(figures: Sequence[PEFigures], rows: Sequence[PERow]) -> list[PageSection]:
    """The page of ``softermax silicon --pe``."""
    paper = paper_figures()["pe"]
    said = f"The paper, {paper['width']} wide against two passes in half precision at 7 nm: " + (
        f"{paper['ratios']['area']:.2f} and {paper['ratios']['energy']:.2f}. Its baseline is of DesignWare components, so that "
        "we take it to be of the second kind here, the generic one."
    )
    sections = [PageSection(f"Sequence {SEQUENCE}", f"{_measured_on(figures)} {said}", table_rows(rows))]
    of_two_passes = [row for row in rows if row.baseline == TWO_PASS]
    sections += _beside_the_paper(of_two_passes)
    shown = of_two_passes or rows
    sections += [_components(row) for row in shown if row.scheme in _SHOWN_BY_COMPONENT]
    state: list[dict[str, object]] = [
        {"width": width, "design": design, "bits per row in the PE, at any length": bits}
        for width in dict.fromkeys(one.width for one in figures)
        for design, bits in row_states(width).items()
    ]
    sections.append(PageSection("State of an open row", rows=state))
    return sections


def own_sections(own: Architecture, figures: Sequence[PEFigures], rows: Sequence[PERow]) -> list[PageSection]:
    """The page of ``softermax silicon --pe FILE``."""
    c = own.config
    text = (
        f"{c.lanes} lanes of {c.vector_size} elements; buffers of {c.input_bytes}, {c.weight_bytes} and {c.collector_bytes} bytes for queries, "
        f"keys and accumulators; {own.normalization_shared_by} PEs to a Normalization unit; rows normalised {own.normalize}; our PE keeps {own.keeps}, "
        f"two passes find the max by {own.baseline_max}. {_measured_on(figures, own.head_size)}"
    )
    shown = table_rows(rows)
    for row in shown:
        del row["paper_area_ratio"], row["paper_energy_ratio"]
    sections = [PageSection(f"{own.name}, sequence {own.sequence}", text, shown)]
    best = [row for row in rows if row.baseline == rows[0].baseline]
    return sections + [
        _components(row) for row in best if row.scheme.removesuffix(ON_READ) in _SHOWN_BY_COMPONENT
    ]


def what_if_sections(figures: Sequence[PEFigures], found: Sequence[PEVariant]) -> list[PageSection]:
    """What the ratios against two passes would be if something were otherwise."""
    sections = []
    for library, width in dict.fromkeys((one.library, one.width) for one in found):
        like = [one for one in found if (one.library, one.width) == (library, width)]
        said = []
        for scheme in dict.fromkeys(one.scheme for one in like):
            own = [one for one in like if one.scheme == scheme]
            if len(own) > 1:
                counted = next(one for one in own if one.what == AS_COUNTED)
                said.append(
                    f"{scheme}: area {counted.area_ratio:.3f} ({ranged((one.area_ratio for one in own), '.3f')}), "
                    f"energy {counted.energy_ratio:.3f} ({ranged((one.energy_ratio for one in own), '.3f')})"
                )
        rows = [
            {name: value for name, value in asdict(one).items() if name not in ("library", "width")}
            for one in like
        ]
        text = f"As counted, and the range with any of the changes. {'; '.join(said)}."
        sections.append(
            PageSection(f"What if, {library}, {width} wide, against {BASELINE_LABELS[TWO_PASS]}", text, rows)
        )
    memories = [asdict(entry) for entry in memory_sensitivity(figures)]
    sections.append(
        PageSection("Sensitivity to the memory model", f"Against {BASELINE_LABELS[TWO_PASS]}.", memories)
    )
    return sections


def _components(row: PERow) -> PageSection:
    parts = [
        {
            "component": name,
            "mm²": round(mine.area_um2 * 1e-6, 5),
            "µJ": round(mine.energy_pj * 1e-6, 4),
            "baseline mm²": round(other.area_um2 * 1e-6, 5),
            "baseline µJ": round(other.energy_pj * 1e-6, 4),
            "% of baseline area": part.area_percent,
            "baseline's own": part.baseline_area_percent,
            "% of baseline energy": part.energy_percent,
            "its own": part.baseline_energy_percent,
        }
        for (name, (mine, other)), part in zip(row.pairs().items(), differences(row), strict=True)
    ]
    where = f"{row.library}, {row.width} wide, sequence {row.sequence}"
    title = f"Components, {where}, {row.scheme} against {BASELINE_LABELS[row.baseline]}"
    return PageSection(title, rows=parts)


def _beside_the_paper(rows: Sequence[PERow]) -> list[PageSection]:
    """Where the ratios of the paper's own PE come from, in every library."""
    paper = paper_figures()["pe"]
    sections = []
    for library in dict.fromkeys(row.library for row in rows):
        own = {
            row.scheme: row
            for row in rows
            if (row.library, row.width, row.sequence) == (library, paper["width"], paper["sequence"])
        }
        if {"fixed", DEFERRED} <= own.keys():
            fixed, deferred = own["fixed"], own[DEFERRED]
            text = f"{_area_said(fixed, deferred)}\n\n{_energy_said(fixed, deferred)}\n\n{_DEFERRED_SAID}"
            title = f"Beside the paper, {library}, {paper['width']} wide, sequence {paper['sequence']}"
            sections.append(PageSection(title, text))
    return sections


def _area_said(fixed: PERow, deferred: PERow) -> str:
    paper = paper_figures()["pe"]["ratios"]["area"]
    theirs = fixed.theirs.area_um2
    share = {name: 100 * other.area_um2 / theirs for name, (_, other) in fixed.pairs().items()}
    saved = {name: share[name] - 100 * mine.area_um2 / theirs for name, (mine, _) in fixed.pairs().items()}
    units = share[UNNORMED] + share[NORMALIZATION]
    # What the paper's own unit ratios would save of ours, in parts of the units' share.
    left = sum(
        share[unit] / units * (paper_ratios(unit)["area"] or 0.0) for unit in (UNNORMED, NORMALIZATION)
    )
    parts = fixed.ours.components
    without = (
        1 - (theirs - fixed.ours.area_um2 + parts[UNNORMED].area_um2 + parts[NORMALIZATION].area_um2) / theirs
    )
    ratio = {name: 1 - saved[name] / share[name] for name in (UNNORMED, NORMALIZATION)}
    return (
        f"**Area: {fixed.area_ratio:.4f} (deferred {deferred.area_ratio:.4f}); the paper has {paper:.2f}.** "
        "The paper gives no components of its PE; what follows is where ours come from.\n\n"
        f"- Memories are {sum(share[name] for name in _BUFFERS):.0f} % of the baseline's PE and MACs {share['MACs']:.0f} %, and "
        f"both are the same in ours. With the paper's own unit ratios {100 * (1 - paper):.0f} % of the PE can only be saved if the "
        f"baseline's softmax units are {100 * (1 - paper) / (1 - left):.0f} % of it. Ours are {units:.1f} %: the Unnormed unit "
        f"{share[UNNORMED]:.1f} %, and a quarter of a Normalization unit {share[NORMALIZATION]:.1f} %. They are built for each "
        "other; the paper's baseline is made of components of a library.\n"
        f"- Unnormed Softmax shrinks to {ratio[UNNORMED]:.2f} and Normalization, which makes its numerators of scores here, to "
        f"{ratio[NORMALIZATION]:.2f}: together they save {saved[UNNORMED] + saved[NORMALIZATION]:.1f} % of the PE. Requantisation "
        f"lanes save {saved['requantisation']:.1f} %; the rows' state costs {-saved['row state']:.2f} %.\n"
        f"- A Softermax without any area would give {without:.2f} against this baseline with these memories."
    )


def _energy_said(fixed: PERow, deferred: PERow) -> str:
    paper = paper_figures()["pe"]["ratios"]["energy"]
    ours, theirs = fixed.ours, fixed.theirs

    def percent(cost_of: dict[str, float], names: Sequence[str]) -> float:
        return 100 * sum(cost_of.get(name, 0.0) for name in names) / theirs.energy_pj

    mine = {name: part.energy_pj for name, part in ours.components.items()}
    other = {name: part.energy_pj for name, part in theirs.components.items()}
    logic = (UNNORMED, NORMALIZATION)
    mac = mine["MACs"]
    scores = fixed.sequence**2
    half = (ours.energy_pj - mac / 2) / (theirs.energy_pj - mac / 2)
    return (
        f"**Energy: {fixed.energy_ratio:.4f} (deferred {deferred.energy_ratio:.4f}); the paper has {paper:.2f}.**\n\n"
        f"- What both designs share, MACs, their buffers and loading operands, is {percent(other, SHARED):.0f} % of the baseline's "
        f"energy. The MACs are {mac / scores:.0f} pJ per score of {HEAD_SIZE} elements, {mac / scores / HEAD_SIZE:.2f} pJ per product "
        f"with its part of the sum. The PE's own buffers are {percent(other, _BUFFERS):.0f} %.\n"
        f"- Softmax's logic falls from {percent(other, logic):.1f} % of it to {percent(mine, logic):.1f} %, to "
        f"{percent(mine, logic) / percent(other, logic):.2f}.\n"
        f"- Traffic of scores, exponentials and probabilities to the global buffer falls from {percent(other, _TRAFFIC):.0f} % to "
        f"{percent(mine, _TRAFFIC):.0f} %. The baseline writes its scores and reads them twice, writes exponentials and reads them, "
        "16 bits each; ours writes and reads scores of 8 bits. *What if* (pe-what-if) has the paper's unnormed words in their place.\n"
        f"- With MACs of half the energy the ratio would be {half:.3f}; *Sensitivity* has dearer and cheaper memories. Deferred "
        f"normalisation, which reads nothing back, has {deferred.energy_ratio:.4f}.\n"
        "- The baseline is not weakened: it is counted as its RTL was simulated. One that makes its exponentials anew, as ours "
        "does with its numerators, would take less energy and more area (*What if*)."
    )


_DEFERRED_SAID = (
    "**Deferred normalisation**: the unit adds up words of 8 bits instead of 16, nothing is read back, and instead of a "
    "Normalization unit there are shifters of two steps in the lanes and one reciprocal per row, both counted."
)


def sweep_sections(
    figures: Sequence[PEFigures], rows: Sequence[PERow], pictures: Sequence[str] = ()
) -> list[PageSection]:
    """The page of ``softermax silicon --sweep``."""
    lines = energy_lines(rows)
    shown = "".join(f"\n\n![energy over sequence length]({name})" for name in pictures)
    fits = {width: CONFIGS[width].tiles // CONFIGS[width].chunks(HEAD_SIZE) * width for width in CONFIGS}
    steps = " and ".join(
        f"{fits[width]} ({width} wide)" for width in dict.fromkeys(one.width for one in figures)
    )
    slopes: list[dict[str, object]] = [
        {
            "library": line.library,
            "width": line.width,
            "design": line.design,
            "slope, pJ per score": round(line.slope_pj, 3),
            "power of the number of scores": round(line.power, 4),
        }
        for line in lines
    ]
    text = (
        f"Energy grows with the number of scores to the power of {ranged((line.power for line in lines), '.3f')}; 1 would be in "
        "proportion. It is a little less because short sequences pay more per score: fewer queries share a reading of the "
        f"weights and a loading of the keys. Where the keys no longer fit the weight buffer, beyond {steps}, every tile of "
        "queries loads them again."
    )
    per_score: list[dict[str, object]] = [
        {"library": line.library, "width": line.width, "design": line.design}
        | {str(n): round(pj, 2) for n, pj in zip(line.sequences, line.pj_per_score, strict=True)}
        for line in lines
    ]
    return [
        PageSection("Sequences", _measured_on(figures) + shown, table_rows(rows)),
        PageSection("Lines of the sweep", text, slopes),
        PageSection("Picojoules per score over the sequence length", rows=per_score),
    ]
