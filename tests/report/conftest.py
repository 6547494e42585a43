"""Outcomes of every stage, and the report of them."""

from __future__ import annotations

import pytest
from made_outcomes import made

from softermax.report.document import Document
from softermax.report.sections import compose
from softermax.reproduce.stage import Outcome


@pytest.fixture(scope="session")
def outcomes() -> list[Outcome]:
    return made()


@pytest.fixture(scope="session")
def report(outcomes: list[Outcome]) -> Document:
    return compose(outcomes, "quick", "softermax reproduce", use_stored=False)
