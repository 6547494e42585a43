"""The timed stages: a BERT-Large layer's parts, and the native kernels."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from softermax.progress import Progress
from softermax.reproduce.stage import Settings

SOURCES = ("reproduce.stages.speed", "golden", "functional", "pytorch/", "kernels/", "speed/")


def breakdown(settings: Settings, progress: Progress) -> dict[str, Any]:
    from softermax.speed.breakdown import SOFTMAXES, time_layers

    found = time_layers(
        settings["sequences"],
        settings["precisions"],
        SOFTMAXES,
        settings["repeats"],
        progress,
    )
    return {"rows": [entry.to_json() for entry in found]}


def kernels(settings: Settings, progress: Progress) -> dict[str, Any]:
    """One thread, as ratios of time; what is timed and how is in `softermax.speed`."""
    from softermax.extras import need

    torch = need("torch", "torch")
    from softermax import kernels as native

    if native.isa() is None:
        raise ImportError(f"nothing to time: {native.status()}")
    from softermax.speed.attention import attention_races
    from softermax.speed.kernels import kernel_races
    from softermax.speed.race import run_races
    from softermax.speed.training import training_races

    torch.set_num_threads(1)
    races = {
        "kernels": lambda: kernel_races(1, settings["large"]),
        "attention": attention_races,
        "training": training_races,
    }
    chosen = [race for what in settings["what"] for race in races[what]()]
    found = run_races(chosen, settings["rounds"], 1, progress)
    return {
        "rows": [asdict(one) for one in found],
        "isa": native.isa(),
        "torch_isa": torch.backends.cpu.get_cpu_capability(),
    }
