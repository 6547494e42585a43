"""The hardware stages: RTL against golden, the units' area and energy, the processing element."""

from __future__ import annotations

from typing import Any

from softermax.progress import Progress, within
from softermax.reproduce.stage import Settings
from softermax.spec import DEFERRED, SPECS

SOURCES = ("reproduce.stages.hardware", "golden", "verify", "rtl/", "silicon/")
SEQUENCE = 384


def rtl(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Every case of `softermax verify` for the bodies that are hardware."""
    from softermax.rtl.verification import bodies as rtl_bodies
    from softermax.silicon.verification import bodies as netlist_bodies
    from softermax.verify import check

    wanted = settings["bodies"]
    bodies = [body for body in rtl_bodies() if wanted is None or body.name in wanted]
    if wanted is None:
        bodies += netlist_bodies()
    jobs = [
        (body, name, spec)
        for body in bodies
        for name, spec in SPECS.items()
        if body.supports(spec)
        and (settings["presets"] is None or name.removesuffix(DEFERRED) in settings["presets"])
    ]
    found = []
    for done, (body, name, spec) in enumerate(jobs):
        progress(done, len(jobs), f"{body.name}, {name}")
        verdict = check(body, {name: spec}, settings["rows"])
        found.append(
            {
                "body": body.name,
                "spec": name,
                "cases": verdict.cases,
                "words": verdict.words,
                "differ": verdict.mismatches,
            }
        )
    return {"bodies": found}


def units(settings: Settings, progress: Progress) -> dict[str, Any]:
    from softermax.silicon.table import build_table, orders_of

    root = settings.get("pdk_root")
    libraries = ["nangate45", "asap7"] if root else ["nangate45"]
    progress(0, 1, "attention scores of MiniLM")
    orders = orders_of(libraries, settings["widths"], None, root, settings["baselines"], settings["presets"])
    table = build_table(orders, settings["baselines"], progress=progress)
    return {
        "rows": table.to_json(),
        "stimulus": table.stimulus,
        "columns": table.columns,
        "note": table.note,
        "words_equal": sum(result.words_equal for result in table.results),
        "netlists": len(table.results),
        "late": [f"{r.unit} {r.preset or r.design}, {r.width} wide" for r in table.results if not r.meets],
    }


def pe(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Every netlist that a PE is made of, then its costs for all sequence lengths."""
    from softermax.rtl.pe.config import CONFIGS
    from softermax.silicon.pe.measurement import measure_pe
    from softermax.silicon.pe.sweep import SEQUENCES
    from softermax.silicon.pe.table import pe_table

    root = settings.get("pdk_root")
    libraries = ["nangate45", "asap7"] if root else ["nangate45"]
    designs = [(library, width) for library in libraries for width in settings["widths"]]
    progress(0, 1, "operands of MiniLM")
    measured = [
        measure_pe(
            library, CONFIGS[width], root, None, settings["baselines"], within(progress, number, len(designs))
        )
        for number, (library, width) in enumerate(designs)
    ]
    rows = pe_table(measured, SEQUENCES, baselines=settings["baselines"])
    kept = []
    for row in rows:
        values = row.to_json()
        if row.sequence != SEQUENCE:
            del values["breakdown"]
        kept.append(values | {"baseline_energy_pj": round(row.theirs.energy_pj, 1)})
    return {"rows": kept, "notes": sorted({figures.note for figures in measured} - {""})}
