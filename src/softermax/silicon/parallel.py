"""Many designs measured in parallel processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def each(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    workers: int | None,
    progress: Callable[[int, str], None] | None,
    name: Callable[[Item], str],
) -> dict[Item, Answer]:
    """What ``work`` answers for every item, in the items' order. ``progress`` gets the number done so far and
    the name of the last."""
    found: dict[Item, Answer] = {}
    with ProcessPoolExecutor(workers or min(len(items), os.cpu_count() or 1)) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        for done in as_completed(waiting):
            item = waiting[done]
            found[item] = done.result()
            if progress is not None:
                progress(len(found), name(item))
    return {item: found[item] for item in items}
