"""The beginning and the end of a run of several ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from itertools import count

import torch
import torch.distributed as group
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from headrace.distributed.ending import End
from headrace.distributed.failures import Board
from headrace.distributed.place import Place, backend_of, device_of, own_place
from headrace.distributed.ranks import Ranks, Span
from headrace.errors import RankError, UsageError

GRACE_S = 10.0
"""The longest that a rank that failed waits for the others to say so, before the launcher ends them."""

_runs = count()
"""Numbers the runs of this process, so that a later one does not read what an earlier one left in the store."""
_running = threading.Lock()


@contextmanager
def start(*, timeout_s: float = 600.0, device: str | None = None) -> Iterator[Ranks]:
    """The ranks of this run, for the time of a `with` block; without a launcher the one rank that this process is.

    Reads torchrun's variables, begins torch's process group (nccl and the GPU of LOCAL_RANK where torch sees one, else
    gloo and the CPU; `device`, "cuda" or "cpu", leaves no choice), and destroys it at the end. `timeout_s` is the
    longest that a rank waits for the others at the start and in a collective operation.

    The block ends on all ranks together. When one raises, or is killed, the others raise RankError, which names it and
    its error. Raises RankError if the ranks do not come together, UsageError for variables that are wrong, a process
    group that has begun elsewhere, and a second block inside the first.
    """
    if not timeout_s > 0:
        raise UsageError(f"timeout_s: expected seconds > 0, got {timeout_s!r}")
    place = own_place()
    chosen = device_of(place, device)
    if not _running.acquire(blocking=False):
        raise UsageError("expected one hr.distributed.start() at a time, got a second one inside it")
    span = Span()
    ranks = Ranks(place.rank, place.world_size, place.local_rank, chosen, span)
    try:
        if group.is_initialized():
            raise UsageError("expected no process group before hr.distributed.start(), got one; leave it to start()")
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        if not place.launched:
            yield ranks
            return
        with _together(place, chosen, timeout_s):
            yield ranks
    finally:
        span.ended = True
        _running.release()


@contextmanager
def _together(place: Place, device: torch.device, timeout_s: float) -> Iterator[None]:
    """The process group and the watch over the other ranks."""
    board = _begin(place, device, timeout_s)
    end = End(board, place.rank, grace_s=min(GRACE_S, timeout_s))
    end.watch.begin()
    try:
        yield
        end.wait_for_all()
    except BaseException as error:
        end.explain(error)
        raise
    finally:
        end.leave(device)


def _begin(place: Place, device: torch.device, timeout_s: float) -> Board:
    timeout = timedelta(seconds=timeout_s)
    try:
        found = _store(place, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], timeout)
        prefix = f"headrace/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_runs)}"
        # A connection of its own: what waits in the group's would keep the watch waiting, too.
        apart = found.clone()  # type: ignore[attr-defined]  # torch's stub lacks it
        board = Board(PrefixStore(f"{prefix}/board", apart), rank=place.rank, world_size=place.world_size)
        board.sign_in()
        _begin_group(PrefixStore(f"{prefix}/group", found), place, device, timeout)
        board.meet()
    except (RuntimeError, OSError) as error:
        if group.is_initialized():
            group.destroy_process_group()
        raise RankError(
            f"expected {place.world_size} ranks to meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} "
            f"within {timeout_s:g} s, got on rank {place.rank}: {' '.join(str(error).split())}; look for an earlier "
            "error of another rank"
        ) from error
    return board


@lru_cache(maxsize=1)
def _store(place: Place, address: str, port: str, timeout: timedelta) -> Store:
    """Where the ranks meet, for the life of the process: rank 0, or torchrun, keeps it, and a second block of `start`
    must not find the first one's being closed."""
    found = rendezvous(f"tcp://{address}:{port}", place.rank, place.world_size, timeout=timeout)
    store: Store = next(found)[0]
    return store


def _begin_group(store: Store, place: Place, device: torch.device, timeout: timedelta) -> None:
    group.init_process_group(
        backend_of(device),
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
