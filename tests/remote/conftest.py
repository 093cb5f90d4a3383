"""One store for all tests of a process, emptied before each, and no pauses between attempts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from servers import StoreServer, running_store

from headrace.data.remote import remote_file
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_errors import REMOTE_RETRIES
from headrace.fetch import executor


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
    running.fault, running.states_etags, running.modified_s = None, True, 1_700_000_000.0
    monkeypatch.setattr(remote_file, "pause", lambda _: None)
    monkeypatch.setattr(executor, "REMOTE_RETRIES", replace(REMOTE_RETRIES, first_pause_s=0.001, most_pause_s=0.01))
    return running
