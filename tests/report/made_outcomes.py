"""Outcomes of every stage as a run would leave them, small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from softermax.progress import silent
from softermax.reproduce.stage import Outcome
from softermax.reproduce.stages import STAGES
from softermax.reproduce.stages.arithmetic import ladder

_PARTS = ("matrix products", "softmax", "dropout", "rest")


def _breakdown() -> dict[str, Any]:
    rows = []
    for n in (128, 512, 2048):
        for softmax, share in (("torch", n / 8192), ("native", n / 65536)):
            rest = (1 - share) / 3
            times = dict(zip(_PARTS, (rest * 10, share * 10, rest * 10, rest * 10), strict=True))
            rows.append({"sequence": n, "precision": "fp32", "softmax": softmax, "device": "cpu",
                         "milliseconds": times, "softmax_share": share})  # fmt: skip
    return {"rows": rows}


def _drop_in() -> dict[str, Any]:
    rows = [
        {"text": text, "rows": count, "spec": spec, "cosine": cosine, "cosine_low": cosine - 0.01,
         "same_neighbour": 0.9 if count > 50 else None, "attention_moved": 0.04, "row_sum": 0.99}
        for text, count in (("sentences", 96), ("passages of 384 tokens", 3))
        for spec, cosine in (("paper", 0.9635), ("paper+fold", 0.9989))
    ]  # fmt: skip
    return {"model": "minilm", "rows": rows, "source": "movie reviews from PyPI"}


def _finetune() -> dict[str, Any]:
    common = {"task": "movies", "model": "minilm", "metric": "accuracy", "seeds": [0], "spread": 0.0, "train_rows": 768,
              "dev_rows": 400}  # fmt: skip
    entries = [
        common | {"arm": arm, "preset": preset, "mean": mean}
        for arm, preset, mean in (("fp32", None, 77.75), ("int8", None, 79.25), ("softermax", "paper", 78.5))
    ]
    difference = {"task": "movies", "preset": "paper", "model": "minilm", "seeds": [0], "mean": -0.75, "low": -4.25,
                  "high": 2.5, "verdict": ""}  # fmt: skip
    swaps = [
        {"task": "movies", "model": "minilm", "seeds": 1, "int8": 79.25, "paper": -3.5, "paper+fold": 0.25}
    ]
    first = {
        "task": "movies",
        "model": "minilm",
        "seed": 0,
        "losses": [0.69, 0.66, 0.5, 0.45, 0.4],
        "figure": 77.0,
    }
    return {"entries": entries, "differences": [difference], "swaps": swaps, "first_stages": [first],
            "training_seconds": 60.0}  # fmt: skip


def _rtl() -> dict[str, Any]:
    return {"bodies": [{"body": "RTL top", "spec": "paper", "cases": 33, "words": 163842, "differ": 0}]}


def _unit(unit: str, area: float, energy: float) -> dict[str, Any]:
    return {"unit": unit, "width": 16, "library": "nangate45", "preset": "paper", "baseline": "two-pass",
            "clock_ns": 1.5, "slack_ns": 0.3, "baseline_slack_ns": 0.1, "area_um2": 6197.0, "area_ratio": area,
            "energy_pj_per_element": 0.85124, "energy_ratio": energy, "energy_ratio_zero_delay": energy}  # fmt: skip


def _units() -> dict[str, Any]:
    rows = [_unit("unnormed", 0.1503, 0.1229), _unit("normalization", 0.4833, 0.2496)]
    return {"rows": rows, "stimulus": "attention", "columns": 384, "note": "", "words_equal": 98304, "netlists": 4,
            "late": []}  # fmt: skip


def _pe() -> dict[str, Any]:
    rows = []
    for sequence in (64, 384, 2048):
        for scheme, ratio in (("fixed", 0.6531), ("deferred", 0.4421)):
            theirs = 245.0 * sequence**2
            part = {
                "area_um2": 100.0,
                "energy_pj": theirs * ratio,
                "baseline_area_um2": 110.0,
                "baseline_energy_pj": theirs,
            }
            row = {
                "width": 16,
                "sequence": sequence,
                "library": "nangate45",
                "scheme": scheme,
                "baseline": "two-pass",
                "area_ratio": 0.8948,
                "energy_ratio": ratio,
                "energy_pj": theirs * ratio,
                "baseline_energy_pj": theirs,
            }
            rows.append(row | ({"breakdown": {"MACs": part}} if sequence == 384 else {}))  # fmt: skip
    return {"rows": rows, "notes": []}


def _kernels() -> dict[str, Any]:
    rows = [
        {"bench": "kernels", "case": case, "columns": n, "versus": versus, "ratio": ratio, "low": ratio - 0.1,
         "high": ratio + 0.1, "threads": 1, "nanoseconds": 0.2}
        for n in (64, 384, 4096)
        for case, ratio in (("int8 paper", 5.2), ("float paper", 1.7))
        for versus in ("torch fp32", "onnxruntime fp32")
    ]  # fmt: skip
    return {"rows": rows, "isa": "avx2", "torch_isa": "AVX2"}


def _accuracy() -> dict[str, Any]:
    return {
        "entries": [
            {"task": "stsb", "arm": arm, "preset": preset, "model": "minilm", "metric": "pearson_spearman",
             "seeds": [0, 1], "mean": mean, "spread": 0.2, "train_rows": 2500, "dev_rows": 1500}
            for arm, preset, mean in (("fp32", None, 85.5), ("int8", None, 85.4), ("softermax", "paper", 85.3))
        ],
        "differences": [{"task": "stsb", "preset": "paper", "model": "minilm", "seeds": [0, 1], "mean": -0.1, "low": -0.3,
                         "high": 0.1, "verdict": ""}],
        "swaps": [],
        "training_seconds": 1.0,
    }  # fmt: skip


def _perplexity() -> dict[str, Any]:
    common = {"model": "smollm2", "text": "prose from PyPI", "tokens": 8192, "date": "2026-11-16"}
    return {
        "rows": [
            common | {"context": 512, "variant": "exact", "perplexity": 43.91},
            common | {"context": 512, "variant": "row-scaled+fold", "perplexity": 44.34},
        ]
    }


def _results() -> dict[str, dict[str, Any]]:
    return {
        "ladder": ladder({"rows": 5, "lengths": [16, 64]}, silent),
        "drop-in": _drop_in(), "finetune": _finetune(), "accuracy": _accuracy(), "perplexity": _perplexity(),
        "rtl": _rtl(), "units": _units(), "pe": _pe(), "breakdown": _breakdown(), "kernels": _kernels(),
    }  # fmt: skip


def made() -> list[Outcome]:
    results = _results()
    return [
        Outcome(s.name, s.title, "done", "", results[s.name], "quick", 12.3, 20.1, "2026-11-16")
        for s in STAGES
    ]


def without(outcomes: Sequence[Outcome], *names: str, reason: str = "a tool is not there") -> list[Outcome]:
    """The same, with some stages that could not run."""
    return [
        replace(outcome, status="missing", reason=reason, result={}) if outcome.name in names else outcome
        for outcome in outcomes
    ]
