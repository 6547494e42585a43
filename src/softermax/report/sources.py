"""What the sections are made of: outcomes of stages, stored results, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softermax.report import stored
from softermax.report.document import Origin
from softermax.report.stored import Stored
from softermax.reproduce.stage import Outcome


class Sources:
    def __init__(self, outcomes: Sequence[Outcome], use_stored: bool = True) -> None:
        self._outcomes = {outcome.name: outcome for outcome in outcomes}
        self._use_stored = use_stored

    def result(self, stage: str) -> dict[str, Any] | None:
        outcome = self._outcomes.get(stage)
        return outcome.result if outcome is not None and outcome.is_done else None

    def origin(self, stage: str) -> list[Origin]:
        outcome = self._outcomes.get(stage)
        if outcome is None or not outcome.is_done:
            return []
        what = "measured in an earlier run" if outcome.earlier else "measured in this run"
        size = " --full" if outcome.mode == "full" else ""
        return [Origin(what, outcome.date, f"softermax reproduce{size} --stage {stage}")]

    def missing(self, stage: str) -> list[str]:
        """Why a stage gave nothing; empty if it did."""
        outcome = self._outcomes.get(stage)
        if outcome is None:
            return [f"{stage}: there is no such stage in this run"]
        if outcome.is_done:
            return []
        how = {"failed": "failed", "missing": "could not run", "not run": "was not run"}[outcome.status]
        return [f"The stage {stage} {how}: {outcome.reason}"]

    def is_full(self, stage: str) -> bool:
        outcome = self._outcomes.get(stage)
        return outcome is not None and outcome.is_done and outcome.mode == "full"

    def stored(self, name: str) -> Stored | None:
        if not self._use_stored:
            return None
        return stored.load_accuracy() if name == "accuracy" else stored.load(name)

    @staticmethod
    def stored_origin(found: Stored) -> Origin:
        return Origin("stored result", found.date, found.command)
