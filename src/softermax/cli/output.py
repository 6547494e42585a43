"""What commands print: tables, JSON, progress. Rich on a terminal where it is installed, else text."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softermax.files import write_text
from softermax.progress import Progress, silent
from softermax.results import Envelope, enveloped

TableRow = Mapping[str, Any]


def text(value: Any) -> str:
    """A cell: fractions to four digits, large numbers in full, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and abs(value) >= 9999.5:
        return f"{value:,.0f}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def print_table(
    rows: Sequence[TableRow], title: str | None = None, columns: Sequence[str] | None = None
) -> None:
    """Rows as a table; the columns are the first row's keys unless given.

    No name is ever cut: where a terminal is too narrow for a drawn table even in several lines, it gets a plain one.
    """
    columns = columns or (list(rows[0]) if rows else [])
    cells = [[text(row.get(name)) for name in columns] for row in rows]
    numeric = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in columns]
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.measure import Measurement
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            pass
        else:
            table = Table(title=title, title_justify="left")
            for name, number in zip(columns, numeric, strict=True):
                table.add_column(Text(name.replace("_", " ")), justify="right" if number else "left")
            for line in cells:
                table.add_row(*map(Text, line))
            console = Console()
            # Its least width is that of the longest words: below it rich would cut them.
            boundless = console.options.update_width(sys.maxsize)
            if Measurement.get(console, boundless, table).minimum <= console.width:
                console.print(table)
                return
    if title:
        print(title)
    widths = [max([len(name), *(len(line[i]) for line in cells)]) for i, name in enumerate(columns)]

    def show(line: Iterable[str]) -> None:
        padded = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())

    show(columns)
    show("-" * width for width in widths)
    for line in cells:
        show(line)


def markdown_table(rows: Sequence[TableRow], columns: Sequence[str] | None = None) -> str:
    columns = columns or (list(rows[0]) if rows else [])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(text(row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def write_result(
    args: argparse.Namespace,
    name: str,
    rows: Sequence[TableRow],
    page: str,
    packages: Sequence[str] = ("numpy",),
    notes: Mapping[str, Any] | None = None,
) -> None:
    """What ``--out FOLDER`` writes: ``NAME.json``, the rows in their envelope, and ``NAME.md``, the page."""
    folder = Path(args.out)
    made = enveloped(args.command_line, rows, packages, notes)
    written = [made.save(folder / f"{name}.json"), folder / f"{name}.md"]
    write_text(written[1], page.rstrip() + "\n\n" + origin(made) + "\n")
    if not (args.json or args.quiet):
        print("\n".join(f"wrote {path}" for path in written), file=sys.stderr)


def origin(made: Envelope) -> str:
    """The line under a page's tables: where its figures come from."""
    machine = made.machine
    versions = ", ".join(f"{name} {number}" for name, number in made.versions.items() if number)
    where = f"{machine['cores']} cores, {machine['architecture']}, kernels {machine['kernels']}, Python {machine['python']}"
    kept = "".join(
        f" {', '.join(entry['designs'])}: on {entry['date']} by `{entry['command']}`."
        for entry in made.notes.get("kept", [])
    )
    earlier = "".join(
        f" Before that, on {entry['date']}: `{entry['command']}`."
        for entry in reversed(made.notes.get("earlier", []))
    )
    return f"Measured on {made.date} by `{made.command}` ({versions}; {where}).{kept}{earlier}"


@contextlib.contextmanager
def progress(label: str, quiet: bool = False) -> Iterator[Progress]:
    """Progress on standard error: call what it yields with the steps done, the steps in all and a note.

    On a terminal a bar with the time left; in a pipe a line now and then; nothing when quiet. It learns its length
    on the way: each new length starts a new display.
    """
    if quiet:
        yield silent
        return
    with contextlib.ExitStack() as stack:
        show: Callable[[int, str], None] | None = None
        before = (0, 0)

        def report(done: int, total: int, note: str = "") -> None:
            nonlocal show, before
            if show is None or total != before[1] or done < before[0]:
                stack.close()
                show = stack.enter_context(_bar(label, total) if _has_bars() else _lines(label, total))
            before = done, total
            show(done, note)

        yield report


def _has_bars() -> bool:
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextlib.contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, note="")

        def show(done: int, note: str) -> None:
            bar.update(task, completed=done, note=note)

        yield show


@contextlib.contextmanager
def _lines(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    started = last = time.monotonic()
    first: tuple[int, float] | None = None  # resumed work does not begin at 0

    def show(done: int, note: str) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = first or (done, now)
        if done < total and now - last < 10.0:
            return
        last = now
        fresh = done - first[0]
        left = (now - first[1]) / fresh * (total - done) if fresh else None
        eta = f", {left:.0f} s left" if left is not None and done < total else f", {now - started:.1f} s"
        print(f"{label}: {done}/{total}{eta} {note}".rstrip(), file=sys.stderr, flush=True)

    yield show
