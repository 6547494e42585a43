"""What is shown while the stages run: lines in a pipe, bars on a terminal."""

from __future__ import annotations

import io

import pytest

from softermax.reproduce import display
from softermax.reproduce.stage import Outcome
from softermax.reproduce.stages import STAGES

HOW = "torch is not installed; it comes with: pip install '.[torch]'"


def show(shown: display.Display) -> None:
    first, second = STAGES[:2]
    shown.begin(first)
    shown.progress(1, 2, "rows of [16]", 75.0)
    done = Outcome(first.name, first.title, "done", seconds=61.2)
    shown.end(done)
    shown.found(done, [f"Figure [3]: finding {n}" for n in range(1, 7)])
    shown.begin(second)
    shown.end(Outcome(second.name, second.title, "missing", HOW))


def test_lines_tell_what_begins_how_far_it_is_and_how_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_EVERY", 0.0)
    with display.display(STAGES[:2], quiet=False) as shown:
        assert shown is not None
        show(shown)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"[1/2] ladder: {STAGES[0].title}"
    assert said[1] == "[1/2] ladder: 50% rows of [16], about 1 min 15 s left in all"
    assert said[2] == "[1/2] ladder: 1 min 1 s"
    assert said[3:8] == [
        *(f"  Figure [3]: finding {n}" for n in range(1, 5)),
        "  and 2 more in the report",
    ]
    assert said[-1] == f"[2/2] drop-in: missing: {HOW}"


def test_bars_show_the_same_with_brackets_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with display.display(STAGES[:2], quiet=False) as shown:
        assert isinstance(shown, display.Bars)
        show(shown)
    assert ".[torch]" in terminal.getvalue()
    assert "about 1 min 15 s left" in terminal.getvalue()
    assert "ladder: Figure [3]: finding 4" in terminal.getvalue()


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with display.display(STAGES, quiet=True) as shown:
        assert shown is None
    assert capsys.readouterr().err == ""
