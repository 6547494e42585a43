"""Charts as SVG: drawn here, coloured by the page, so that they need no script to be seen.

Every mark carries its value as ``data-tip``. Each chart is drawn twice, for a wide and for a narrow page, because
text in a scaled drawing would be unreadable on one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from softermax.report.document import Chart, Series, shown

WIDE, NARROW = 908, 326
COLOURS = 8
_CHARACTER = 6.3
"""About how wide a letter of 12 pixels is."""
_TILTED = 14.0
"""Room that a tilted label needs; where there is less, some are left out."""
_LEFT, _RIGHT, _TOP = 54, 14, 10


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


def draw(chart: Chart, width: int) -> str:
    """The chart as an ``svg`` element of this width."""
    legend, below = _legend(chart, width)
    labels = [shown(x) for x in chart.x]
    bars = chart.kind != "lines"
    room = (width - _LEFT - _RIGHT) / max(len(labels), 1)
    tilted = bars and max(len(label) for label in labels) * _CHARACTER > room
    foot = 34.0 + (min(86.0, 12 + 4.6 * max(len(label) for label in labels)) if tilted else 0.0)
    frame = _Frame(_LEFT, below + 14, width - _LEFT - _RIGHT, 220 if width < 500 else 250)
    height = frame.bottom + foot + (12 if chart.x_label else 0)
    y = _scale(chart, frame)
    parts = [
        f'<svg class="chart" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" role="img" '
        f'tabindex="0" aria-label="{escape(chart.title)}: arrow keys go through the values">',
        *legend,
        *_y_axis(chart, frame, y),
        *(_bars(chart, frame, y, labels, tilted) if bars else _lines(chart, frame, y)),
        *_mark(chart, frame, y),
    ]
    if chart.x_label:
        at = frame.left + frame.width / 2
        parts.append(
            f'<text class="label" x="{at:.1f}" y="{height - 4:.1f}" text-anchor="middle">{escape(chart.x_label)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _legend(chart: Chart, width: int) -> tuple[list[str], float]:
    """Keys of the series, wrapped; also where they end. The y axis's name stands above the axis."""
    parts = []
    top = float(_TOP + 4)
    if chart.y_label:
        parts.append(f'<text class="label" x="4" y="{top + 4:.0f}">{escape(chart.y_label)}</text>')
        top += 20
    x = 4.0
    for i, series in enumerate(chart.series):
        wide = 22 + len(series.name) * _CHARACTER + 12
        if x > 4 and x + wide > width:
            x, top = 4.0, top + 18
        parts.append(
            f'<rect class="key c{i % COLOURS}" x="{x:.0f}" y="{top - 6:.0f}" width="11" height="11" rx="2"/>'
        )
        parts.append(f'<text class="legend" x="{x + 16:.0f}" y="{top + 4:.0f}">{escape(series.name)}</text>')
        x += wide
    return parts, top + 8


Scale = Callable[[float], float]


def _values(chart: Chart) -> list[float]:
    return [value for series in chart.series for value in series.values if value is not None]


def _range(chart: Chart) -> tuple[float, float]:
    values = _values(chart) + ([] if chart.mark is None else [chart.mark])
    if chart.kind == "stacked":
        values = [sum(s.values[i] or 0.0 for s in chart.series) for i in range(len(chart.x))]
    if chart.log:
        above = [value for value in values if value > 0]
        return min(above), max(above)
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


def _y_ticks(chart: Chart) -> list[float]:
    low, high = _range(chart)
    if chart.log:
        return [10.0**p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    return ticks(low, high)


def _scale(chart: Chart, frame: _Frame) -> Scale:
    marks = _y_ticks(chart)
    change: Scale = math.log10 if chart.log else float
    low, high = change(marks[0]), change(marks[-1])
    return lambda value: frame.bottom - (change(value) - low) / ((high - low) or 1.0) * frame.height


def _y_axis(chart: Chart, frame: _Frame, y: Scale) -> Iterator[str]:
    for tick in _y_ticks(chart):
        at = y(tick)
        base = " base" if tick == 0 else ""
        yield f'<line class="grid{base}" x1="{frame.left}" x2="{frame.right:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="tick" x="{frame.left - 7}" y="{at + 4:.1f}" text-anchor="end">{_short(tick)}</text>'


def _short(value: float) -> str:
    if abs(value) >= 1e5 or 0 < abs(value) < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.10g}"


def _tip(series: Series, label: str, value: float, chart: Chart) -> str:
    unit = " %" if chart.y_label.startswith("%") else ""
    return escape(f"{series.name} · {label}: {shown(float(value))}{unit}", quote=True)


def _bars(chart: Chart, frame: _Frame, y: Scale, labels: Sequence[str], tilted: bool) -> Iterator[str]:
    group = frame.width / len(labels)
    side_by_side = chart.kind == "bars"
    wide = group * 0.78 if group < 90 or side_by_side else 70.0
    for i, label in enumerate(labels):
        middle = frame.left + group * (i + 0.5)
        # With few groups bars would be walls.
        each = min(wide / len(chart.series), 46.0) if side_by_side else wide
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
            yield (
                f'<rect class="mark c{j % COLOURS}" x="{x:.2f}" y="{top:.2f}" width="{max(each - (each > 4), 0.5):.2f}" '
                f'height="{max(bottom - top, 0.4):.2f}" data-tip="{_tip(series, label, value, chart)}"/>'
            )
        foot = frame.bottom + 16
        if tilted and i % math.ceil(_TILTED / group):
            continue
        if tilted:
            yield (
                f'<text class="tick" text-anchor="end" transform="translate({middle + 4:.1f} {foot - 4:.1f}) rotate(-50)">'
                f"{escape(label if len(label) < 20 else label[:18] + '…')}</text>"
            )
        else:
            yield f'<text class="tick" x="{middle:.1f}" y="{foot:.1f}" text-anchor="middle">{escape(label)}</text>'


def _lines(chart: Chart, frame: _Frame, y: Scale) -> Iterator[str]:
    numbers = [float(x) for x in chart.x]
    low, high = math.log(numbers[0]), math.log(numbers[-1])

    def across(value: float) -> float:
        return frame.left + 10 + (math.log(value) - low) / ((high - low) or 1.0) * (frame.width - 24)

    last = -1e9
    for number in numbers:
        label, at = shown(int(number) if number == int(number) else number), across(number)
        if at - last > len(label) * _CHARACTER + 8:
            yield f'<text class="tick" x="{at:.1f}" y="{frame.bottom + 16:.1f}" text-anchor="middle">{label}</text>'
            last = at
    dots: list[str] = []
    for j, series in enumerate(chart.series):
        points = [(n, v) for n, v in zip(numbers, series.values, strict=True) if v is not None]
        path = " ".join(f"{across(n):.1f},{y(v):.1f}" for n, v in points)
        yield f'<polyline class="line c{j % COLOURS}" points="{path}"/>'
        dots += [
            f'<circle class="mark dot c{j % COLOURS}" cx="{across(n):.1f}" cy="{y(v):.1f}" r="4" '
            f'data-tip="{_tip(series, shown(int(n)), v, chart)}"/>'
            for n, v in points
        ]
    yield from dots


def _mark(chart: Chart, frame: _Frame, y: Scale) -> Iterator[str]:
    if chart.mark is None:
        return
    at = y(chart.mark)
    yield f'<line class="reference" x1="{frame.left}" x2="{frame.right:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
    yield (
        f'<text class="reference-label" x="{frame.right:.1f}" y="{at - 5:.1f}" text-anchor="end">'
        f"{escape(chart.mark_label)}</text>"
    )
