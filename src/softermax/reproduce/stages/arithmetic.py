"""The ladder stage: what each idea of the paper changes, on a real row and on many drawn ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from softermax import reference
from softermax.progress import Progress
from softermax.reproduce import ladder as steps
from softermax.reproduce.stage import Settings
from softermax.spec import PRESETS, get_spec
from softermax.tables import pow2_table, reciprocal_table

SOURCES = ("reproduce.stages.arithmetic", "reproduce/attention_row.json", "golden")
SPECS = ("paper", "paper+fold", "row-scaled+fold")
WORDS = ("input", "max", "unnormed", "powsum", "reciprocal", "output")
_DEVIATION = 2.0


def ladder(settings: Settings, progress: Progress) -> dict[str, Any]:
    example = steps.load_example()
    paper = PRESETS["paper"]
    return {
        "example": {
            "source": example.source,
            "text": example.text,
            "query": example.query,
            "tokens": example.tokens,
            "scores": example.scores.tolist(),
        },
        "steps": [
            {
                "name": step.name,
                "against": step.against,
                "max_error": step.max_error,
                "row_sum": step.row_sum,
                "y": step.y.tolist(),
            }
            for step in steps.ladder(example.scores)
        ],
        "trace": steps.trace_rows(steps.paper_trace(example.scores)),
        "running_sums": reference.softermax([2.0, 1.0, 3.0], trace=True)[1].sums.tolist(),
        "words": {name: str(getattr(paper, name)) for name in WORDS},
        "pow2_segments": paper.pow2_segments,
        "tables": [
            {
                "function": "2^x" if table.function == "pow2" else "1/x",
                "segments": table.segments,
                "max_error": table.max_error(),
                "units": table.max_error() * 2**table.fraction,
            }
            for table in (pow2_table(paper), reciprocal_table(paper))
        ],
        "errors": _errors(settings, progress),
    }


def _errors(settings: Settings, progress: Progress) -> list[dict[str, Any]]:
    """Drawn rows of growing length: the largest error of a probability, and the mass that a row keeps."""
    rng = np.random.default_rng(0)
    found = []
    lengths: list[int] = settings["lengths"]
    for done, columns in enumerate(lengths):
        progress(done, len(lengths), f"rows of {columns}")
        scores = rng.normal(0.0, _DEVIATION, (settings["rows"], columns))
        for name in SPECS:
            spec = get_spec(name)
            exact = reference.softmax if spec.base == "fold" else reference.base_two
            expected, y = exact(scores), spec.compute(scores)
            found.append(
                {
                    "spec": name,
                    "columns": columns,
                    "rows": len(scores),
                    "max_error": float(np.abs(y - expected).max()),
                    "mass": float(y.sum(axis=1).mean()),
                }
            )
    return found
