"""A link to a store on loopback, with latency, stragglers and limited bandwidth: a TCP proxy in a process of its own.

HTTP/1.1 clients send no request before they have the answer to the last one. So the first bytes that a client sends
after its connection was opened, or after bytes of an answer, begin a request. Those wait for the latency; nothing of
HTTP is parsed. `python link_proxy.py PORT` runs the proxy of that port; its standard input takes commands.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

_CHUNK_BYTES = 256 << 10
_LIMITED_CHUNK_BYTES = 32 << 10
"""Bytes passed at once: few where bandwidth is limited, so that connections share it evenly."""
_BUFFERED_BYTES = 1 << 20
_BURST_S = 0.002
"""Time by which bytes may be ahead of the bandwidth: a timer is no finer."""
_STOP_S = 10


@dataclass(frozen=True)
class Link:
    """What a link does to requests and to the bytes of answers."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    """A request waits up to this much longer than `latency_s`; each time is equally likely."""
    slow_share: float = 0.0
    slow_s: float = 2.0
    """This share of requests waits `slow_s` instead."""
    bandwidth: float | None = None
    """Bytes a second of all connections together."""
    stream_bandwidth: float | None = None
    """Bytes a second of one connection."""
    seed: int = 0


@dataclass(frozen=True)
class LinkCounts:
    """What passed since the proxy was started."""

    connections: int = 0
    requests: int = 0
    slow: int = 0
    """Requests that waited for `slow_s`."""
    bytes: int = 0
    """Bytes of answers, headers among them."""
    most_at_once: int = 0
    """Most connections that were open at the same time."""
    cpu_s: float = 0.0
    """CPU time of the proxy's process."""

    def since(self, before: LinkCounts) -> LinkCounts:
        """Return what passed after `before`."""
        gone = asdict(before)
        changes = {name: value - gone[name] for name, value in asdict(self).items()}
        return LinkCounts(**{**changes, "most_at_once": self.most_at_once})


class LinkProxy:
    """A proxy before a port of this machine. It stops at the end of its `with` block."""

    def __init__(self, target_port: int, link: Link | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", __file__, str(target_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self._ask("port"))
        self.link = Link()
        self.change(link or self.link)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def change(self, link: Link) -> None:
        """Treat requests and bytes so from now on."""
        self._ask("link", **asdict(link))
        self.link = link

    def counts(self) -> LinkCounts:
        return LinkCounts(**self._ask("counts"))

    def die(self) -> None:
        """Break all connections and refuse new ones."""
        self._ask("die")

    def come_back(self) -> None:
        """Listen again, on the same port."""
        self._ask("come_back")

    def stop(self) -> None:
        """End the process."""
        self._process.communicate(timeout=_STOP_S)

    def __enter__(self) -> LinkProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self, command: str, **values: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, values]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the proxy ended with status {self._process.wait(_STOP_S)}")
        return json.loads(answer)


class _Pace:
    """When bytes may pass at a bandwidth."""

    def __init__(self) -> None:
        self._free_s = 0.0

    def take(self, size: int, bandwidth: float | None, now_s: float) -> float:
        """Return the time at which `size` more bytes have passed."""
        if bandwidth is None:
            return now_s
        self._free_s = max(self._free_s, now_s - _BURST_S) + size / bandwidth
        return self._free_s


class _Proxy:
    """All connections of a proxy, and what it does to them."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.link = Link()
        self.counts: Counter[str] = Counter()
        self.open: set[_FromClient] = set()
        self.pace = _Pace()
        self._random = random.Random(0)
        self._port = 0
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _FromClient(self), "127.0.0.1", self._port, reuse_address=True, backlog=512
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def delay_s(self) -> float:
        """Draw how long a request waits, and count it."""
        slow = self._random.random() < self.link.slow_share
        self.counts["requests"] += 1
        self.counts["slow"] += slow
        return self.link.slow_s if slow else self.link.latency_s + self.link.jitter_s * self._random.random()

    async def obey(self, command: str, values: dict[str, Any]) -> Any:
        if command == "port":
            return self._port
        if command == "link":
            self.link = Link(**values)
            self._random.seed(self.link.seed)
        elif command == "counts":
            return {**self.counts, "cpu_s": time.process_time()}
        elif command == "come_back":
            await self.listen()
        elif command == "die":
            assert self._server is not None
            self._server.close()
            for connection in list(self.open):
                connection.abort()
        return None


class _FromClient(asyncio.Protocol):
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: _Proxy) -> None:
        self._proxy = proxy
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._answers: _FromServer | None = None
        self._waiting: list[bytes] = []
        """Bytes of a request whose latency is not over."""
        self._is_answered = True
        self._timers: set[asyncio.TimerHandle] = set()
        self._connecting: asyncio.Task[None] | None = None
        self.pace = _Pace()

    def connection_made(self, transport: Any) -> None:
        proxy = self._proxy
        self._client = transport
        transport.set_write_buffer_limits(_BUFFERED_BYTES)
        proxy.open.add(self)
        proxy.counts["connections"] += 1
        proxy.counts["most_at_once"] = max(proxy.counts["most_at_once"], len(proxy.open))

    def data_received(self, data: bytes) -> None:
        self._waiting.append(data)
        if self._is_answered:
            self._is_answered = False
            self.later(self._proxy.delay_s(), self._pass_on)
        elif len(self._waiting) == 1:  # more of a request whose first bytes have gone on
            self._pass_on()

    def _pass_on(self) -> None:
        if self._server is not None:
            self._server.writelines(self._waiting)
            self._waiting.clear()
        elif self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server, self._answers = await loop.create_connection(
                lambda: _FromServer(self, self._proxy), "127.0.0.1", self._proxy.target_port
            )
        except OSError:
            self.abort()
        else:
            self._pass_on()

    def answer(self, data: memoryview) -> bool:
        """Give the client bytes of the server's answer. Return False if `data` has to stay as it is until they went."""
        self._is_answered = True
        self._proxy.counts["bytes"] += len(data)
        if self._client is None or self._client.is_closing():
            return True
        self._client.write(data)
        return self._client.get_write_buffer_size() == 0

    def later(self, delay_s: float, act: Any) -> None:
        """Do something after a time, unless the connection ends before."""

        def run() -> None:
            self._timers.discard(timer)
            act()

        if delay_s <= 0:
            act()
            return
        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers.add(timer)

    def pause_writing(self) -> None:
        if self._answers is not None:
            self._answers.pause("full")

    def resume_writing(self) -> None:
        if self._answers is not None:
            self._answers.resume("full")

    def connection_lost(self, _: Exception | None) -> None:
        self._proxy.open.discard(self)
        for timer in self._timers:
            timer.cancel()
        if self._server is not None:
            self._server.abort()

    def close(self) -> None:
        """Close the client's side once it has all bytes."""
        if self._client is not None:
            self._client.close()

    def abort(self) -> None:
        """Break both sides."""
        if self._client is not None:
            self._client.abort()


class _FromServer(asyncio.BufferedProtocol):
    """Answers of the server to one client, as fast as the link lets them pass."""

    def __init__(self, client: _FromClient, proxy: _Proxy) -> None:
        self._client, self._proxy = client, proxy
        self._buffer = memoryview(b"")
        self._transport: asyncio.Transport | None = None
        self._paused: set[str] = set()
        self._ended = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, _: int) -> memoryview:
        link = self._proxy.link
        limited = link.bandwidth is not None or link.stream_bandwidth is not None
        size = _LIMITED_CHUNK_BYTES if limited else _CHUNK_BYTES
        if len(self._buffer) != size:
            self._buffer = memoryview(bytearray(size))
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        link, now_s = self._proxy.link, asyncio.get_running_loop().time()
        ready_s = max(
            self._proxy.pace.take(size, link.bandwidth, now_s),
            self._client.pace.take(size, link.stream_bandwidth, now_s),
        )
        if ready_s - now_s <= _BURST_S:
            self._give(size)
        else:
            self.pause("paced")
            self._client.later(ready_s - now_s, lambda: self._give(size))

    def _give(self, size: int) -> None:
        if not self._client.answer(self._buffer[:size]):
            self._buffer = memoryview(b"")
        self.resume("paced")
        if self._ended:
            self._client.close()

    def pause(self, why: str) -> None:
        self._paused.add(why)
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self, why: str) -> None:
        if why in self._paused:
            self._paused.discard(why)
            if not self._paused and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self._ended = True
        if "paced" not in self._paused:
            self._client.close()


async def _serve(target_port: int) -> None:
    proxy = _Proxy(target_port)
    await proxy.listen()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        answer = await proxy.obey(*json.loads(line))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
