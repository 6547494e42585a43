"""Figures in sentences, taken from docs/results/*.json and from the paper's own.

    <!-- figure: silicon.area_ratio unit=unnormed preset=paper width=16 library=nangate45 baseline=two-pass .2f -->0.15<!-- /figure -->

names a result file and a column of its rows, then which rows, then a format of Python's; what stands between the two
comments is made from them. ``key=a|b`` takes either, ``key=384..4096`` a range of numbers. Where several rows are meant, a word
before the format says what to do with them: ``range`` gives "low to high", ``mean`` and ``count`` one number. ``negated`` turns a
gain into a loss. A column may be a path (``milliseconds.softmax``); ``bench-kernels@date`` is the file's own date, and so are its command,
versions and machine; ``paper`` is the paper: ``paper.pe.ratios.energy``, and
``paper-accuracy`` its Table III in rows: model, task, int8, softermax, difference. Shorter is the name of a figure in `NAMED`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from softermax.paper import figures as paper
from softermax.results import Envelope

RESULTS = Path(__file__).parents[1] / "results"
_FIGURE = re.compile(r"<!-- figure: (.+?) -->.*?<!-- /figure -->", re.DOTALL)
_WORDS = ("range", "mean", "count", "negated")

_UNIT = "width=16 library=nangate45 preset=paper baseline=two-pass .2f"
_GENERIC = "width=16 library=nangate45 preset=paper baseline=generic .2f"
_PE = "width=32 library=nangate45 sequence=384 baseline=two-pass .2f"
_TEXT = "model=smollm2 text=wikitext2_test.txt context=2048"
_MINILM = "model=minilm task=average"
NAMED = {
    "unit area": f"silicon.area_ratio unit=unnormed {_UNIT}",
    "unit energy": f"silicon.energy_ratio unit=unnormed {_UNIT}",
    "unit area, range": "sensitivity.area_ratio unit=unnormed preset=paper baseline=two-pass range .2f",
    "unit energy, range": "sensitivity.energy_ratio unit=unnormed preset=paper baseline=two-pass range .2f",
    "unit area, generic": f"silicon.area_ratio unit=unnormed {_GENERIC}",
    "unit energy, generic": f"silicon.energy_ratio unit=unnormed {_GENERIC}",
    "lean area": 'silicon.area_ratio "unit=both units" preset=lean baseline=two-pass range .2f',
    "lean energy": 'silicon.energy_ratio "unit=both units" preset=lean baseline=two-pass range .2f',
    "both units area": 'silicon.area_ratio "unit=both units" preset=paper|paper-32 baseline=two-pass range .2f',
    "both units energy": 'silicon.energy_ratio "unit=both units" preset=paper|paper-32 baseline=two-pass range .2f',
    "whole lean area": "silicon.area_ratio unit=whole preset=lean baseline=two-pass range .2f",
    "whole lean energy": "silicon.energy_ratio unit=whole preset=lean baseline=two-pass range .2f",
    "lean area, generic": 'silicon.area_ratio "unit=both units" preset=lean baseline=generic range .2f',
    "lean energy, generic": 'silicon.energy_ratio "unit=both units" preset=lean baseline=generic range .2f',
    "PE energy, range": "pe-what-if.energy_ratio scheme=fixed width=32 library=nangate45 range .2f",
    "paper's unit area": "paper.units.ratios.unnormed.area .2f",
    "paper's unit energy": "paper.units.ratios.unnormed.energy .2f",
    "PE energy": f"pe.energy_ratio scheme=fixed {_PE}",
    "PE energy, generic": f"pe.energy_ratio scheme=fixed {_PE.replace('two-pass', 'generic')}",
    "PE energy, deferred": f"pe.energy_ratio scheme=deferred {_PE}",
    "paper's PE energy": "paper.pe.ratios.energy .2f",
    "points over int8": f"accuracy-differences.mean {_MINILM} preset=paper +.1f",
    "points over int8, absorbed": f"accuracy-differences.mean {_MINILM} preset=paper+absorbed +.1f",
    "points over int8, absorbed, low": f"accuracy-differences.low {_MINILM} preset=paper+absorbed +.1f",
    "points over int8, absorbed, high": f"accuracy-differences.high {_MINILM} preset=paper+absorbed +.1f",
    "points over int8, lean": f"accuracy-differences.mean {_MINILM} preset=lean+fold +.1f",
    "points over int8, lean, low": f"accuracy-differences.low {_MINILM} preset=lean+fold +.1f",
    "points over int8, lean, high": f"accuracy-differences.high {_MINILM} preset=lean+fold +.1f",
    "paper's points over int8": "paper-accuracy.difference model=BERT-Base mean +.1f",
    "perplexity lost, deferred": f"perplexity.over_exact variant=paper+fold:deferred {_TEXT} .1%",
    "perplexity lost": f"perplexity.over_exact variant=paper+fold {_TEXT} .0%",
    "model times as fast": 'bench-model.ratio versus="onnxruntime int8" threads=1 range .1f',
    "model over fp32": 'bench-model.ratio versus="Hugging Face fp32" threads=1 range .1f',
    "times as fast": 'bench-kernels.ratio case="int8 whole-row" versus="torch fp32" columns=384..4096 range .1f',
}
"""Figures that pages share, by a name of their own."""

ResultRow = dict[str, Any]


def rows(name: str) -> list[ResultRow]:
    """The rows of a result file, with what follows from them; none where nothing was measured."""
    if name == "paper-accuracy":
        return list(_paper_accuracy())
    path = RESULTS / f"{name}.json"
    found = [dict(row) for row in Envelope.load(path).rows] if path.is_file() else []
    derive = _DERIVED.get(Path(name).name)
    return [row | more for row, more in zip(found, derive(found), strict=True)] if derive else found


def _paper_accuracy() -> Iterator[ResultRow]:
    for model, arms in paper()["accuracy"]["models"].items():
        for task, int8 in arms["baseline"].items():
            ours = arms["softermax"][task]
            yield {"model": model, "task": task, "int8": int8, "softermax": ours, "difference": ours - int8}


def _over_exact(found: Sequence[ResultRow]) -> Iterator[ResultRow]:
    """Perplexity against the exact softmax on the same text and context."""

    def text(row: ResultRow) -> tuple[Any, ...]:
        return tuple(row.get(key) for key in ("model", "text", "tokens", "context"))

    exact = {text(row): row["perplexity"] for row in found if row["variant"] == "exact"}
    for row in found:
        base = exact.get(text(row))
        yield {"exact": base, "over_exact": row["perplexity"] / base - 1 if base else None}


def _shares(found: Sequence[ResultRow]) -> Iterator[ResultRow]:
    """Of a layer's time: each part's share, softmax's without dropout, and softmax's time over torch's."""
    torch = {
        (row["sequence"], row["precision"]): row["milliseconds"]["softmax"]
        for row in found
        if row["softmax"] == "torch"
    }
    for row in found:
        parts, total = row["milliseconds"], sum(row["milliseconds"].values())
        yield {
            "total": total,
            "share": {name: time / total for name, time in parts.items()},
            "share_without_dropout": parts["softmax"] / (total - parts["dropout"]),
            "over_torch": parts["softmax"] / torch[row["sequence"], row["precision"]],
        }


_DERIVED: dict[str, Callable[[Sequence[ResultRow]], Iterator[ResultRow]]] = {
    "perplexity": _over_exact,
    "breakdown": _shares,
}


def figure(asked: str) -> str:
    """What a marker asks for, as a reader sees it."""
    name, *words = shlex.split(NAMED.get(asked, asked))
    file, _, column = name.partition(".")
    form = words.pop() if words and "=" not in words[-1] and words[-1] not in _WORDS else ""
    how = [word for word in words if word in _WORDS]
    wanted = dict(word.split("=", 1) for word in words if word not in _WORDS)
    if file == "paper":
        values = [_at(paper(), column, asked)]
    elif "@" in name:
        file, _, column = name.partition("@")
        values = [_at(asdict(Envelope.load(RESULTS / f"{file}.json")), column, asked)]
    else:
        values = [_at(row, column, asked) for row in rows(file) if _matches(row, wanted, asked)]
    if "count" in how:
        return str(len(values))
    if not values:
        raise ValueError(f"figure: {asked}: no row of {file}.json is like this")
    if "negated" in how:
        values = [-value for value in values]
    if "mean" in how:
        values = [sum(values) / len(values)]
    shown = [_shown(value, form) for value in (min(values), max(values))]
    if "range" in how and shown[0] != shown[1]:
        return f"{shown[0].removesuffix(' %') if form.endswith('%') else shown[0]} to {shown[1]}"
    if shown[0] != shown[1]:
        raise ValueError(f"figure: {asked}: {len(values)} rows are like this; name one, or say range or mean")
    return shown[0]


def _at(row: Mapping[str, Any], path: str, asked: str) -> Any:
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"figure: {asked}: there is no {key!r}; there are {', '.join(value)}")
        value = value[key]
    return value


def _matches(row: ResultRow, wanted: Mapping[str, str], asked: str) -> bool:
    for key, text in wanted.items():
        value = _at(row, key, asked)
        low, dots, high = text.partition("..")
        if dots:
            if not float(low) <= value <= float(high):
                return False
        elif str(value) not in text.split("|"):
            return False
    return True


def _shown(value: Any, form: str) -> str:
    text = re.sub(r"%$", " %", format(value, form))
    return re.sub(r"^[+-](?=0[.0]*( %)?$)", "", text)  # zero has no sign


def filled(text: str) -> str:
    """A text with every figure made anew between its two comments."""
    return _FIGURE.sub(lambda match: f"<!-- figure: {match[1]} -->{figure(match[1])}<!-- /figure -->", text)


def plain(text: str) -> str:
    """A text with figures and without their comments."""
    return _FIGURE.sub(lambda match: figure(match[1]), text)
