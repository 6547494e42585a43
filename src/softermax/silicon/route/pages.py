"""What is said of routed units: sections of a page, filled with their figures."""

from __future__ import annotations

from softermax.silicon.pages import PageSection, late_units
from softermax.silicon.route.table import RouteTable


def compared_rows(table: RouteTable) -> list[dict[str, object]]:
    """The ratios before and after layout."""
    rows: list[dict[str, object]] = []
    for before, after in zip(table.before.rows, table.after.rows, strict=True):
        if after.area_ratio is None:
            continue
        rows.append(
            {
                "unit": after.unit,
                "spec": after.preset,
                "baseline": after.baseline,
                "width": after.width,
                "area ratio, mapped": before.area_ratio,
                "area ratio, routed": after.area_ratio,
                "energy ratio, mapped": before.energy_ratio,
                "energy ratio, routed": after.energy_ratio,
                "by OpenROAD's report": table.openroad_ratio(after),
                "slack, ns": after.slack_ns,
                "baseline's slack, ns": after.baseline_slack_ns,
            }
        )
    return rows


def route_sections(table: RouteTable) -> list[PageSection]:
    words = sum(result.words_equal for result in table.after.results)
    late = late_units(table.after)
    text = (
        f"Placed at {100 * table.options.utilisation:.0f} % utilisation and routed by OpenROAD {table.options.version}, with clock tree, power grid and timing repair. Energy is of our own simulator "
        f"on the routed netlists with the capacitance of their wires, with glitches, of {table.after.stimulus} scores; every routed netlist gave the words "
        f"of its model, {words:,} of them. OpenROAD's own power report is given the same transitions; it leaves out what drives the inputs. Slack is OpenROAD's, with wires and tree. What waits between the units of a whole softmax is modelled as before. "
    )
    text += (
        "These miss their clock:\n\n" + "\n".join(f"- {line}" for line in late)
        if late
        else "All meet the clock."
    )
    if table.after.note:
        text += f"\n\nGaussian scores only: {table.after.note}"
    added = (
        "`resized` cells have another drive strength than synthesis gave them; `buffers` are those of timing and drive repair. The clock's share is "
        "of the energy: its nets, gates and tree. Wires are global routing's, compared with what the wire load model took them for; `violations` and "
        "`detailed_wire_um` are of designs that were also routed in detail."
    )
    return [
        PageSection("Before and after layout", text, compared_rows(table)),
        PageSection("What layout added", added, table.designs()),
    ]
