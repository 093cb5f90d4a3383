"""Two stores for all tests of a process: one of our own that fails as told, emptied before each, and moto's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from servers import StoreServer, running_store

from headrace.data.remote.listing import Stores
from headrace.stores import retrying

if TYPE_CHECKING:
    from moto_store import MotoStore


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
    running.uploads.clear()
    running.fault, running.states_etags, running.modified_s, running.page = None, True, 1_700_000_000.0, 1000
    monkeypatch.setattr(
        retrying, "REMOTE_RETRIES", replace(retrying.REMOTE_RETRIES, first_pause_s=0.001, most_pause_s=0.01)
    )
    return running


@pytest.fixture(scope="session")
def running_s3() -> Iterator[MotoStore]:
    """moto's server, imported where it is used: that takes most of a second."""
    from moto_store import running_moto

    with running_moto() as server:
        server.make_bucket()
        server.put("warm", b"x")
        Stores(server.options).path(server.address("warm")).open().read(0, 1)
        yield server


@pytest.fixture
def moto(running_s3: MotoStore) -> Iterator[MotoStore]:
    """The same server, with an empty bucket of the test's own."""
    running_s3.make_bucket()
    yield running_s3
    running_s3.remove_buckets()
