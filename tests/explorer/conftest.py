"""A running explorer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from softermax.explorer.server import Explorer


@pytest.fixture(scope="session")
def explorer() -> Iterator[Explorer]:
    with Explorer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
