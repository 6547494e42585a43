"""What every command has: a line in the overview, examples that parse, JSON, quiet, verbose, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softermax import cli
from softermax.cli import STORY, build_parser, main, output

Capture = pytest.CaptureFixture[str]


def commands() -> dict[str, argparse.ArgumentParser]:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("no commands")


NAMES = sorted(commands())


def examples(command: argparse.ArgumentParser) -> list[str]:
    assert command.epilog is not None
    heading, *lines = command.epilog.splitlines()
    assert heading == "examples:"
    return [line.strip() for line in lines]


def test_the_overview_fits_a_screen_and_tells_the_paper(capsys: Capture) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "…" not in shown, "a summary is longer than its line"
    for word in ("--json", "--quiet", "--verbose", "--help", "--version", "130 Ctrl-C"):
        assert word in shown
    headings = [line.split()[0] for line in lines[1:-2] if line[:1].strip()]
    assert headings == [heading for heading in STORY if heading in headings]
    listed = [
        line[11:].split()[0] for line in lines[1:] if line[11:12].strip() and line[:10].strip() in STORY
    ]
    listed += [line.split()[0] for line in lines if line.startswith(" " * 11)]
    assert sorted(listed) == sorted(set(NAMES) - {"completion", "mutate"})


def test_help_is_the_overview(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    by_option = capsys.readouterr().out
    main([])
    assert capsys.readouterr().out == by_option


def test_an_unknown_command_is_bad_input(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["finetuen"])
    assert exit_.value.code == 2
    assert "finetuen" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_command_has_what_every_command_has(name: str, capsys: Capture) -> None:
    command = commands()[name]
    options = {option for action in command._actions for option in action.option_strings}
    assert {"--help", "--json", "--quiet", "--verbose", "-q", "-v"} <= options
    assert [action.dest for action in command._actions if not action.help] == [], "an option without help"
    with pytest.raises(SystemExit) as exit_:
        main([name, "--no-such-option"])
    assert exit_.value.code == 2
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_commands_examples_parse(name: str) -> None:
    given = examples(commands()[name])
    assert given
    for example in given:
        line = example.split(" > ")[0]
        program, *words = shlex.split(line)
        assert program == "softermax"
        assert build_parser().parse_args(words).command == name


def test_bad_input_is_named_and_exits_with_2(capsys: Capture) -> None:
    assert main(["verify", "--rows", "0"]) == 2
    assert capsys.readouterr().err == "softermax verify: --rows 0: must be 1 or more\n"


@pytest.mark.parametrize(
    "fault", ["raise RuntimeError('broken')", "int('broken')", "len(5)", "[][0]", "import json.broken.more"]
)
def test_a_fault_of_the_program_exits_with_3(
    fault: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Also one whose exception has the type that bad input has."""

    def fail(*_: object, **__: object) -> None:
        exec(fault)

    monkeypatch.setattr("softermax.spec.get_spec", fail)
    monkeypatch.setattr("softermax.cli.core.get_spec", fail)
    expected = 2 if fault.startswith("import") else 3
    assert main(["tables", "--spec", "paper"]) == expected
    assert ("Traceback" in capsys.readouterr().err) == (expected == 3)


FAULTY = """
import sys
from softermax import cli
from softermax import executor
from softermax.spec import SoftermaxSpec
from softermax.progress import silent

def fault(item):
    return int("broken")

def refusal(item):
    return SoftermaxSpec(slice_width=item)

def silicon(args):
    executor.each(globals()[sys.argv[1]], [0], 1, silent, str)
    return 0

import softermax.cli.silicon
softermax.cli.silicon.silicon = silicon
sys.exit(cli.main(["silicon"]))
"""


@pytest.mark.parametrize(("work", "code"), [("fault", 3), ("refusal", 2)])
def test_a_workers_fault_is_a_fault_and_its_refusal_bad_input(work: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", FAULTY, work], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) == (code == 3)


def test_a_result_names_its_command_without_the_places_of_one_machine() -> None:
    typed = ["silicon", "--pdk-root", "/home/me/pdk", "--width", "16", "--out=results here", "--json"]
    assert cli.command_line(typed) == "softermax silicon --pdk-root PDK --width 16 --out FOLDER --json"


def test_a_result_names_an_absolute_path_by_its_last_part() -> None:
    assert (
        cli.command_line(["evaluate", "/somewhere/stsb/model", "--json"]) == "softermax evaluate model --json"
    )


def test_verbose_says_what_ran_and_how_it_ended(capsys: Capture) -> None:
    assert main(["presets", "--verbose"]) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"presets: softermax {cli.__version__}"
    assert last.startswith("presets: exit code 0 after ")


def on_terminal(*words: str, rows: int = 24, columns: int = 80) -> str:
    """What a program shows on a terminal."""
    ours, theirs = pty.openpty()
    size = {"LINES": str(rows), "COLUMNS": str(columns), "TERM": "xterm"}
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | size)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # what Linux says when the last writer has gone
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert child.wait() == 0
    return shown.decode()


def test_tables_are_drawn_on_a_terminal_and_plain_in_a_pipe() -> None:
    pytest.importorskip("rich")
    command = [sys.executable, "-m", "softermax.cli", "tables", "--spec", "paper"]
    drawn = on_terminal(*command, columns=120)
    assert "┃" in drawn
    assert "\x1b[" in drawn
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert plain.isascii()
    assert plain.splitlines()[0].split()[:3] == ["spec", "function", "segments"]


PROGRESS = """
from softermax.cli.output import progress
with progress("cells") as step:
    for done in range(4):
        step(done, 3, "rte")
"""


def test_progress_is_a_bar_on_a_terminal_and_lines_in_a_pipe() -> None:
    pytest.importorskip("rich")
    shown = on_terminal(sys.executable, "-c", PROGRESS)
    assert "━" in shown
    assert "3/3" in shown
    piped = subprocess.run([sys.executable, "-c", PROGRESS], capture_output=True, text=True, check=True)
    assert piped.stdout == ""
    assert piped.stderr.startswith("cells: 3/3, ")
    assert piped.stderr.count("\n") == 1


def test_the_time_left_counts_from_where_the_work_resumed(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    clock = iter([0.0, 5.0, 25.0])  # begun, 200 of 300 found done, ten more after 20 s
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.progress("steps") as show:
        show(200, 300, "")
        show(210, 300, "")
    assert capsys.readouterr().err == "steps: 210/300, 180 s left\n"


BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_softermax
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_commands_options_and_values(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "softermax.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        line = ["bash", "-c", BASH, "bash", str(script), "softermax", *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()

    assert completed("ver") == ["verify"]
    assert set(completed("")) >= set(NAMES)
    assert completed("verify", "--ro") == ["--rows"]
    assert completed("bench", "att") == ["attention"]
    assert set(completed("tables", "--spec", "row")) == {"row-scaled", "row-scaled+fold"}


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_completion_of_other_shells_names_the_commands(shell: str, capsys: Capture) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in NAMES)


def test_ctrl_c_leaves_what_was_there_and_nothing_half_written(tmp_path: Path) -> None:
    """A real SIGINT while a command that writes files is at work."""
    pytest.importorskip("amaranth")
    pytest.importorskip("pyosys")
    out = tmp_path / "rtl"
    out.mkdir()
    before = out / "softermax_top.v"
    before.write_text("module kept; endmodule\n")
    command = ["rtl", "--slices", "100000", "--verbose", "--out", str(out)]
    child = subprocess.Popen(
        [sys.executable, "-m", "softermax.cli", *command],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert child.stderr.readline().startswith("rtl: ")  # it has begun
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=120)
    assert child.returncode == 130
    assert rest == "interrupted\n"
    assert sorted(path.name for path in out.iterdir()) == [before.name]
    assert before.read_text() == "module kept; endmodule\n"


POOL = """
import sys, time
from pathlib import Path
from softermax import cli
from softermax.progress import silent
from softermax import executor

def work(seconds):
    Path(sys.argv[1], str(seconds)).touch()
    time.sleep(seconds)

def silicon(args):
    executor.each(work, [600, 601, 602, 603], 2, silent, str)
    return 0

import softermax.cli.silicon
softermax.cli.silicon.silicon = silicon
sys.exit(cli.main(["silicon"]))
"""


def test_ctrl_c_ends_workers_and_what_is_queued(tmp_path: Path) -> None:
    """As in a terminal, the signal reaches every process of the group."""
    command = [sys.executable, "-c", POOL, str(tmp_path)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while len(list(tmp_path.iterdir())) < 2:
        assert child.poll() is None
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    _, shown = child.communicate(timeout=60)
    assert child.returncode == 130
    assert shown == "interrupted\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["600", "601"]
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)


_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)],
)
def test_threads_that_wait_leave_their_core_unless_the_user_says_otherwise(
    theirs: dict[str, str], ours: str | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _WAITING}
    code = (
        "import os, sys; from softermax.cli import main, torch_setup\n"
        "def begun(name, extra): print('torch' in sys.modules, os.environ.get('GOMP_SPINCOUNT')); raise SystemExit\n"
        "torch_setup.need = begun\n"
        "main(['finetune', '--out', 'nowhere'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment | theirs, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", str(ours)]
