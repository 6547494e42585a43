"""Workers: their answers, and that they end with whoever waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from softermax.progress import silent
from softermax.silicon import parallel

POOL = """
import os, sys, time
from pathlib import Path
from softermax.progress import silent
from softermax.silicon import parallel

def work(number):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(number)

if __name__ == "__main__":
    parallel.each(work, [0, 0.01, 600], 2, silent, str)
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
    assert list(parallel.each(double, [3, 1, 2], 2, silent, str).items()) == [(3, 6), (1, 2), (2, 4)]
