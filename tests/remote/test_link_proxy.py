"""The link that benchmarks and fault tests put before a store: it counts, waits, breaks and returns as told."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator

import pytest
from link_proxy import Link, LinkProxy
from servers import StoreServer

BYTES = bytes(range(256)) * 3_000


@pytest.fixture(scope="module")
def started(running: StoreServer) -> Iterator[LinkProxy]:
    with LinkProxy(running.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(started: LinkProxy, store: StoreServer) -> LinkProxy:
    started.change(Link())
    store.objects["key"] = BYTES
    return started


def get(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/bucket/key")
    return connection.getresponse().read()


def connected(proxy: LinkProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)


def test_each_request_of_one_connection_is_counted_and_waits(proxy: LinkProxy, store: StoreServer) -> None:
    before = proxy.counts()
    proxy.change(Link(latency_s=0.02, jitter_s=0.01))
    connection = connected(proxy)
    began_s = time.monotonic()
    for _ in range(3):
        assert get(connection) == BYTES
    took_s = time.monotonic() - began_s
    connection.close()
    seen = proxy.counts().since(before)
    assert (seen.connections, seen.requests, seen.slow) == (1, 3, 0)
    assert len(store.requests) == 3
    assert 3 * len(BYTES) < seen.bytes < 3 * len(BYTES) + 3_000
    assert took_s >= 3 * 0.02


def test_a_share_of_requests_is_slow(proxy: LinkProxy) -> None:
    before = proxy.counts()
    proxy.change(Link(slow_share=0.3, slow_s=0.001, seed=1))
    connection = connected(proxy)
    for _ in range(30):
        get(connection)
    connection.close()
    assert 0 < proxy.counts().since(before).slow < 30


@pytest.mark.parametrize("link", [Link(bandwidth=10e6), Link(stream_bandwidth=10e6)], ids=["in all", "a connection"])
def test_bytes_take_their_time(proxy: LinkProxy, link: Link) -> None:
    proxy.change(link)
    connection = connected(proxy)
    began_s = time.monotonic()
    assert get(connection) == BYTES
    assert time.monotonic() - began_s >= 0.9 * len(BYTES) / 10e6
    connection.close()


def test_it_dies_and_comes_back_at_the_same_port(proxy: LinkProxy) -> None:
    proxy.change(Link(stream_bandwidth=1e6))
    broken = connected(proxy)
    broken.request("GET", "/bucket/key")
    answer = broken.getresponse()
    proxy.die()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    with pytest.raises(ConnectionError):
        get(connected(proxy))
    broken.close()
    proxy.change(Link())
    proxy.come_back()
    connection = connected(proxy)
    assert get(connection) == BYTES
    connection.close()
