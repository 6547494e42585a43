"""Code blocks of the README and the site: found, and run as a reader would.

A block may have a comment on the line before its fence: ``<!-- slow: why -->`` leaves it to the slow tests,
``<!-- not run: why -->`` to the reader. Whether it runs or not, each ``softermax`` command is parsed.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import re
import shlex
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softermax.cli import build_parser, main

ROOT = Path(__file__).parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_FENCE = re.compile(r"^```(\S*)\s*$")
_MARK = re.compile(r"^<!-- (slow|not run): (\S.*) -->$")
_SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line that begins with ``$``, and what is shown below it."""

    words: list[str]
    expected: str


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Fenced blocks, and indented ones, whose language is told by how they begin."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence:
            end = next(i for i in range(at + 1, len(lines)) if lines[i].rstrip() == "```")
            mark = _MARK.match(lines[at - 1]) if at else None
            text = "\n".join(lines[at + 1 : end]) + "\n"
            text = _SNIPPET.sub(lambda snippet: (ROOT / snippet[1]).read_text(encoding="utf-8"), text)
            found.append(Block(page, at + 1, fence[1], text, mark[1] if mark else ""))
            at = end + 1
        elif lines[at].startswith("    ") and at and not lines[at - 1].strip():
            end = at
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            text = "\n".join(line[4:] for line in lines[at:end]) + "\n"
            if not _is_list_item(lines, at) and not lines[_before(lines, at)].startswith(":::"):
                found.append(Block(page, at + 1, _language(text), text))
            at = end
        else:
            at += 1
    return found


def _before(lines: list[str], at: int) -> int:
    return next((i for i in range(at - 1, -1, -1) if lines[i].strip()), 0)


def _is_list_item(lines: list[str], at: int) -> bool:
    return bool(re.match(r"\s*([-*]|\d+\.) ", lines[_before(lines, at)]))


def _language(text: str) -> str:
    if text.startswith("softermax "):
        return "commands"
    if text.startswith(("from ", "import ")):
        return "python"
    return "json" if text.startswith("{") else "text"


def commands(block: Block) -> list[Command]:
    if block.language in ("commands", ""):
        lines = [line for line in block.text.splitlines() if line.startswith("softermax ")]
        return [Command(shlex.split(line, comments=True), "") for line in lines]
    found: list[Command] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        found.append(Command(shlex.split(line, comments=True), expected))
    return found


def check_command(words: list[str]) -> None:
    """That a command exists and takes these options, without running it."""
    program, *rest = words
    if "softermax.cli" in rest:
        program, rest = "softermax", rest[rest.index("softermax.cli") + 1 :]
    if program == "softermax":
        rest = rest[: rest.index(">")] if ">" in rest else rest
        try:
            build_parser().parse_args(rest)
        except SystemExit as exit_:
            if exit_.code != 0:
                raise AssertionError(f"softermax {shlex.join(rest)}: does not parse") from None
    elif program == "pip":
        _check_pip(rest)
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(rest) <= set(targets), f"make {rest}: targets are {targets}"
    elif program == "python" and rest[0] == "-m":
        assert find_spec(rest[1]) is not None, rest[1]
    elif program in ("python", "bash"):
        assert (ROOT / rest[0]).is_file(), rest[0]
    else:
        assert program in ("cd", "curl", "mkdocs"), f"{program}: nothing checks this command"


def _check_pip(words: list[str]) -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert words[0] == "install", words
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        if flag in ("-c", "-r"):
            assert (ROOT / value).is_file(), value
        for extra in re.findall(r"\[([\w,]+)\]", flag):
            assert set(extra.split(",")) <= set(extras["optional-dependencies"]), flag


@dataclass
class Reader:
    """Who follows a page from top to bottom, in one namespace and one folder."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})

    def run(self, block: Block) -> None:
        if block.language == "pycon" or (block.language == "python" and block.text.startswith(">>>")):
            self._run_doctest(block)
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.text, block.where, "exec"), self.names)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "console":
            for command in commands(block):
                self._run_command(command, block)

    def _run_doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, self.names, block.where, str(block.page), block.line
        )
        assert test.examples, block.where
        told: list[str] = []
        runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
        failed = runner.run(test, out=told.append, clear_globs=False).failed
        self.names.update(test.globs)
        assert not failed, "".join(told)

    def _run_command(self, command: Command, block: Block) -> None:
        if command.words[0] != "softermax":
            return
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            code = main(command.words[1:])
        assert code == 0, f"{block.where}: {shlex.join(command.words)} ended with {code}"
        if command.expected.strip():
            got = shown.getvalue()
            same = doctest.OutputChecker().check_output(command.expected, got, FLAGS)
            assert same, f"{block.where}: {shlex.join(command.words)} printed\n{got}"
