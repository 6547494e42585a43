"""Many designs measured in parallel processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from softermax.progress import Progress

Item = TypeVar("Item")
Answer = TypeVar("Answer")


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
) -> dict[Item, Answer]:
    """What ``work`` answers for every item, in the items' order. ``progress`` gets the name of the last."""
    found: dict[Item, Answer] = {}
    with processes(workers or min(len(items), os.cpu_count() or 1)) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        for done in as_completed(waiting):
            item = waiting[done]
            found[item] = done.result()
            progress(len(found), len(items), name(item))
    return {item: found[item] for item in items}
