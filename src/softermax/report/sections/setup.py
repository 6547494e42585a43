"""Table II: what each side used. Sizes are compared, tools can only be named."""

from __future__ import annotations

from softermax.paper import figures as paper
from softermax.report import verdict
from softermax.report.document import Cell, ReportTable, Section
from softermax.report.sources import Sources
from softermax.report.verdict import Comparison

_TOOLS = {
    "description": ("hardware description", "Amaranth (Python), Verilog from Yosys"),
    "simulation": ("simulator", "Verilator for RTL; our own gate-level simulator with delays"),
    "synthesis": ("logic synthesis", "Yosys and ABC (pyosys)"),
    "power": ("power analysis", "our own, from Liberty tables and every toggle"),
    "technology": ("technology", "NanGate 45 nm, 1.1 V; ASAP7 where its files are given"),
}


def section(sources: Sources) -> Section:
    said = paper()["setup"]
    rows: list[list[Cell]] = [[title, said["rows"][name], ours] for name, (title, ours) in _TOOLS.items()]
    comparisons: list[Comparison] = []
    missing = []
    try:
        comparisons = _sizes()
    except ImportError as error:
        missing.append(f"The sizes of our processing element: {error}")
    return Section(
        "setup", said["where"], said["title"], said["claim"],
        comparisons=comparisons,
        tables=[ReportTable("Tools and technology", ["", "paper", "here"], rows)],
        notes=["All of ours comes from the package registries; nothing commercial is needed."],
        missing=missing,
    )  # fmt: skip


def _sizes() -> list[Comparison]:
    """The processing element's, 16 and 32 wide."""
    from softermax.rtl.pe.config import ACCUMULATOR_BITS, CONFIGS, OPERAND_BITS

    theirs = paper()["setup"]["rows"]
    found = [
        verdict.equal("weights and activations, bits", theirs["operands"], OPERAND_BITS),
        verdict.equal("accumulation, bits", theirs["accumulation"], ACCUMULATOR_BITS),
    ]
    for width, config in CONFIGS.items():
        sizes = {
            "vector": config.vector_size,
            "lanes": config.lanes,
            "input buffer": config.input_bytes // 1024,
            "weight buffer": config.weight_bytes // 1024,
            "collector": config.collector_bytes // 1024,
        }
        printed = [theirs[name][str(width)] for name in sizes]
        name = f"{width} wide: vector, lanes, input, weight and collector KB"
        found.append(verdict.equal(name, printed, list(sizes.values())))
    return found
