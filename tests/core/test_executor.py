"""Workers: their answers, and that they end with whoever waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from softermax import executor
from softermax.progress import silent

POOL = """
import os, sys, time
from pathlib import Path

import pytest
from softermax.progress import silent
from softermax import executor

def work(number):
    seen = Path(sys.argv[1])
    (seen / str(os.getpid())).touch()
    # However late the second worker begins, the first one leaves it a piece.
    while len(list(seen.iterdir())) < 2:
        time.sleep(0.01)
    time.sleep(number)

if __name__ == "__main__":
    executor.each(work, [0, 0.01, 600], 2, silent, str)
"""


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # One that nobody has waited for yet has ended all the same.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """One is at work, the other has none left and waits: neither is told anything by a kill -9."""
    seen = tmp_path / "seen"
    seen.mkdir()
    (tmp_path / "pool.py").write_text(POOL)
    child = subprocess.Popen([sys.executable, str(tmp_path / "pool.py"), str(seen)])
    try:
        deadline = time.monotonic() + 60
        while len(list(seen.iterdir())) < 2:
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    workers = [int(path.name) for path in seen.iterdir()]
    deadline = time.monotonic() + 30
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [worker for worker in workers if is_alive(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert left == []


def double(number: int) -> int:
    return 2 * number


def test_answers_come_in_the_order_of_the_items() -> None:
    assert list(executor.each(double, [3, 1, 2], 2, silent, str).items()) == [(3, 6), (1, 2), (2, 4)]


RAY = """
import os, sys, time
from pathlib import Path

import pytest
from softermax.executor import executor
from softermax.progress import silent

def work(number):
    seen = Path(FOLDER)
    (seen / f"{number}-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    # The first of the workers to begin waits to be killed; what begins after that goes through.
    while number == 0 and len(list(seen.glob("0-*"))) == 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    return number * number

FOLDER = sys.argv[1]

if __name__ == "__main__":
    with executor(2, "local") as place:
        assert place.size == 2
        found = place.each(work, list(range(8)), silent, str)
    print(list(found.items()))
"""


@pytest.mark.slow
def test_ray_gives_the_work_of_a_killed_worker_to_another(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="comes with the extra ray")
    seen = tmp_path / "seen"
    seen.mkdir()
    (tmp_path / "cluster.py").write_text(RAY)
    command = [sys.executable, str(tmp_path / "cluster.py"), str(seen)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 120
        while not (waiting := list(seen.glob("0-*"))):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(int(waiting[0].name.partition("-")[2]), signal.SIGKILL)
        said, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert said.strip() == str([(number, number**2) for number in range(8)])
    assert len(list(seen.glob("0-*"))) == 2


def test_a_cluster_that_does_not_answer_is_an_error_that_says_what_to_do(monkeypatch) -> None:
    pytest.importorskip("ray", reason="comes with the extra ray")
    monkeypatch.setenv("RAY_TMPDIR", "/nonexistent")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="--ray auto: no cluster answers"):
        executor.each(double, [1], 1, silent, str, "auto")
