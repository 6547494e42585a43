"""How long a search took, by its storage's own times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softermax.extras import need
from softermax.search.engine import Search


def seconds_of(search: Search, storage: Path) -> float:
    """Spent on the trials that were judged, batch by batch: a pause between two batches does not count."""
    optuna = need("optuna", "search")
    study = optuna.load_study(study_name=search.name, storage=f"sqlite:///{storage}")
    batches: dict[str, list[Any]] = {}
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)):
        batches.setdefault(trial.user_attrs.get("batch", ""), []).append(trial)
    return float(
        sum(
            (max(t.datetime_complete for t in batch) - min(t.datetime_start for t in batch)).total_seconds()
            for batch in batches.values()
        )
    )
