"""Tables: drawn on a terminal where they fit, never with a name cut, numbers without exponents."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from softermax.cli.output import print_table, text

WIDE = {
    "unit": "normalization",
    "library": "nangate45",
    "preset": "paper+skip-zeros",
    "baseline": "two-pass",
    **{f"energy_ratio_{n}": 0.12345678 + n for n in range(9)},
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> str:
    """What a terminal of 100 columns shows of a table."""
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    print_table([row])
    return terminal.getvalue()


def test_a_table_too_wide_for_the_terminal_keeps_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = printed(monkeypatch, WIDE)
    assert "…" not in shown
    for word in ("normalization", "paper+skip-zeros", "nangate45", "energy_ratio_8", "8.123"):
        assert word in shown


def test_a_table_that_fits_in_several_lines_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"body": "a body with a long name [of its own]", "largest_difference": "words " * 30}
    shown = printed(monkeypatch, row)
    assert "┏" in shown
    assert "…" not in shown
    assert "own]" in shown
    assert max(len(line) for line in re.sub(r"\x1b\[\d*m", "", shown).splitlines()) <= 100


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (583512.4, "583,512"),
        (13377, "13,377"),
        (-2e4, "-20,000"),
        (9999.5, "10,000"),
        (9999, "9999"),
        (0.12345678, "0.1235"),
    ],
)
def test_a_cell_has_four_digits_or_the_whole_number(value: float, shown: str) -> None:
    assert text(value) == shown
