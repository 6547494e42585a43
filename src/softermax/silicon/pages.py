"""What is said of measured units: sections of a page, filled with their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from softermax.paper import figures as paper_figures
from softermax.silicon.rivals import RivalTable
from softermax.silicon.sensitivity import NONE, Variation
from softermax.silicon.stimuli import COLUMNS
from softermax.silicon.table import UnitRow, UnitTable
from softermax.silicon.units import BASELINE_LABELS, NORMALIZATION, SKIP_ZEROS, TAIL
from softermax.silicon.whole import BOTH, WHOLE


@dataclass(frozen=True)
class PageSection:
    """A heading, what is said below it, and a table."""

    title: str
    text: str = ""
    rows: Sequence[Mapping[str, object]] = ()


def paper_ratios(unit: str) -> dict[str, float | None]:
    """The paper's area and energy ratio of a unit, nothing for one that it does not have."""
    ratios = paper_figures()["units"]["ratios"].get(unit, {})
    return {name: ratios.get(name) for name in ("area", "energy")}


def ranged(values: Iterable[float], form: str) -> str:
    """``low to high``, or one number where they are the same."""
    found = list(values)
    low, high = format(min(found), form), format(max(found), form)
    return low if low == high else f"{low} to {high}"


def unit_rows(table: UnitTable) -> list[dict[str, object]]:
    """The rows with the paper's ratios beside ours."""
    rows = []
    for row in table.rows:
        paper = paper_ratios(row.unit)
        named = {"baseline": BASELINE_LABELS.get(row.baseline, row.baseline)}
        theirs = {"paper_area_ratio": paper["area"], "paper_energy_ratio": paper["energy"]}
        rows.append(asdict(row) | named | theirs)
    return rows


def unit_sections(table: UnitTable, parts: bool = False, pictures: Sequence[str] = ()) -> list[PageSection]:
    """The units' page. ``pictures`` are names of files beside it."""
    sections = [*_summary(table, "two-pass"), *_summary(table, "generic"), *_whole(table)]
    sections.append(PageSection("All of them", _how_measured(table), unit_rows(table)))
    if parts or pictures:
        shown = "\n".join(f"![area and energy by sub-unit]({name})" for name in pictures)
        left_out = "Parts below a hundredth are left out." if parts else ""
        text = "\n\n".join(part for part in (shown, left_out) if part)
        sections.append(PageSection("By sub-unit", text, table.by_sub_unit() if parts else ()))
    return sections


def late_units(table: UnitTable) -> list[str]:
    """What to say of designs that miss the clock."""
    return [
        f"{row.unit} {row.preset} against {BASELINE_LABELS.get(row.baseline, row.baseline)}, {row.width} wide, {row.library}: "
        f"a design misses {row.clock_ns} ns (slack {row.slack_ns} and {row.baseline_slack_ns} ns)"
        for row in table.rows
        if not row.meets and row.unit not in (WHOLE, BOTH)
    ]


def _how_measured(table: UnitTable) -> str:
    late = late_units(table)
    words = sum(result.words_equal for result in table.results)
    text = (
        f"Energy with glitches unless it says zero delay, of {table.stimulus} scores in rows of {table.columns}. "
        f"Every netlist gave the words of its model in both modes, {words:,} of them. "
        "The paper's ratios are against two passes in half precision, made of DesignWare components at 7 nm: we take that to be "
        "a baseline of generic components. "
        "`docs/silicon.md` says how all of it is measured. "
    )
    text += (
        "These miss their clock:\n\n" + "\n".join(f"- {line}" for line in late)
        if late
        else "All meet the clock."
    )
    if any(row.baseline == "online" for row in table.rows):
        text += (
            "\n\nThe online baseline reads each row once; its normalization finds one factor per slice and multiplies in the "
            "lanes, which is cheaper than the paper's baseline, a divider in each lane."
        )
    if any(row.unit == TAIL for row in table.rows):
        text += (
            "\n\nThe deferred tail computes P·V of four columns of V, which no baseline's unit does: it has no ratio. "
            "Its values are Gaussian int8 numbers."
        )
    return text + (f"\n\nGaussian scores only: {table.note}" if table.note else "")


_GENERIC_SAID = (
    " Two passes as well, of complete IEEE components as a library has them: subnormal numbers, infinities and NaN everywhere, "
    "nothing left out for what a neighbour knows. The paper's baseline was made of such components; that ours are like them is "
    "our inference."
)


def _family(row: UnitRow) -> str:
    """The name of a preset at any width."""
    return row.preset.replace("paper-32", "paper")


def _summary(table: UnitTable, baseline: str) -> list[PageSection]:
    rows = [row for row in table.rows if row.baseline == baseline]
    if not rows:
        return []
    shown = []
    for unit, family in dict.fromkeys((row.unit, _family(row)) for row in rows):
        like = [row for row in rows if (row.unit, _family(row)) == (unit, family)]
        paper = paper_ratios(unit) if family == "paper" else {"area": None, "energy": None}
        shown.append(
            {
                "unit": unit,
                "spec": family,
                "area ratio": ranged((row.area_ratio or 0.0 for row in like), ".3f"),
                "paper's": paper["area"],
                "energy ratio": ranged((row.energy_ratio or 0.0 for row in like), ".3f"),
                "paper's, energy": paper["energy"],
            }
        )
    where = ", ".join(dict.fromkeys(f"{row.library} at {row.clock_ns:g} ns" for row in rows))
    widths = " and ".join(dict.fromkeys(str(row.width) for row in rows))
    text = f"In {where}, {widths} wide."
    text += _compared(rows) if baseline == "two-pass" else _GENERIC_SAID
    return [PageSection(f"Against {BASELINE_LABELS[baseline]}", text, shown)]


def _whole(table: UnitTable) -> list[PageSection]:
    """What a whole softmax is counted with."""
    if not table.waiting:
        return []
    text = (
        f"`{BOTH}` adds the two units up. `{WHOLE}` adds the memory of what waits between them for the end of a row: room for "
        f"two rows of {table.columns} elements in every design, one that comes in and one that goes out, in memories of CACTI's at "
        "the cells' voltage (`softermax.silicon.memory`), each slice written once and read once. The memories are modelled, the "
        "units are netlists. `softermax silicon --sensitivity` has other memories."
    )
    named = [asdict(one) | {"design": BASELINE_LABELS.get(one.design, one.design)} for one in table.waiting]
    return [PageSection("What waits in a whole softmax", text, named)]


def _compared(rows: Sequence[UnitRow]) -> str:
    """Row-scaled output and lanes that stand still, each beside the paper's Normalization."""

    def changes(family: str, figure: Callable[[UnitRow], float]) -> list[float]:
        """In hundredths of the paper's, at each library and width that both have."""
        found = {
            (row.library, row.width, _family(row)): figure(row) for row in rows if row.unit == NORMALIZATION
        }
        return [
            100 * (value / found[library, width, "paper"] - 1)
            for (library, width, name), value in found.items()
            if name == family and (library, width, "paper") in found
        ]

    text = ""
    area, energy = (lambda row: row.area_um2), (lambda row: row.energy_pj_per_element)
    if changes("row-scaled", area):
        text += (
            f" Row-scaled Normalization takes {_percent(changes('row-scaled', area))} area and "
            f"{_percent(changes('row-scaled', energy))} energy than the paper's."
        )
    if changes("paper" + SKIP_ZEROS, area):
        text += (
            f" With lanes that stand still for zeros the paper's takes {_percent(changes('paper' + SKIP_ZEROS, energy))} "
            f"energy and {_percent(changes('paper' + SKIP_ZEROS, area))} area."
        )
    return text


def _percent(changes: Sequence[float]) -> str:
    """``7.0 to 8.1 % less``, or more."""
    if all(change <= 0 for change in changes):
        return ranged((abs(change) for change in changes), ".1f") + " % less"
    return ranged(changes, ".1f") + " % more"


def sensitivity_sections(found: Sequence[Variation], note: str = "") -> list[PageSection]:
    """The page of `softermax.silicon.sensitivity`."""
    rows = [asdict(row) | {"baseline": BASELINE_LABELS[row.baseline]} for row in found]
    text = (
        "One assumption changes at a time. At another clock both designs are mapped anew; other wires are put into the "
        "table's netlists, and where these then miss the clock, their energy is of the period that they meet. "
        f"`{WHOLE}` is both units and the memory of what waits between them, `{BOTH}` the same without the memory."
    )
    sections = []
    for unit, preset in dict.fromkeys((row.unit, row.preset) for row in found):
        like = [
            row for row in found if (row.unit, row.preset, row.baseline) == (unit, preset, found[0].baseline)
        ]
        base = [row for row in like if row.change == NONE]
        text += (
            f"\n\n`{preset}`, {unit}, against {BASELINE_LABELS[found[0].baseline]}: the area ratio is "
            f"{ranged((row.area_ratio for row in base), '.3f')} without a change, "
            f"{ranged((row.area_ratio for row in like), '.3f')} with any of them; the energy ratio "
            f"{ranged((row.energy_ratio for row in base), '.3f')} and "
            f"{ranged((row.energy_ratio for row in like), '.3f')}, without glitches "
            f"{ranged((row.energy_ratio_zero_delay for row in base), '.3f')}."
        )
    sections.append(PageSection("Ratios", text + (f"\n\nGaussian scores only: {note}" if note else ""), rows))
    return sections


def rival_sections(table: RivalTable) -> list[PageSection]:
    """The page of `softermax.silicon.rivals`."""
    text = (
        f"Energy with glitches, of {table.stimulus} scores in rows of {COLUMNS}, in each design's own words. Every netlist gave the "
        f"words of its model, at least {table.words_equal:,} of them. `{BOTH}` adds the units up, `{WHOLE}` also the memory of what waits between them. "
        "A design with one unit has nothing that waits. Constants are wired. "
    )
    text += (
        "These miss their clock:\n\n" + "\n".join(f"- {line}" for line in table.late)
        if table.late
        else "All meet the clock."
    )
    return [
        PageSection("Units and whole softmaxes", text, table.to_json()),
        PageSection(
            "What waits",
            "Room for two rows in every design, in memories of CACTI's.",
            [asdict(row) for row in table.waiting],
        ),
    ]
