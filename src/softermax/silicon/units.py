"""The units of the table: what each is made of, how it is fed with rows of scores, and what it must answer.

A unit is plain data, so that it travels between processes. A job streams whole rows through it, one after the other, and includes
filling and draining the pipeline; the two-pass baseline gets every row twice. What the streams carry is known to
`softermax.rtl.vectors` and its like; here is when.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from softermax.fixedpoint import IntArray
from softermax.golden import BoolArray
from softermax.rtl.baseline import model as lean_model
from softermax.rtl.baseline import vectors as baseline_vectors
from softermax.rtl.baseline.generic import model as generic_model
from softermax.rtl.baseline.generic.normalization import Normalization as GenericDivision
from softermax.rtl.baseline.generic.unnormed import Unnormed as GenericUnnormed
from softermax.rtl.baseline.normalization import Normalization as Division
from softermax.rtl.baseline.online import OnlineUnnormed
from softermax.rtl.baseline.online_normalization import OnlineNormalization
from softermax.rtl.baseline.unnormed import Unnormed as TwoPassUnnormed
from softermax.rtl.convert import to_rtlil
from softermax.rtl.deferred import DeferredTail
from softermax.rtl.normalization import Normalization
from softermax.rtl.output_registers import OutputRegisters
from softermax.rtl.payloads import VALUE_BITS
from softermax.rtl.pe.vectors import weight_streams
from softermax.rtl.pe.weight_softmax import WeightSoftmax
from softermax.rtl.sizes import at_width, check_buildable
from softermax.rtl.units import unit_class
from softermax.rtl.unnormed_softmax import UnnormedSoftmax
from softermax.rtl.vectors import Streams, normalization_streams, tail_streams, unnormed_streams
from softermax.silicon.jobs import RESET_CYCLES, GateJob
from softermax.silicon.stimuli import Scores
from softermax.spec import AnySpec, DeferredSpec, SoftermaxSpec, get_spec

UNNORMED, NORMALIZATION, WEIGHTS, TAIL = "unnormed", "normalization", "weights", "deferred tail"
BASELINES = ("two-pass", "online", "generic")
BASELINE_LABELS = {
    "two-pass": "lean FP16, two-pass",
    "online": "lean FP16, online",
    "generic": "generic IEEE components",
}
"""What each is called where people read."""
SKIP_ZEROS = "+skip-zeros"
"""After a spec's name: its Normalization unit lets lanes whose word comes out as zero stand still."""


class Design(ABC):
    """Hardware that can be measured."""

    name: str
    """What it does, such as ``unnormed`` or ``normalization``."""
    design: ClassVar[str]
    """``softermax``, or what the baseline's unit is called."""
    module: ClassVar[str]
    """The name of its top module."""
    registered: bool = False
    """Whether registers were put after its outputs."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Elements per cycle."""

    @property
    def shown(self) -> str:
        """What tells it from others of its name and width."""
        return self.design

    @property
    def label(self) -> str:
        return f"{self.name} {self.shown}, {self.width} wide"

    def described(self) -> dict[str, Any]:
        """What a result says of the design that it is of."""
        return {"unit": self.name, "design": self.design, "preset": "", "width": self.width, "spec": None}

    @abstractmethod
    def make(self) -> Any:
        """A new component."""

    def component(self) -> Any:
        """The component, made once."""
        return _component(self)

    def rtlil(self) -> str:
        return _rtlil(self)


@functools.lru_cache(maxsize=8)
def _component(design: Design) -> Any:
    made = design.make()
    return OutputRegisters(made) if design.registered else made


@functools.lru_cache(maxsize=8)
def _rtlil(design: Design) -> str:
    return to_rtlil(design.component(), design.module)


class Unit(Design):
    """A unit that works on rows of scores."""

    @abstractmethod
    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        """That many copies, each with that many rows of the scores one after the other."""


@dataclass(frozen=True)
class SpecUnit(Unit):
    """A unit of Softermax, made of a spec."""

    design = "softermax"
    end_cycles: ClassVar[int] = 10
    """From the last slice until all words have left."""
    spec: AnySpec
    preset: str = "own"
    """What the spec is called."""
    registered: bool = False

    def __post_init__(self) -> None:
        check_buildable(self.rows_spec)

    @property
    def rows_spec(self) -> SoftermaxSpec:
        """The spec of its scores and unnormed words."""
        return self.spec.scores if isinstance(self.spec, DeferredSpec) else self.spec

    @property
    def deferred_spec(self) -> DeferredSpec:
        if not isinstance(self.spec, DeferredSpec):
            raise TypeError(f"the unit {self.name} is made of a DeferredSpec")
        return self.spec

    @property
    def width(self) -> int:
        return check_buildable(self.rows_spec)

    @property
    def shown(self) -> str:
        return self.preset + (", outputs registered" if self.registered else "")

    def described(self) -> dict[str, Any]:
        design = self.design + (", outputs registered" if self.registered else "")
        made = {"design": design, "preset": self.preset, "spec": self.spec.to_dict()}
        return super().described() | made

    def against(self, baseline: str) -> BaselineUnit | None:
        """The unit of a baseline that does the same; None where it has no such unit."""
        kind = _COUNTERPARTS.get((self.name, baseline))
        return kind(self.width) if kind is not None else None

    def rows(self, scores: Scores, count: int) -> tuple[IntArray, BoolArray]:
        raw = scores.raw(self.rows_spec)[:count]
        return raw, np.ones(raw.shape, dtype=np.bool_)


class UnnormedUnit(SpecUnit):
    name = UNNORMED
    module = "softermax_unnormed"

    def make(self) -> Any:
        return unit_class(self.rows_spec, UnnormedSoftmax.name)(self.rows_spec)

    def streams(self, raw: IntArray, mask: BoolArray) -> Streams:
        return unnormed_streams(self.rows_spec, raw, mask)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        raw, mask = self.rows(scores, copies * rows)
        streams = self.streams(raw, mask)
        slices = count_of(streams["slices"], copies)
        job = begun(self, RESET_CYCLES + slices + self.end_cycles, copies, raw.size)
        job.send("slices", RESET_CYCLES, job.payload("slices", streams["slices"]))
        for stream in (name for name in streams if name != "slices"):
            job.receive(stream, streams[stream])
        return job


class WeightUnit(UnnormedUnit):
    """The unnormed unit of deferred normalisation: weights of a few bits, and their sum."""

    name = WEIGHTS
    module = "weight_softmax"
    end_cycles = 12

    def make(self) -> WeightSoftmax:
        return WeightSoftmax(self.deferred_spec)

    def streams(self, raw: IntArray, mask: BoolArray) -> Streams:
        return weight_streams(self.deferred_spec, raw, mask)


@dataclass(frozen=True)
class NormalizationUnit(SpecUnit):
    name = NORMALIZATION
    module = "softermax_normalization"
    skip_zeros: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.skip_zeros and self.rows_spec.output_mode != "fixed":
            raise ValueError(f"{SKIP_ZEROS}: what would be skipped is what row-scaled output keeps")
        if self.skip_zeros and self.rows_spec.normalization == "row-products":
            raise ValueError(f"{SKIP_ZEROS}: with row products such lanes stand still in any case")

    def make(self) -> Any:
        options = {"skip_zeros": True} if self.skip_zeros else {}
        return unit_class(self.rows_spec, Normalization.name)(self.rows_spec, self.width, **options)

    def streams(self, raw: IntArray, mask: BoolArray) -> Streams:
        return normalization_streams(self.rows_spec, raw, mask)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        raw, mask = self.rows(scores, copies * rows)
        streams = self.streams(raw, mask)
        slices = count_of(streams["slices"], copies)
        job = begun(self, RESET_CYCLES + slices + self.end_cycles, copies, raw.size)
        finished = job.payload("finished", streams["finished"])
        for row in range(rows):
            job.send("finished", RESET_CYCLES + row * slices // rows, finished[row : row + 1])
        job.send("slices", RESET_CYCLES + Normalization.row_latency, job.payload("slices", streams["slices"]))
        job.receive("probabilities", streams["probabilities"])
        return job


@dataclass(frozen=True)
class TailUnit(SpecUnit):
    """The attention tail of deferred normalisation: P·V of a few columns of V, and one division per row."""

    name = TAIL
    module = "deferred_tail"
    columns: int = 4
    """Each column is as large as the others and does the same work."""

    def make(self) -> DeferredTail:
        return DeferredTail(self.deferred_spec, self.columns)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        raw, mask = self.rows(scores, copies * rows)
        # Values of a real model are small numbers of either sign.
        lanes = self.rows_spec.slices(raw.shape[1]) * self.width
        values = np.random.default_rng(0).normal(0, 2 ** (VALUE_BITS - 3), (len(raw), lanes, self.columns))
        limit = 1 << (VALUE_BITS - 1)
        v = np.clip(np.rint(values), -limit, limit - 1).astype(np.int64)
        streams = tail_streams(self.deferred_spec, raw, mask, v)
        slices = count_of(streams["slices"], copies)
        job = begun(self, RESET_CYCLES + slices + DeferredTail.latency + self.end_cycles, copies, raw.size)
        job.send("slices", RESET_CYCLES, job.payload("slices", streams["slices"]))
        job.receive("outputs", streams["outputs"])
        return job


@dataclass(frozen=True)
class BaselineUnit(Unit):
    """A unit of an FP16 baseline."""

    lanes: int
    base_two: bool = False
    """With powers of two instead of e: two passes only."""
    baseline: ClassVar[str]

    @property
    def width(self) -> int:
        return self.lanes

    @property
    def shown(self) -> str:
        return self.design + (", base two" if self.base_two else "")

    def rows(self, scores: Scores, count: int) -> tuple[IntArray, BoolArray]:
        x = scores.half[:count]
        return x, np.ones(x.shape, dtype=np.bool_)


class TwoPassUnit(BaselineUnit):
    name, design, baseline = UNNORMED, "two-pass", "two-pass"
    module = "baseline_two_pass"

    def make(self) -> TwoPassUnnormed:
        return TwoPassUnnormed(self.lanes, self.base_two)

    def streams(self, x: IntArray, mask: BoolArray) -> Streams:
        unnormed = functools.partial(lean_model.unnormed, base_two=self.base_two)
        return baseline_vectors.two_pass_streams(self.lanes, x, mask, unnormed)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        unit = self.component()
        x, mask = self.rows(scores, copies * rows)
        streams = self.streams(x, mask)
        slices = count_of(streams["first_pass"], copies) // rows
        # The next row's first pass runs beside this row's second one, two cycles later so that the max
        # is free when it is needed.
        period = slices + 2
        cycles = RESET_CYCLES + (rows + 1) * period + unit.max_latency + unit.sum_latency + 2
        job = begun(self, cycles, copies, x.size)
        payload = job.payload("first_pass", streams["first_pass"])
        for row in range(rows):
            of_row, begin = payload[row * slices : (row + 1) * slices], RESET_CYCLES + row * period
            job.send("first_pass", begin, of_row)
            job.send("second_pass", begin + slices + unit.max_latency, of_row)
        for stream in ("unnormed", "sums"):
            job.receive(stream, streams[stream])
        return job


class OnlineUnit(BaselineUnit):
    name, design, baseline = UNNORMED, "online", "online"
    module = "baseline_online"

    def make(self) -> OnlineUnnormed:
        return OnlineUnnormed(self.lanes)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        unit = self.component()
        x, mask = self.rows(scores, copies * rows)
        streams = baseline_vectors.online_streams(self.lanes, x, mask)
        slices, pace = count_of(streams["slices"], copies), unit.cycles_per_slice
        job = begun(self, RESET_CYCLES + pace * slices + unit.sum_latency + 6, copies, x.size)
        payload = job.payload("slices", streams["slices"])
        for at in range(slices):
            job.send("slices", RESET_CYCLES + pace * at, payload[at : at + 1])
        for stream in ("unnormed", "sums"):
            job.receive(stream, streams[stream])
        return job


class DivisionUnit(BaselineUnit):
    """The two-pass baseline's Normalization: a divider in each lane."""

    name, design, baseline = NORMALIZATION, "division", "two-pass"
    module = "baseline_division"

    def make(self) -> Division:
        return Division(self.lanes)

    def streams(self, x: IntArray, mask: BoolArray) -> Streams:
        unnormed = functools.partial(lean_model.unnormed, base_two=self.base_two)
        return baseline_vectors.division_streams(self.lanes, x, mask, unnormed)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        x, mask = self.rows(scores, copies * rows)
        streams = self.streams(x, mask)
        slices = count_of(streams["unnormed"], copies)
        job = begun(self, RESET_CYCLES + slices + self.component().latency + 4, copies, x.size)
        job.send("unnormed", RESET_CYCLES, job.payload("unnormed", streams["unnormed"]))
        job.hold("sums", RESET_CYCLES, job.payload("sums", streams["sums"]), slices // rows)
        job.receive("probabilities", streams["probabilities"])
        return job


class FactorUnit(BaselineUnit):
    """The online baseline's Normalization: it finds a factor per slice and multiplies in the lanes."""

    name, design, baseline = NORMALIZATION, "factor", "online"
    module = "baseline_factor"

    def make(self) -> OnlineNormalization:
        return OnlineNormalization(self.lanes)

    def job(self, scores: Scores, copies: int, rows: int) -> GateJob:
        unit = self.component()
        x, mask = self.rows(scores, copies * rows)
        streams = baseline_vectors.factor_streams(self.lanes, x, mask)
        slices = count_of(streams["maxima"], copies)
        job = begun(self, RESET_CYCLES + slices + unit.ahead + unit.latency + 4, copies, x.size)
        job.send("maxima", RESET_CYCLES, job.payload("maxima", streams["maxima"]))
        job.hold("rows", RESET_CYCLES, job.payload("rows", streams["rows"]), slices // rows)
        job.send("unnormed", RESET_CYCLES + unit.ahead, job.payload("unnormed", streams["unnormed"]))
        job.receive("probabilities", streams["probabilities"])
        return job


class GenericUnit(TwoPassUnit):
    """Two passes of generic IEEE components."""

    design = baseline = "generic"
    module = "baseline_generic"

    def make(self) -> GenericUnnormed:
        return GenericUnnormed(self.lanes)

    def streams(self, x: IntArray, mask: BoolArray) -> Streams:
        return baseline_vectors.two_pass_streams(self.lanes, x, mask, generic_model.unnormed)


class GenericDivisionUnit(DivisionUnit):
    """Its Normalization: a generic divider in each lane."""

    design, baseline = "generic division", "generic"
    module = "baseline_generic_division"

    def make(self) -> GenericDivision:
        return GenericDivision(self.lanes)

    def streams(self, x: IntArray, mask: BoolArray) -> Streams:
        models = generic_model.unnormed, generic_model.divide
        return baseline_vectors.division_streams(self.lanes, x, mask, *models)


_COUNTERPARTS: dict[tuple[str, str], type[BaselineUnit]] = {
    (UNNORMED, "two-pass"): TwoPassUnit,
    (UNNORMED, "online"): OnlineUnit,
    (NORMALIZATION, "two-pass"): DivisionUnit,
    (NORMALIZATION, "online"): FactorUnit,
    (WEIGHTS, "two-pass"): TwoPassUnit,
    (WEIGHTS, "online"): OnlineUnit,
    (UNNORMED, "generic"): GenericUnit,
    (NORMALIZATION, "generic"): GenericDivisionUnit,
    (WEIGHTS, "generic"): GenericUnit,
}


def count_of(stream: Mapping[str, IntArray], copies: int) -> int:
    """A stream's transfers in each copy."""
    return len(next(iter(stream.values()))) // copies


def begun(unit: Unit, cycles: int, copies: int, elements: int) -> GateJob:
    job = GateJob(unit.component(), cycles, copies, elements)
    job.reset()
    return job


def presets_of(width: int) -> list[str]:
    """The names that make different hardware at a width, the paper's own first."""
    paper = paper_at(width)
    return [paper, "row-scaled", paper + SKIP_ZEROS, "lean", "lean-row-scaled"]


def paper_at(width: int) -> str:
    """What the paper's words are called at a width."""
    return "paper-32" if width == 32 else "paper"


def label_of(name: str) -> str:
    """What a spec given by name or file is called: a file by its stem."""
    path, ending, rest = name.partition(".json")
    return Path(path).name + rest if ending else name


def units_of(name: str, width: int | None = None) -> list[SpecUnit]:
    """The units made of a spec: what `get_spec` takes, then ``+skip-zeros`` if wanted. Without a width the spec's own.

    A spec that hardware cannot be made of is refused with the reason.
    """
    skip_zeros = name.endswith(SKIP_ZEROS)
    spec, label = get_spec(name.removesuffix(SKIP_ZEROS)), label_of(name)
    try:
        spec = spec if width is None else at_width(spec, width)
        units: list[SpecUnit]
        if isinstance(spec, DeferredSpec):
            if skip_zeros:
                raise ValueError(f"{SKIP_ZEROS}: deferred normalisation has no Normalization unit")
            units = [WeightUnit(spec, label), TailUnit(spec, label)]
        elif skip_zeros:
            units = [NormalizationUnit(spec, label, skip_zeros=True)]
        else:
            units = [UnnormedUnit(spec, label), NormalizationUnit(spec, label)]
    except ValueError as error:
        raise ValueError(f"spec {name!r}: no hardware can be made of it: {error}") from None
    return units


def baseline_unit(name: str, baseline: str, lanes: int) -> BaselineUnit:
    """A baseline's ``unnormed`` or ``normalization`` unit."""
    return _COUNTERPARTS[name, baseline](lanes)
