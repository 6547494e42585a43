"""Charts as drawings: where every mark, line and label stands. ``templates/chart.svg`` writes them down, the page colours
them, so that they need no script to be seen.

Every mark carries its value as a tip. Each chart is drawn twice, for a wide and for a narrow page, because text in a
scaled drawing would be unreadable on one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from softermax.report.document import Chart, Series, shown

WIDE, NARROW = 908, 326
COLOURS = 8
_CHARACTER = 6.3
"""About how wide a letter of 12 pixels is."""
_LINE = 13.0
"""From one line of a label to the next."""
_TILTED = 14.0
"""Room that a tilted label needs; where there is less, some are left out."""
_LEFT, _RIGHT, _TOP = 54, 14, 10


@dataclass(frozen=True)
class Text:
    kind: str
    """The class that the style sheet knows: tick, label, legend, reference-label."""
    x: float
    y: float
    text: str
    anchor: str = "start"
    is_tilted: bool = False


@dataclass(frozen=True)
class Rule:
    """A line across the plot."""

    kind: str
    x1: float
    x2: float
    y: float


@dataclass(frozen=True)
class Bar:
    """A bar of the chart, or, without a tip, a key of its legend."""

    colour: int
    x: float
    y: float
    width: float
    height: float
    tip: str = ""


@dataclass(frozen=True)
class Dot:
    colour: int
    x: float
    y: float
    tip: str


@dataclass(frozen=True)
class Curve:
    colour: int
    points: Sequence[tuple[float, float]]


Shape = Text | Rule | Bar | Dot | Curve


@dataclass(frozen=True)
class Drawing:
    title: str
    width: int
    height: float
    shapes: Sequence[Shape]

    def of(self, kind: str) -> list[Shape]:
        """The shapes of a kind, by its class: they are painted one kind after the other."""
        return [shape for shape in self.shapes if type(shape).__name__ == kind]


@dataclass(frozen=True)
class _Frame:
    """The plot's place in the drawing."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width


Scale = Callable[[float], float]


def draw(chart: Chart, width: int) -> Drawing:
    """The chart in a drawing of this width."""
    legend, below = _legend(chart, width)
    frame = _Frame(_LEFT, below + 14, width - _LEFT - _RIGHT, 220 if width < 500 else 250)
    y = _scale(chart, frame)
    if chart.kind in ("lines", "points"):
        labels, foot = _numbers(chart, frame), 34.0
        marks = list(_lines(chart, frame, y))
    else:
        labels, foot = _names([shown(x) for x in chart.x], frame)
        marks = list(_bars(chart, frame, y))
    height = frame.bottom + foot + (12 if chart.x_label else 0)
    shapes = [*legend, *_y_axis(chart, frame, y), *marks, *labels, *_mark(chart, frame, y)]
    if chart.x_label:
        shapes.append(Text("label", frame.left + frame.width / 2, height - 4, chart.x_label, "middle"))
    return Drawing(chart.title, width, height, shapes)


def _legend(chart: Chart, width: int) -> tuple[list[Shape], float]:
    """Keys of the series, wrapped; also where they end. The y axis's name stands above the axis."""
    shapes: list[Shape] = []
    top = float(_TOP + 4)
    if chart.y_label:
        shapes.append(Text("label", 4, top + 4, chart.y_label))
        top += 20
    x = 4.0
    for i, series in enumerate(chart.series):
        wide = 22 + len(series.name) * _CHARACTER + 12
        if x > 4 and x + wide > width:
            x, top = 4.0, top + 18
        shapes.append(Bar(i % COLOURS, x, top - 6, 11, 11))
        shapes.append(Text("legend", x + 16, top + 4, series.name))
        x += wide
    return shapes, top + 8


def _range(chart: Chart) -> tuple[float, float]:
    values = [value for series in chart.series for value in series.values if value is not None]
    values += [] if chart.mark is None else [chart.mark]
    if chart.kind == "stacked":
        values = [sum(s.values[i] or 0.0 for s in chart.series) for i in range(len(chart.x))]
    low, high = min(0.0, *values), max(0.0, *values)
    # A share that rounding makes 100.00000001 must not open another grid line.
    return low, (high if high > low else low + 1.0) * (1 - 1e-9)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from below ``low`` to above ``high``."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _scale(chart: Chart, frame: _Frame) -> Scale:
    marks = ticks(*_range(chart))
    low, high = marks[0], marks[-1]
    return lambda value: frame.bottom - (value - low) / ((high - low) or 1.0) * frame.height


def _y_axis(chart: Chart, frame: _Frame, y: Scale) -> Iterator[Shape]:
    for tick in ticks(*_range(chart)):
        yield Rule("grid base" if tick == 0 else "grid", frame.left, frame.right, y(tick))
        yield Text("tick", frame.left - 7, y(tick) + 4, _short(tick), "end")


def _short(value: float) -> str:
    if abs(value) >= 1e5 or 0 < abs(value) < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.10g}"


def _tip(series: Series, label: str, value: float, chart: Chart) -> str:
    unit = " %" if chart.y_label.startswith("%") else ""
    return f"{series.name} · {label}: {shown(float(value))}{unit}"


def _names(labels: Sequence[str], frame: _Frame) -> tuple[list[Shape], float]:
    """Labels below the groups and the room that they take: upright in lines, tilted where a word is too long."""
    group = frame.width / len(labels)
    fits = int(group / _CHARACTER)
    longest = max(len(label) for label in labels)
    middles = [frame.left + group * (i + 0.5) for i in range(len(labels))]
    if all(len(word) <= fits for label in labels for word in label.split()):
        wrapped = [_wrapped(label, fits) for label in labels]
        upright: list[Shape] = [
            Text("tick", x, frame.bottom + 16 + _LINE * i, line, "middle")
            for x, lines in zip(middles, wrapped, strict=True)
            for i, line in enumerate(lines)
        ]
        return upright, 34.0 + _LINE * (max(len(lines) for lines in wrapped) - 1)
    every = math.ceil(_TILTED / group)
    tilted: list[Shape] = [
        Text("tick", x + 4, frame.bottom + 12, label, "end", is_tilted=True)
        for x, label in list(zip(middles, labels, strict=True))[::every]
    ]
    return tilted, 46.0 + 4.6 * longest


def _wrapped(label: str, fits: int) -> list[str]:
    lines: list[str] = []
    for word in label.split():
        if lines and len(lines[-1]) + 1 + len(word) <= fits:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _bars(chart: Chart, frame: _Frame, y: Scale) -> Iterator[Shape]:
    labels = [shown(x) for x in chart.x]
    group = frame.width / len(labels)
    side_by_side = chart.kind == "bars"
    wide = group * 0.78 if group < 90 or side_by_side else 70.0
    # With few groups bars would be walls.
    each = min(wide / len(chart.series), 46.0) if side_by_side else wide
    for i, label in enumerate(labels):
        middle = frame.left + group * (i + 0.5)
        total = 0.0
        for j, series in enumerate(chart.series):
            value = series.values[i]
            if value is None:
                continue
            low = 0.0 if side_by_side else total
            total += value
            high = value if side_by_side else total
            x = middle + each * (j - len(chart.series) / 2) if side_by_side else middle - each / 2
            top, bottom = sorted((y(high), y(low)))
            width, height = max(each - (each > 4), 0.5), max(bottom - top, 0.4)
            yield Bar(j % COLOURS, x, top, width, height, _tip(series, label, value, chart))


def _across(chart: Chart, frame: _Frame) -> Scale:
    numbers = [float(x) for x in chart.x]
    low, high = math.log(numbers[0]), math.log(numbers[-1])
    return lambda value: (
        frame.left + 10 + (math.log(value) - low) / ((high - low) or 1.0) * (frame.width - 24)
    )


def _numbers(chart: Chart, frame: _Frame) -> list[Shape]:
    """The x axis's numbers, those that have room."""
    across, last = _across(chart, frame), -1e9
    labels: list[Shape] = []
    for number in (float(x) for x in chart.x):
        label, at = shown(int(number) if number == int(number) else number), across(number)
        if at - last > len(label) * _CHARACTER + 8:
            labels.append(Text("tick", at, frame.bottom + 16, label, "middle"))
            last = at
    return labels


def _lines(chart: Chart, frame: _Frame, y: Scale) -> Iterator[Shape]:
    across = _across(chart, frame)
    for j, series in enumerate(chart.series):
        points = [(float(n), v) for n, v in zip(chart.x, series.values, strict=True) if v is not None]
        if chart.kind == "lines":
            yield Curve(j % COLOURS, [(across(n), y(v)) for n, v in points])
        for n, v in points:
            label = shown(int(n) if n == int(n) else n)
            yield Dot(j % COLOURS, across(n), y(v), _tip(series, label, v, chart))


def _mark(chart: Chart, frame: _Frame, y: Scale) -> Iterator[Shape]:
    if chart.mark is not None:
        at = y(chart.mark)
        yield Rule("reference", frame.left, frame.right, at)
        yield Text("reference-label", frame.right, at - 5, chart.mark_label, "end")
