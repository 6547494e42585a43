"""What the sections are made of: outcomes of stages, and stored results where a run has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softermax.report import stored
from softermax.report.document import Origin
from softermax.reproduce.stage import Outcome
from softermax.results import Envelope

STORED = "stored result"
MeasuredRow = dict[str, Any]
"""A row of a stage's result or of a result file."""


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

    def stored(self, name: str) -> Envelope | None:
        return stored.load(name) if self._use_stored else None

    @staticmethod
    def stored_origin(found: Envelope) -> Origin:
        return Origin(STORED, found.date, found.command)

    def rows(
        self, stage: str, names: Sequence[str], same: Sequence[str]
    ) -> tuple[list[MeasuredRow], list[Origin]]:
        """This run's rows, then those of stored results of what it has not measured; each says when it was ``measured``.

        Rows whose values of ``same`` are equal are about the same thing. A full run has all there is.
        """
        result, origins = self.result(stage), self.origin(stage)
        rows: list[MeasuredRow] = []
        if result is not None:
            when = origins[0].what.removeprefix("measured in ")
            rows = [dict(row) | {"measured": when} for row in result["rows"]]
        for name in () if self._is_full(stage) else names:
            kept = self.stored(name)
            if kept is None:
                continue
            known = {tuple(row[key] for key in same) for row in rows}
            more = [row for row in kept.rows if tuple(row[key] for key in same) not in known]
            rows += [dict(row) | {"measured": f"stored, {kept.date}"} for row in more]
            if more:
                origins = [*origins, self.stored_origin(kept)]
        return rows, origins

    def _is_full(self, stage: str) -> bool:
        outcome = self._outcomes.get(stage)
        return outcome is not None and outcome.is_done and outcome.mode == "full"
