"""Independent pieces of work, many at a time: in processes of this machine, or on a Ray cluster.

Whoever has such work gives a function and its items and gets the answers, in the items' order, whatever order they came in:
nothing that is computed depends on where it was computed.

A place is named by ``ray``: None are processes of this machine, ``local`` starts Ray here, ``auto`` joins the cluster that this
machine is a node of, anything else is the address of one. Ray gives the work of a worker or a node that dies to another one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from softermax.extras import need
from softermax.progress import Progress

Item = TypeVar("Item")
Answer = TypeVar("Answer")

LOCAL = "local"
"""Ray on this machine alone."""


class Executor(ABC):
    """Where work is done."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Pieces that are worked on at a time."""

    def each(
        self,
        work: Callable[[Item], Answer],
        items: Sequence[Item],
        progress: Progress,
        name: Callable[[Item], str],
        keep: Callable[[Item, Answer], object] = lambda item, answer: None,
    ) -> dict[Item, Answer]:
        """What ``work`` answers for every item, in the items' order. ``progress`` gets the name of the last one, and
        ``keep`` each answer as it comes."""
        found: dict[Item, Answer] = {}
        for item, answer in self._answers(work, items):
            found[item] = answer
            keep(item, answer)
            progress(len(found), len(items), name(item))
        return {item: found[item] for item in items}

    @abstractmethod
    def _answers(
        self, work: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[tuple[Item, Answer]]:
        """Answers as they come."""


class _Processes(Executor):
    def __init__(self, pool: ProcessPoolExecutor, size: int) -> None:
        super().__init__(size)
        self._pool = pool

    def _answers(
        self, work: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[tuple[Item, Answer]]:
        waiting = {self._pool.submit(work, item): item for item in items}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


class _Remote(Exception):
    """A traceback of another process, as text: the cause of what was raised there."""


class _Ray(Executor):
    def __init__(self, ray: Any) -> None:
        super().__init__(max(1, int(ray.cluster_resources().get("CPU", 1))))
        self._ray = ray
        # A worker that dies, with its node or alone, costs its piece of work another run and nothing else.
        self._call = ray.remote(num_cpus=1, max_retries=-1)(_call)

    def _answers(
        self, work: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[tuple[Item, Answer]]:
        ray = self._ray
        shared = ray.put(work)
        waiting = {self._call.remote(shared, item): item for item in items}
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                for reference in done:
                    try:
                        answer = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from _Remote(str(error))
                    yield waiting.pop(reference), answer
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def _call(work: Callable[[Item], Answer], item: Item) -> Answer:
    return work(item)


@contextlib.contextmanager
def executor(workers: int | None = None, ray: str | None = None) -> Iterator[Executor]:
    """A place for work, as long as the block lasts; ``workers`` are the cores of this machine unless given."""
    count = workers or os.cpu_count() or 1
    if ray is None:
        with processes(count) as pool:
            yield _Processes(pool, count)
        return
    with _cluster(ray, count) as module:
        yield _Ray(module)


@contextlib.contextmanager
def _cluster(address: str, workers: int) -> Iterator[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    ray = need("ray", "ray")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    options |= (
        {"address": LOCAL, "num_cpus": workers, "include_dashboard": False}
        if address == LOCAL
        else {"address": address}
    )
    try:
        ray.init(**options)
    except (ConnectionError, ValueError) as error:
        said = str(error).splitlines()[0]
        if address == LOCAL:
            raise ValueError(f"Ray does not start here ({said}); take --workers {workers} alone") from None
        raise ValueError(
            f"--ray {address}: no cluster answers ({said}); start one with `ray start --head`, or take --ray alone"
        ) from None
    try:
        # Ray tells of workers that died on standard output, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose work ends at once when whoever waits for it is interrupted or killed. Files are written whole or
    not at all, so nothing is left but what was finished."""
    pool = ProcessPoolExecutor(count, initializer=_begin_worker)
    try:
        yield pool
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        # Waited for, because the interpreter's own end of a pool races with the pool's thread.
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _begin_worker() -> None:
    # Ctrl-C reaches every process of a terminal: workers leave without a word, the one that waits for them tells.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever: the other workers hold its queue open."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def each(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    workers: int | None,
    progress: Progress,
    name: Callable[[Item], str],
    ray: str | None = None,
) -> dict[Item, Answer]:
    """`Executor.each` in a place of its own."""
    count = workers or min(len(items), os.cpu_count() or 1)
    with executor(max(count, 1), ray) as place:
        return place.each(work, items, progress, name)
