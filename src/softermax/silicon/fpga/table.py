"""The table of designs on FPGAs: ours, the FP16 baselines and the rivals, on one device of each family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from softermax.executor import each
from softermax.progress import Progress, silent
from softermax.results import Envelope
from softermax.rivals import PREFIX
from softermax.rtl.rivals.registry import built, get_hardware
from softermax.rtl.sizes import check_buildable
from softermax.rtl.softermax_top import Softermax
from softermax.silicon.flow import COPIES, ROWS
from softermax.silicon.fpga.families import Family, get_family
from softermax.silicon.fpga.flow import SEED, Placed, place, require
from softermax.silicon.rivals import RivalUnit, middle_layer
from softermax.silicon.stimuli import COLUMNS, both_kinds
from softermax.silicon.units import (
    NORMALIZATION,
    UNNORMED,
    Design,
    SpecUnit,
    baseline_unit,
    units_of,
)
from softermax.spec import SoftermaxSpec

PRESETS = ("paper", "lean", "lean-row-scaled")
BASELINES = ("two-pass", "generic")
_FP16 = ("two-pass", "generic", "online")
TOP = "top"


@dataclass(frozen=True)
class TopUnit(Design):
    """Both units of a spec with the buffer between them, for rows of 384 elements at least."""

    spec: SoftermaxSpec
    preset: str
    name = TOP
    design = "softermax"
    module = Softermax.module_name

    @property
    def width(self) -> int:
        return check_buildable(self.spec)

    @property
    def shown(self) -> str:
        return self.preset

    def make(self) -> Softermax:
        return Softermax(self.spec, depth=-(-COLUMNS // self.width))


@dataclass(frozen=True)
class FpgaOrder:
    """One design on one device."""

    design: Design
    family: Family
    seed: int

    @property
    def label(self) -> str:
        return f"{self.design.label} on {self.family.name}"


@dataclass(frozen=True)
class FpgaRow:
    """A design on a device, without the harness."""

    unit: str
    design: str
    """A preset, a baseline, or a rival with its prefix."""
    family: str
    device: str
    width: int
    luts: int
    registers: int
    dsps: int
    block_rams: int
    fmax_mhz: float | None
    """None where it does not fit."""
    fits: bool
    slowest: str
    """The sub-unit in which most of the slowest path lies."""
    million_elements_per_s: float | None
    """Width times frequency; two passes take every element twice, but both at a time."""

    @classmethod
    def of(cls, order: FpgaOrder, placed: Placed) -> FpgaRow:
        design, family, fmax = order.design, order.family, placed.fmax_mhz
        return cls(
            design.name,
            design.preset if isinstance(design, SpecUnit | TopUnit) else _baseline(design),
            family.name,
            family.device,
            design.width,
            placed.luts,
            placed.registers,
            placed.dsps,
            placed.block_rams,
            fmax,
            placed.fits,
            placed.slowest,
            None if fmax is None else round(design.width * fmax, 1),
        )


@dataclass(frozen=True)
class FpgaTable:
    rows: list[FpgaRow]
    seed: int
    note: str
    """Why the rivals' constants are of Gaussian scores, if they are."""

    def to_json(self) -> list[dict[str, object]]:
        return [asdict(row) for row in self.rows]


def fpga_orders(
    families: Sequence[str],
    width: int | None = None,
    presets: Sequence[str] = PRESETS,
    baselines: Sequence[str] = BASELINES,
    rivals: Sequence[str] = (),
    seed: int = SEED,
) -> tuple[list[FpgaOrder], str]:
    """Every design on every family's device; names are checked before any work."""
    chosen = [get_family(name) for name in dict.fromkeys(families)]
    names = list(built()) if "all" in rivals else [name.removeprefix(PREFIX) for name in rivals]
    hardware = [get_hardware(name) for name in dict.fromkeys(names)]
    orders: list[FpgaOrder] = []
    note = ""
    for family in chosen:
        lanes = width or family.width
        designs: list[Design] = []
        for preset in presets:
            units = units_of(preset, lanes)
            designs += units
            if [unit.name for unit in units] == [UNNORMED, NORMALIZATION]:
                designs.append(TopUnit(units[0].rows_spec, units[0].preset))
        for baseline in baselines:
            designs += [baseline_unit(unit, baseline, lanes) for unit in (UNNORMED, NORMALIZATION)]
        if hardware:
            scores, note = both_kinds(COPIES * ROWS)
            values = middle_layer(scores[0])
            for one in hardware:
                rival = one.fitted(one.model.calibrated(values), lanes)
                designs += [RivalUnit(rival, lanes, unit) for unit in one.units]
        orders += [FpgaOrder(design, family, seed) for design in designs]
    return orders, note


def place_order(order: FpgaOrder) -> Placed:
    return place(order.design.make(), order.family, order.seed)


def build_fpga_table(
    orders: Sequence[FpgaOrder],
    note: str = "",
    workers: int | None = None,
    progress: Progress = silent,
    ray: str | None = None,
) -> FpgaTable:
    """Place every design, in parallel processes."""
    for family in dict.fromkeys(order.family for order in orders):
        require(family)
    found = each(place_order, list(orders), workers, progress, lambda order: order.label, ray)
    rows = [FpgaRow.of(order, placed) for order, placed in found.items()]
    return FpgaTable(rows, orders[0].seed if orders else SEED, note)


def kept_beside(table: FpgaTable, stored: Envelope) -> FpgaTable:
    """The table with those rows of a stored one that it has not: family by family, ours, then baselines, then rivals."""
    if stored.notes["seed"] != table.seed:
        raise ValueError(
            f"stored rows have the seed {stored.notes['seed']}, these {table.seed}: place all designs"
        )
    fresh = {(row.family, row.width, row.unit, row.design) for row in table.rows}
    before = [FpgaRow(**row) for row in stored.rows]
    rows = [row for row in before if (row.family, row.width, row.unit, row.design) not in fresh] + table.rows
    families = list(dict.fromkeys(row.family for row in rows))
    rows.sort(
        key=lambda row: (families.index(row.family), row.design.startswith(PREFIX), row.design in _FP16)
    )
    return FpgaTable(rows, table.seed, table.note)


def _baseline(design: Design) -> str:
    return str(getattr(design, "baseline", design.shown))
