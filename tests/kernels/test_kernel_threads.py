"""Several Python threads at once, and a child process after the pool has started."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from softermax import PRESETS, golden
from softermax.kernels import softermax_int8

from .native_build import words


def test_concurrent_calls_do_not_disturb_each_other(path: str, rng: np.random.Generator) -> None:
    batches = [words(rng, 700, 400 + 3 * i) for i in range(4)]
    spec = PRESETS["paper"]
    want = [golden.softermax(raw[:50], spec).words for raw in batches]

    def run(i: int) -> bool:
        got = [softermax_int8(batches[i], spec, threads=2)[0] for _ in range(10)]
        return all(np.array_equal(one[:50], want[i]) and np.array_equal(one, got[0]) for one in got)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_other_python_threads_run_meanwhile() -> None:
    """While the kernel works, which takes it a while, this thread's counter goes on."""
    raw = np.zeros((3000, 8192), dtype=np.int8)
    done = threading.Event()

    def work() -> None:
        softermax_int8(raw, PRESETS["paper"], path="scalar")
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    worker.join()
    assert turns > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_has_a_pool_of_its_own(rng: np.random.Generator) -> None:
    raw = words(rng, 2000, 512)
    want, _ = softermax_int8(raw, PRESETS["paper"], threads=2)
    child = os.fork()
    if child == 0:
        got, _ = softermax_int8(raw, PRESETS["paper"], threads=2)
        os._exit(0 if np.array_equal(got, want) else 1)
    assert os.waitpid(child, 0)[1] == 0
