"""`softermax explore` as a user starts it."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from softermax.cli import main
from softermax.spec import SoftermaxSpec


@contextmanager
def exploring(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the link that it prints."""
    command = [sys.executable, "-m", "softermax.cli", "explore", "--port", "0", *options]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("spec", "link"),
    [
        ("row-scaled", "#scores=2,x,3.5&powsum=Q(16,6)"),
        ("paper+fold:deferred", "#scores=2,x,3.5&base=fold&normalisation=deferred"),
    ],
)
def test_explore_prints_a_link_serves_it_and_ends_on_interrupt(spec: str, link: str) -> None:
    with exploring("--spec", spec, "--scores", "2", "x", "3.5") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert link in url
        with urllib.request.urlopen(url) as page:
            assert b"Softermax explorer" in page.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "interrupted\n"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc to look for processes in")
def test_no_process_stays_when_the_explorer_is_killed_while_it_makes_a_unit() -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    large = SoftermaxSpec(slice_width=64, pow2_segments=4096, input="Q(6,16)")  # type: ignore[arg-type]
    with exploring() as (process, url):
        body = json.dumps({"spec": large.to_dict(), "unit": "top"}).encode()
        asked = urllib.request.Request(f"{url}api/verilog", body, {"Content-Type": "application/json"})

        def ask() -> None:
            with suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(asked)

        asking = threading.Thread(target=ask)
        asking.start()
        while not (children := _children(process.pid)):
            time.sleep(0.01)
        process.kill()
        asking.join()
    [worker] = children
    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").is_dir():
        assert time.monotonic() < deadline, f"process {worker} is still there"
        time.sleep(0.1)


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "must be 127.0.0.1, ::1 or localhost"),
        (["--port", "99999"], "port 99999: must be"),
        (["--scores", "two"], "--scores two: must be numbers"),
        (["--scores", "1", "nan"], "score 1 = nan: must be -1e6 to 1e6"),
        (["--scores", "1e7"], "must be -1e6 to 1e6"),
        (["--spec", "nothing"], "unknown spec 'nothing'"),
    ],
)
def test_explore_refuses(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *options]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_is_no_search_is_refused(tmp_path, capsys) -> None:
    from softermax.results import enveloped

    other = enveloped("softermax silicon", [{"unit": "whole"}]).save(tmp_path / "silicon.json")
    assert main(["explore", "--port", "0", "--front", str(other)]) == 2
    assert "not a search's result" in capsys.readouterr().err
