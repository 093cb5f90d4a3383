"""SIGKILL of a rank, or of one of two jobs on one cache, as it reads a store: the other goes on, the cache is right."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from processes import DEADLINE_S, eventually, finish, in_fork, start_python
from remote_runs import CONTENT, assert_same, loader, open_here
from servers import SECRET, Answer, Seen, StoreServer

import headrace as hr

DOOMED, OTHER = "AKIADOOMED", "AKIAOTHER"
"""Whose requests are told apart by the key that signs them."""


class Job(NamedTuple):
    """One process of two, by what it needs to know."""

    key: str
    endpoint: str
    folder: str
    cache: str
    world_size: int
    rank: int

    def dataset(self) -> hr.Dataset:
        options = {"endpoint": self.endpoint, "region": "r", "access_key_id": self.key, "secret_access_key": SECRET}
        return hr.open("s3://bucket/shards/*.tar", store_options=options, cache=Path(self.folder, "indices"))

    def loader(self, dataset: hr.Dataset) -> hr.Loader:
        cache = f"disk:{self.folder}:40MB" if self.cache == "disk" else None
        return loader(dataset, cache=cache, batch_size=4, world_size=self.world_size, rank=self.rank)

    def digest(self) -> bytes:
        """Return a hash of two epochs' batches over the store."""
        return digest_of(self.loader(self.dataset()))


def digest_of(batches: Iterable[Any]) -> bytes:
    state = hashlib.sha256()
    for _ in range(2):
        for batch in batches:
            for value in batch.values():
                state.update(np.ascontiguousarray(value).tobytes())
    return state.hexdigest().encode()


SPAWNED = """
    import sys
    from test_remote_kills import Job
    key, endpoint, folder, cache, world_size, rank = sys.argv[1:]
    print(Job(key, endpoint, folder, cache, int(world_size), int(rank)).digest().decode())
"""


def start_spawned(job: Job) -> Callable[[], bytes]:
    process = spawn(job)
    return lambda: expect_digest(process)


def spawn(job: Job) -> subprocess.Popen[str]:
    here = os.path.dirname(__file__)
    return start_python(f"import sys; sys.path.insert(0, {here!r})\n" + SPAWNED.replace("    ", ""), *job)


def expect_digest(process: subprocess.Popen[str]) -> bytes:
    code, out, error = finish(process)
    assert code == 0, error
    return out.strip().encode()


def fork(job: Job) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: threads beside a fork, which is the point
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(DEADLINE_S))
            job.digest()
            os._exit(0)
        except BaseException as error:  # nothing of the test run may go on in the child
            os.write(2, repr(error).encode())
            os._exit(1)
    return child


class Killer:
    """Kills a process as its request of a number comes in, or some time after it."""

    def __init__(self, store: StoreServer, rng: random.Random) -> None:
        self._left = rng.randint(1, 9)
        self._after_s = rng.choice((0.0, rng.uniform(0.0, 0.08)))
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._known = threading.Event()
        self._timer: threading.Timer | None = None
        store.fault = self

    def __call__(self, seen: Seen) -> Answer | None:
        if DOOMED not in seen.headers.get("authorization", ""):
            return None
        with self._lock:
            self._left -= 1
            is_time = self._left == 0
        if is_time and self._known.wait(DEADLINE_S):
            self._timer = threading.Timer(self._after_s, self._kill)
            self._timer.start()
            if not self._after_s:
                self._timer.join()
        return None

    def aim(self, pid: int) -> None:
        self._pid = pid
        self._known.set()

    def _kill(self) -> None:
        with self._lock:
            if self._pid is not None:
                os.kill(self._pid, signal.SIGKILL)

    def ended(self) -> None:
        """Kill nobody any more: the process has ended, and is about to be forgotten."""
        with self._lock:
            self._pid = None
        if self._timer is not None:
            self._timer.join()


def kill_one_of_two(store: StoreServer, folder: Path, seed: int, how: str, cache: str, world_size: int) -> None:
    store.objects |= CONTENT
    rng = random.Random(seed)
    doomed = Job(DOOMED, store.endpoint, str(folder), cache, world_size, 0)
    other = doomed._replace(key=OTHER, rank=world_size - 1)
    here = open_here(folder)
    expected = digest_of(other._replace(cache="none").loader(here))
    result = in_fork(other.digest) if how == "forked" else start_spawned(other)
    killer = Killer(store, rng)
    process = None if how == "forked" else spawn(doomed)
    pid = fork(doomed) if process is None else process.pid
    killer.aim(pid)
    assert eventually(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None), "hangs"
    killer.ended()
    if process is None:
        status = os.waitpid(pid, 0)[1]
    else:
        process.communicate()
        status = -process.returncode
    assert status in (0, signal.SIGKILL)
    assert result() == expected
    store.fault = None
    again = other.loader(other.dataset())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the cache is made anew
        assert_same(again, other._replace(cache="none").loader(here))
    stats = again.stats()
    assert stats.bad == 0
    if cache == "disk":
        assert stats.cache is not None
        assert stats.cache.damaged == 0
        assert stats.cache.hit_rate == 1.0, "the other's samples are there"
    left = [path for path in folder.rglob("*") if path.suffix not in (".tar", ".headrace", ".cache") and path.is_file()]
    # A killed writer of an index leaves at most one such file for each, which the next writer takes over.
    assert all(path.name.endswith(".headrace.partial") and path.with_suffix("").exists() for path in left)


@pytest.mark.parametrize(
    ("cache", "world_size"), [("disk", 1), ("disk", 2), ("none", 2)], ids=["two jobs", "two ranks", "no cache"]
)
@pytest.mark.parametrize(
    ("how", "seed"), [("forked", seed) for seed in range(14)] + [("spawned", seed) for seed in range(3)]
)
@pytest.mark.long
def test_one_of_two_killed_at_many_moments(
    store: StoreServer, tmp_path: Path, how: str, seed: int, cache: str, world_size: int
) -> None:
    kill_one_of_two(store, tmp_path, seed, how, cache, world_size)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [20, 21])
def test_one_of_two_jobs_on_a_cache_is_killed(store: StoreServer, tmp_path: Path, seed: int) -> None:
    kill_one_of_two(store, tmp_path, seed, "forked", "disk", 1 + seed % 2)
