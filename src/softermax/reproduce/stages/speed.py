"""The timed stages: a BERT-Large layer's parts, and the native kernels."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from softermax.reproduce.stage import Progress, Settings


def breakdown(settings: Settings, progress: Progress) -> dict[str, Any]:
    from softermax.speed.breakdown import SOFTMAXES, measure

    found = measure(
        settings["sequences"],
        settings["precisions"],
        SOFTMAXES,
        settings["repeats"],
        lambda done, total, note: progress(done / total, note),
    )
    return {"rows": [entry.to_json() for entry in found]}


def kernels(settings: Settings, progress: Progress) -> dict[str, Any]:
    """One thread, as ratios of time; what is timed and how is in `softermax.speed.kernels`."""
    from softermax.extras import need

    torch = need("torch", "torch")
    from softermax import kernels as native

    if native.isa() is None:
        raise ImportError(f"nothing to time: {native.status()}")
    from softermax.speed import kernels as bench

    torch.set_num_threads(1)
    runs = {
        "kernels": lambda: bench.bench_kernels(1, settings["rounds"], settings["large"]),
        "attention": lambda: bench.bench_attention(1, settings["rounds"]),
        "training": lambda: bench.bench_training(1, settings["rounds"]),
    }
    found = []
    for done, what in enumerate(settings["what"]):
        progress(done / len(settings["what"]), what)
        found += runs[what]()
    return {
        "rows": [asdict(one) for one in found],
        "isa": native.isa(),
        "torch_isa": torch.backends.cpu.get_cpu_capability(),
    }
