"""`softermax explore` as a user starts it."""

import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from softermax.cli import main


def test_explore_prints_a_link_serves_it_and_ends_on_interrupt() -> None:
    command = [sys.executable, "-m", "softermax.cli", "explore", "--port", "0"]
    options = ["--spec", "row-scaled", "--scores", "2", "x", "3.5"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            assert "#scores=2,x,3.5&powsum=Q(16,6)" in url
            with urllib.request.urlopen(url) as page:
                assert b"Softermax explorer" in page.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == "interrupted\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "must be 127.0.0.1, ::1 or localhost"),
        (["--port", "99999"], "port 99999: must be"),
        (["--scores", "two"], "--scores two: must be numbers"),
        (["--spec", "nothing"], "unknown spec 'nothing'"),
    ],
)
def test_explore_refuses(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", *options]) == 2
    assert says in capsys.readouterr().err
