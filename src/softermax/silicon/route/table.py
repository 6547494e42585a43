"""The units' table after layout, beside the one before it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from softermax.progress import Progress, silent, within
from softermax.silicon import pdk
from softermax.silicon.flow import Result
from softermax.silicon.power import CLOCK
from softermax.silicon.route.flow import Added, RoutedResult, measure_routed
from softermax.silicon.route.netlist import CLOCK_TREE
from softermax.silicon.route.openroad import LayoutOptions
from softermax.silicon.route.technology import require_routable
from softermax.silicon.stimuli import Scores
from softermax.silicon.synthesis import CLOCK_GATES
from softermax.silicon.table import Order, UnitRow, UnitTable, build_table
from softermax.silicon.units import NORMALIZATION, SKIP_ZEROS, UNNORMED, BaselineUnit, Unit, baseline_unit
from softermax.silicon.whole import BOTH, WHOLE

_BEFORE = (
    "slack_ns", "baseline_slack_ns", "area_um2", "area_ratio", "energy_pj_per_element", "energy_ratio",
    "energy_ratio_zero_delay",
)  # fmt: skip


@dataclass(frozen=True)
class RouteTable:
    before: UnitTable
    after: UnitTable
    options: LayoutOptions

    def to_json(self) -> list[dict[str, object]]:
        """The rows after layout, the figures before it as ``mapped_``, and what layout added to both designs."""
        rows = []
        for before, after in zip(self.before.rows, self.after.rows, strict=True):
            row = asdict(after) | {"openroad": self.options.version, "utilisation": self.options.utilisation}
            row |= {f"mapped_{name}": getattr(before, name) for name in _BEFORE}
            row |= self._added(after, self._ours(after))
            if after.baseline:
                theirs = self._added(after, self._theirs(after))
                row |= {f"baseline_{name}": value for name, value in theirs.items()}
            rows.append(row | {"openroad_energy_ratio": self.openroad_ratio(after)})
        return rows

    def designs(self) -> list[dict[str, object]]:
        """A row per design: before, after, and what layout added."""
        rows: list[dict[str, object]] = []
        for before, after in zip(self.before.results, self.after.results, strict=True):
            energy = [result.pj(self.after.stimulus) for result in (before, after)]
            rows.append(
                {
                    "unit": after.unit,
                    "design": after.preset or after.design,
                    "area, µm²": f"{before.area_um2:.0f} to {after.area_um2:.0f}",
                    "pJ per element": f"{energy[0]:.3f} to {energy[1]:.3f}",
                    "clock's share": f"{clock_share(before, self.after.stimulus):.1%} to "
                    f"{clock_share(after, self.after.stimulus):.1%}",
                    "slack, ns": f"{before.slack_ns:.3f} to {after.slack_ns:.3f}",
                }
                | {"by OpenROAD's report": f"{self._openroad_pj([after]):.3f}"}
                | _figures([_added_to(after)])
                | {"wires over the wire load": round(_wire_ratio(after), 2)}
            )
        return rows

    def _added(self, row: UnitRow, results: Sequence[Result]) -> dict[str, object]:
        share = [clock_share(result, self.after.stimulus) for result in results]
        return _figures([_added_to(result) for result in results]) | {
            "clock_share": round(max(share), 4),
            "openroad_pj_per_element": round(self._openroad_pj(results), 5),
        }

    def _openroad_pj(self, results: Sequence[Result]) -> float:
        """What OpenROAD's own power report comes to, of units alone: it knows nothing of what waits between them."""
        return sum(_routed(result).openroad_pj[self.after.stimulus] for result in results)

    def openroad_ratio(self, row: UnitRow) -> float | None:
        """The energy ratio by OpenROAD's own power report; of a whole softmax it has none."""
        if not row.baseline or row.unit == WHOLE:
            return None
        ours, theirs = self._openroad_pj(self._ours(row)), self._openroad_pj(self._theirs(row))
        return round(ours / theirs, 4)

    def _ours(self, row: UnitRow) -> list[Result]:
        # The unit that makes the sums knows nothing of lanes that stand still.
        presets = {unit: row.preset for unit in _units(row)}
        if UNNORMED in presets:
            presets[UNNORMED] = row.preset.removesuffix(SKIP_ZEROS)
        return [self._result(row, unit, preset=preset) for unit, preset in presets.items()]

    def _theirs(self, row: UnitRow) -> list[Result]:
        designs = [(unit, baseline_unit(unit, row.baseline, row.width).design) for unit in _units(row)]
        return [self._result(row, unit, design=design) for unit, design in designs]

    def _result(self, row: UnitRow, unit: str, preset: str = "", design: str = "") -> Result:
        place = (row.library, row.width, unit)
        return next(
            result
            for result in self.after.results
            if (result.library, result.width, result.unit) == place
            and result.preset == preset
            and (not design or result.design == design)
        )


def clock_share(result: Result, stimulus: str) -> float:
    """Of the energy: the clock's nets, gates and tree, without the flip-flops' own clock pins."""
    parts = result.energy_by_unit(stimulus)
    return sum(parts.get(name, 0.0) for name in (CLOCK, CLOCK_GATES, CLOCK_TREE)) / result.pj(stimulus)


def _units(row: UnitRow) -> Sequence[str]:
    return (UNNORMED, NORMALIZATION) if row.unit in (BOTH, WHOLE) else (row.unit,)


def _routed(result: Result) -> RoutedResult:
    assert isinstance(result, RoutedResult)
    return result


def _added_to(result: Result) -> Added:
    added = _routed(result).added
    assert added is not None
    return added


def _wire_ratio(result: Result) -> float:
    added = _added_to(result)
    return added.wire_ff / added.wire_load_ff


def _figures(added: Sequence[Added]) -> dict[str, object]:
    """What layout added to one unit, or to both together."""
    found: dict[str, object] = {
        "clock_tree_cells": sum(one.tree_cells for one in added),
        "buffers": sum(one.buffers for one in added),
        "resized": sum(one.resized for one in added),
        "wire_um": round(sum(one.wire_um for one in added)),
        "core_um2": round(sum(one.core_um2 for one in added), 1),
        "hold_slack_ns": round(min(one.hold_slack_ns for one in added), 4),
    }
    detailed = [one.detailed for one in added if one.detailed is not None]
    # Of two units together only where both were routed in detail.
    whole = len(detailed) == len(added)
    return found | {
        "violations": sum(one.violations for one in detailed) if whole else None,
        "detailed_wire_um": round(sum(one.wire_um for one in detailed)) if whole else None,
    }


def names_of(unit: Unit) -> tuple[str, str]:
    """What a design is called where some are to be routed in detail: by its unit, or by its spec's or baseline's too."""
    return unit.name, f"{unit.name}/{unit.baseline if isinstance(unit, BaselineUnit) else unit.shown}"


def _measure(
    options: LayoutOptions, detailed: Sequence[str], scores: Sequence[Scores], order: Order
) -> Result:
    library = pdk.load(order.library, order.pdk_root)
    clock = order.clock_ns or library.description.clock_ns
    options = replace(options, detailed=any(name in detailed for name in names_of(order.unit)))
    return measure_routed(order.unit, library, clock, scores, options)


def build_route_table(
    orders: Sequence[Order],
    baselines: Sequence[str],
    options: LayoutOptions,
    detailed: Sequence[str] = (),
    workers: int | None = None,
    progress: Progress = silent,
    ray: str | None = None,
) -> RouteTable:
    """Measure every design before and after layout, and route those called ``detailed`` (`names_of`) in detail."""
    for order in orders:
        require_routable(order.library)
    known = list(dict.fromkeys(name for order in orders for name in names_of(order.unit)))
    unknown = [name for name in detailed if name not in known]
    if unknown:
        raise ValueError(f"--detailed {unknown[0]}: must be one of {', '.join(known)}")
    before = build_table(orders, baselines, workers, within(progress, 0, 2), ray=ray)
    measure = functools.partial(_measure, options, detailed)
    after = build_table(orders, baselines, workers, within(progress, 1, 2), measure, ray)
    return RouteTable(before, after, options)
