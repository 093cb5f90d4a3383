"""Ranks of a training run: process group, DistributedDataParallel, SyncBatchNorm and seeds.

torchrun starts the processes, ends all of them when one fails, and reports which; this module does not repeat that.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count

import numpy as np
import torch
import torch.distributed as group
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from headrace.errors import RankError, UsageError, warn_caller
from headrace.system import launcher_of

_LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets. Other launchers of ranks must set them, too."""
_HINT_S, _PAUSE_S = 2.0, 0.05
"""Longest time from a broken connection to the record of its cause, and the polling interval of the store."""
_runs = count()
"""Run numbers in this process, so that a later run does not read an earlier run's entries in the store."""
_running = threading.Lock()


def place_of(environment: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return rank, world size and local rank by the variables of torchrun, MPI or SLURM; None without any.

    Raises UsageError if some of them are missing, are not ints, or do not fit together.
    """
    names = _LAUNCHED
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        launcher = launcher_of(environment)
        if launcher is None or environment[launcher.world_size] == "1":
            return None
        names = (launcher.rank, launcher.world_size, launcher.local_rank, *_LAUNCHED[3:])
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise UsageError(
            f"expected {', '.join(names)} together, got none of {', '.join(missing)}; start with `torchrun "
            f"--nproc-per-node N script.py`, export the first host's name and a free port as MASTER_ADDR and "
            f"MASTER_PORT, or unset {names[0]} and {names[1]} for one process"
        )
    for name in names[:3]:
        if not environment[name].lstrip("-").isdigit():
            raise UsageError(f"expected {name} to be an int, got {environment[name]!r}")
    rank, world_size, local_rank = (int(environment[name]) for name in names[:3])
    if not 0 <= rank < world_size or not 0 <= local_rank < world_size:
        raise UsageError(
            f"expected RANK and LOCAL_RANK in 0 … WORLD_SIZE - 1, got RANK={rank}, LOCAL_RANK={local_rank} and "
            f"WORLD_SIZE={world_size}"
        )
    return rank, world_size, local_rank


def device_of(local_rank: int, kind: str | None) -> torch.device:
    """Return cuda:LOCAL_RANK if torch sees a GPU, else cpu. `kind`, "cuda" or "cpu", forces one of them."""
    if kind not in (None, "cuda", "cpu"):
        raise UsageError(f"device: expected 'cuda', 'cpu' or None, got {kind!r}; LOCAL_RANK says which GPU")
    if kind == "cpu" or (kind is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if local_rank >= gpus:
        raise UsageError(
            f"expected a GPU for each rank of a machine, got LOCAL_RANK={local_rank} and {gpus} GPUs; start "
            f"fewer ranks (--nproc-per-node {gpus}), or pass device='cpu'"
        )
    return torch.device("cuda", local_rank)


def seeds_of(seed: int, *, rank: int) -> tuple[int, tuple[int, ...], int]:
    """Return the seeds of torch, numpy and random, which differ between ranks and between generators.

    They come from numpy's SeedSequence with the rank as its spawn key. With `seed + rank`, rank 1 of seed 0 would draw
    the same as rank 0 of seed 1.
    """
    if seed < 0:
        raise UsageError(f"seed: expected an int >= 0, got {seed!r}")
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(8, np.uint32).tolist()
    first, last = ((words[at] << 32 | words[at + 1]) & (2**63 - 1) for at in (0, 6))  # torch takes 63 bits
    return first, tuple(words[2:6]), last


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks of the run, inside the block of `hr.distributed.start()`.

    `rank` of `world_size`; `local_rank` is its number on this machine; `device` is its GPU, or the CPU. Its methods
    raise UsageError once the block has ended.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    _ended: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """True on the rank that prints and saves for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module, *, sync_batchnorm: bool = True, find_unused_parameters: bool = False) -> nn.Module:
        """Return the model on this rank's device, in DistributedDataParallel if there are other ranks.

        Every rank then starts with the parameters and buffers of rank 0. With `sync_batchnorm`, BatchNorm layers become
        SyncBatchNorm on GPUs. On the CPU, where torch has none, they stay unchanged, with one warning.
        `find_unused_parameters` is passed to DistributedDataParallel.
        """
        self._expect_running()
        model = model.to(self.device)
        if self.world_size == 1:
            return model
        if sync_batchnorm:
            model = _with_sync_batchnorm(model, self.device, tell=self.is_first)
        return DistributedDataParallel(model, device_ids=self._gpus, find_unused_parameters=find_unused_parameters)

    def no_sync(self, model: nn.Module, *, unless: bool = False) -> AbstractContextManager[object]:
        """Accumulate gradients on this rank without exchanging them, `unless` this is the last micro-batch.

        Forward and backward pass belong inside. Does nothing for a model that is not in DistributedDataParallel.
        """
        self._expect_running()
        return nullcontext() if unless or not isinstance(model, DistributedDataParallel) else model.no_sync()

    def seed(self, seed: int, /) -> None:
        """Seed torch, numpy and random: the same in every run, and different on every rank."""
        self._expect_running()
        of_torch, of_numpy, of_random = seeds_of(seed, rank=self.rank)
        torch.manual_seed(of_torch)
        np.random.seed(list(of_numpy))
        random.seed(of_random)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self._expect_running()
        if self.world_size > 1:
            group.barrier(device_ids=self._gpus)

    @property
    def _gpus(self) -> list[int] | None:
        return [self.device.index] if self.device.type == "cuda" else None

    def _expect_running(self) -> None:
        if self._ended.is_set():
            raise UsageError("expected to be used inside `with hr.distributed.start() as ranks:`, got a use after it")


def _with_sync_batchnorm(model: nn.Module, device: torch.device, *, tell: bool) -> nn.Module:
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-any-return]
    # torch converts on the CPU, too, but the first forward pass in training raises ValueError.
    if tell and any(isinstance(module, _BatchNorm) for module in model.modules()):
        warn_caller(
            "torch has SyncBatchNorm on GPUs only: on the CPU each rank normalises by its own batch; pass "
            "sync_batchnorm=False to say that this is meant"
        )
    return model


@contextmanager
def start(*, timeout_s: float = 600.0, device: str | None = None) -> Iterator[Ranks]:
    """Yield the ranks of this run, for the time of a `with` block; without a launcher, a single rank: this process.

    Reads torchrun's variables, begins torch's process group (nccl and the GPU of LOCAL_RANK if torch sees one, else
    gloo and the CPU; `device`, "cuda" or "cpu", forces one of them), and destroys it at the end, where ranks wait for
    each other. `timeout_s` is the longest wait for the other ranks at the start and in a collective operation.

    Raises RankError if the ranks do not come together, and for a collective operation that fails because another rank
    raised, which it names. Raises UsageError for invalid variables, a process group that has begun elsewhere, and a
    second block inside the first.
    """
    if not timeout_s > 0:
        raise UsageError(f"timeout_s: expected seconds > 0, got {timeout_s!r}")
    place = place_of(os.environ)
    rank, world_size, local_rank = (0, 1, 0) if place is None else place
    chosen = device_of(local_rank, device)
    if not _running.acquire(blocking=False):
        raise UsageError("expected one hr.distributed.start() at a time, got a second one inside it")
    ranks = Ranks(rank, world_size, local_rank, chosen)
    try:
        if group.is_initialized():
            raise UsageError("expected no process group before hr.distributed.start(), got one; leave it to start()")
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        with nullcontext() if place is None else _process_group(ranks, timedelta(seconds=timeout_s)):
            yield ranks
    finally:
        ranks._ended.set()
        _running.release()


@contextmanager
def _process_group(ranks: Ranks, timeout: timedelta) -> Iterator[None]:
    store = _begin(ranks, timeout)
    try:
        yield
        _wait_for_all(store, ranks)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            _wait_for_all(store, ranks)
        else:
            _explain(store, ranks, error)
            if ranks.device.type == "cuda" and group.group.WORLD is not None:
                group.group.WORLD.abort()  # nccl would wait for exchanges with a rank that is gone
        raise
    finally:
        group.destroy_process_group()


def _begin(ranks: Ranks, timeout: timedelta) -> Store:
    """Begin the process group, and return the store where ranks record how they end. Raises RankError."""
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    prefix = f"headrace/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_runs)}"
    gpu = ranks.device if ranks.device.type == "cuda" else None
    try:
        store = _store(f"tcp://{address}:{port}", ranks.rank, ranks.world_size, timeout)
        group.init_process_group(
            "gloo" if gpu is None else "nccl",
            store=PrefixStore(f"{prefix}/group", store),
            rank=ranks.rank,
            world_size=ranks.world_size,
            timeout=timeout,
            device_id=gpu,
        )
    except (RuntimeError, OSError) as error:
        raise RankError(
            f"expected {ranks.world_size} ranks to meet at {address}:{port} within {timeout.total_seconds():g} s, got "
            f"on rank {ranks.rank}: {' '.join(str(error).split())}; look for an earlier error of another rank"
        ) from error
    return PrefixStore(f"{prefix}/ends", store)


@lru_cache(maxsize=1)
def _store(url: str, rank: int, world_size: int, timeout: timedelta) -> Store:
    """Return the store where the ranks meet, for the life of the process.

    Rank 0, or torchrun, hosts it, and a second block of `start` must not find the first block's store being closed.
    """
    store: Store = next(rendezvous(url, rank, world_size, timeout=timeout))[0]
    return store


def _wait_for_all(store: Store, ranks: Ranks) -> None:
    """Wait without a limit, as rank 0 may be saving for long. Raises RankError if another rank raised."""
    with suppress(DistError):  # rank 0, which hosted the store, has left
        store.set(f"through/{ranks.rank}", "")
        every = [f"through/{rank}" for rank in range(ranks.world_size)]
        _eventually(lambda: store.check(every) or store.check(["failed"]))
        if not store.check(every):
            raise _because_of(store, ranks)


def _explain(store: Store, ranks: Ranks, error: BaseException) -> None:
    """Record why this rank ends. Raises RankError if another rank caused `error`."""
    if isinstance(error, RankError):
        return
    with suppress(DistError):
        # A failing collective operation shows that another rank is missing, but not why.
        if isinstance(error, DistError) or any(word in str(error) for word in ("gloo", "NCCL")):
            _eventually(lambda: store.check(["failed"]), within_s=_HINT_S)
            if store.check(["failed"]):
                raise _because_of(store, ranks) from error
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}".removesuffix(": ")
        store.compare_set("failed", "", json.dumps(f"rank {ranks.rank} ended: {text}"))
    if "TORCHELASTIC_ERROR_FILE" in os.environ and isinstance(error, Exception):
        get_error_handler().record_exception(error)  # torchrun reports it


def _because_of(store: Store, ranks: Ranks) -> RankError:
    return RankError(f"rank {ranks.rank} ends because {json.loads(store.get('failed'))}")


def _eventually(condition: Callable[[], bool], *, within_s: float = float("inf")) -> None:
    """Poll until the condition holds, or the time is over. Waiting in the store would block signals such as Ctrl-C."""
    deadline_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
