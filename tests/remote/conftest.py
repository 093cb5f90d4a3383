"""One store for all tests of a process, emptied before each, and no pauses between attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import StoreServer, running_store

from headrace.data.remote import remote_file
from headrace.data.remote.listing import Stores


@pytest.fixture(scope="session")
def running() -> Iterator[StoreServer]:
    with running_store({"warm": b"x"}) as server:
        # obstore's threads and their descriptors live as long as the process.
        Stores(server.options).path("s3://bucket/warm").open().read(0, 1)
        yield server


@pytest.fixture
def store(running: StoreServer, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    running.objects.clear()
    running.requests.clear()
    running.fault, running.states_etags = None, True
    monkeypatch.setattr(remote_file, "pause", lambda _: None)
    return running
