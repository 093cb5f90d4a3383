"""Ranks of a training run, and the block of `start()` that they share."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed
import torch.distributed as group
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import DistError
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from headrace.errors import RankError, UsageError
from headrace.system import Launcher, launcher_of

# -- from distributed/peers.py: The processes of a run's ranks, and which of them are gone.


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DEAD = ("Z", "X")


class PeerProcess(NamedTuple):
    """A process, told apart from a later one of the same number by its start, in clock ticks since boot.

    `home` is the kernel and the PID namespace that the number belongs to.
    """

    host: str
    home: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def own_process() -> PeerProcess:
    pid = os.getpid()
    state = _state_and_start(pid)
    return PeerProcess(socket.gethostname(), _home(), pid, 0 if state is None else state[1])


def is_gone(peer: PeerProcess) -> bool:
    """Whether the process has ended. Of one on another machine nothing is known: False."""
    if peer.home != _home():
        return False
    state = _state_and_start(peer.pid)
    return state is None or state[0] in DEAD or state[1] != peer.started


@cache
def _home() -> str:
    return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """None for a process that is not there. See proc(5), /proc/pid/stat: the name in brackets may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])


# -- from distributed/failures.py: What the ranks of a run tell each other about their ends, through the store that
# they met at.


LONGEST = 500
"""Characters of an error's text that the others hear."""


@dataclass(frozen=True)
class RankFailure:
    """Why the run cannot go on: what became of `rank`, in words that follow its number. None: of the store."""

    rank: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.rank is None else f"rank {self.rank} {self.what}"


def failure_of(rank: int, error: BaseException) -> RankFailure:
    text = " ".join(str(error).split())
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return RankFailure(rank, f"ended: {type(error).__name__}: {shown}" if shown else f"ended: {type(error).__name__}")


def is_of_a_collective(error: BaseException) -> bool:
    """Whether torch says by it that other ranks could not be reached: gloo does so by a plain RuntimeError."""
    return isinstance(error, torch.distributed.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "NCCL"))
    )


class Board:
    """The records of all ranks in one store. Each is written once; the first failure is the run's.

    A rank is *through* when its block has ended without an error, and *informed* when it knows how the run ended and
    needs the store no more.
    """

    def __init__(self, store: Store, *, rank: int, world_size: int) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(world_size) if other != rank]
        self._peers: dict[int, PeerProcess] = {}

    def sign_in(self) -> None:
        self._store.set(f"process/{self._rank}", json.dumps(own_process()))

    def meet(self) -> None:
        """Reads who the others are, once all have signed in."""
        keys = [f"process/{other}" for other in self._others]
        self._store.wait(keys)
        found = self._store.multi_get(keys) if keys else []
        self._peers = {other: PeerProcess(*json.loads(one)) for other, one in zip(self._others, found, strict=True)}

    def record(self, failure: RankFailure) -> RankFailure:
        """The run's failure: this one, or the one that was first."""
        mine = json.dumps([failure.rank, failure.what])
        return RankFailure(*json.loads(self._store.compare_set("failure", "", mine)))

    def failure(self) -> RankFailure | None:
        """What was recorded; else the end of a process that recorded nothing, recorded herewith."""
        if self._store.check(["failure"]):
            return RankFailure(*json.loads(self._store.get("failure")))
        for rank, peer in self._peers.items():
            if is_gone(peer) and not self._has("through", rank):
                return self.record(RankFailure(rank, f"is gone without a word ({peer}): killed, or out of memory"))
        return None

    def say_through(self) -> None:
        self._store.set(f"through/{self._rank}", "")

    def say_informed(self) -> None:
        self._store.set(f"informed/{self._rank}", "")

    def through(self) -> list[int]:
        """The other ranks whose blocks have ended without an error."""
        return [other for other in self._others if self._has("through", other)]

    def all_through(self) -> bool:
        return self._store.check([f"through/{other}" for other in self._others])

    def all_informed(self) -> bool:
        """Whether nobody else needs the store: they know, or are gone."""
        return all(self._has("informed", rank) or is_gone(peer) for rank, peer in self._peers.items())

    def _has(self, what: str, rank: int) -> bool:
        return self._store.check([f"{what}/{rank}"])


# -- from distributed/watch.py: Watches for the failure of another rank, and gets the main thread out of whatever it
# waits in.


PERIOD_S = 0.5
"""Between two looks at the store. Waiting in it instead would log a warning at each timeout (torch 2.13)."""


class RankWatch:
    """A thread that looks for the failure of another rank, from `begin` to `end`.

    It says in one line what it finds, so that it is said before a launcher ends this process, and sends the process
    SIGTERM, on which the main thread raises RankError; so it does on the launcher's own. A main thread that has not
    come to an end `patience_s` later, because it waits inside a library of the GPU, say, cannot be helped: the process
    ends with code 1. A handler for SIGTERM of the user's own stays, and is not called.
    """

    def __init__(self, board: Board, *, rank: int, patience_s: float, end_process: Callable[[], None]) -> None:
        self._board = board
        self._rank = rank
        self._patience_s = patience_s
        self._end_process = end_process
        self._found: RankFailure | None = None
        self._finding = threading.RLock()  # the main thread's handler may come upon the main thread inside
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-ranks", daemon=True)
        self._pid = os.getpid()
        self._handles = False
        self._ending = False

    def begin(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        self._handles = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._handles:
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._thread.start()

    def let_end(self) -> None:
        """From here on nothing is raised in the main thread: it is on its way out."""
        self._ending = True

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def failure(self) -> RankFailure | None:
        """Another rank's, which this one ends by. Said when it is first found; from then on the store is not needed."""
        with self._finding:
            if self._found is None:
                found = _seen(self._board)
                if found is not None and found.rank != self._rank:
                    self._found = found
                    self._say(found)
            return self._found

    def _say(self, failure: RankFailure) -> None:
        print(f"headrace: rank {self._rank} ends because {failure}", file=sys.stderr, flush=True)
        with suppress(DistError):
            self._board.say_informed()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # A fork of this process has the handler, too, and must neither use the connection nor wait for the lock.
        if os.getpid() == self._pid:
            if self._ending:
                return
            failure = self.failure()
            if failure is not None:
                raise because_of(failure, self._rank)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            if self.failure() is not None:
                self._get_out()
                return

    def _get_out(self) -> None:
        if self._handles:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        if not self._stop.wait(self._patience_s):
            self._end_process()


def because_of(failure: RankFailure, rank: int) -> RankError:
    return RankError(f"rank {rank} ends because {failure}")


def _seen(board: Board) -> RankFailure | None:
    """The run's failure as the store has it. A store that is gone is one, too: rank 0 or the launcher kept it."""
    try:
        return board.failure()
    except DistError as error:
        return RankFailure(None, f"the store that the ranks met at is gone, with rank 0 or the launcher ({error})")


# -- from distributed/ending.py: How one rank's part in a run ends: with all others, or because one of them failed.


ENOUGH = 3
"""Graces until a main thread that does not come to an end by itself is ended."""
HINT_S = 2.0
"""The longest between a connection that breaks and the record of why."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.5


class RankEnding:
    """The end of the rank's block: `wait_for_all`, or `explain` what was raised; then `leave`."""

    def __init__(self, board: Board, rank: int, *, grace_s: float) -> None:
        self._board = board
        self._rank = rank
        self._grace_s = grace_s
        self._failed = False
        self._is_root = False
        self.watch = RankWatch(board, rank=rank, patience_s=ENOUGH * grace_s, end_process=lambda: os._exit(1))

    def wait_for_all(self) -> None:
        """Returns when all are through: a rank that left early would break what others still exchange.

        There is no limit of time, since rank 0 may be saving for long. A rank that hangs ends by the timeout of its
        collective operation, and one that is killed is seen to be gone.
        """
        self._board.say_through()
        self._eventually(lambda: self._board.all_through() or self.watch.failure() is not None)
        failure = None if self._board.all_through() else self.watch.failure()
        if failure is not None:
            raise because_of(failure, self._rank)

    def explain(self, error: BaseException) -> None:
        """Tells the others why this rank ends. Raises RankError where another one is behind `error`."""
        self.watch.let_end()
        self._failed = True
        if isinstance(error, SystemExit) and not error.code:
            self.wait_for_all()
            self._failed = False
        elif not isinstance(error, RankError):
            if isinstance(error, Exception) and is_of_a_collective(error):
                self._blame(error)
            self._record(failure_of(self._rank, error))

    def _blame(self, error: Exception) -> None:
        """A collective operation that fails shows that another rank does not take part, and not why."""
        self._eventually(
            lambda: self.watch.failure() is not None or self._board.through() != [],
            within_s=min(HINT_S, self._grace_s),
        )
        failure = self.watch.failure()
        if failure is not None:
            raise because_of(failure, self._rank) from error
        if through := self._board.through():
            unequal = RankError(
                f"rank {self._rank} waits in a collective operation, and rank {through[0]} is through: expected as "
                "many steps on every rank; give each as many batches (drop_last=True, or a Loader, which does)"
            )
            self._record(failure_of(self._rank, unequal))
            raise unequal from error
        error.add_note(f"rank {self._rank}: no other rank is known to have failed; one may be slower than timeout_s")

    def leave(self, device: torch.device) -> None:
        """Destroys the process group. A rank that failed stays until the others know, as does rank 0, which may keep
        the store."""
        self.watch.let_end()
        if self._failed and device.type == "cuda" and group.group.WORLD is not None:
            group.group.WORLD.abort()  # nccl would wait for what it exchanges with a rank that is gone
        group.destroy_process_group()
        with suppress(DistError):
            self._board.say_informed()
            if self._is_root or self._rank == 0:
                self._eventually(self._board.all_informed, within_s=self._grace_s)
        self.watch.end()

    def _record(self, failure: RankFailure) -> None:
        with suppress(DistError):  # the store is gone: the others know by that
            self._is_root = self._board.record(failure).rank == self._rank

    def _eventually(self, condition: Callable[[], bool], *, within_s: float | None = None) -> None:
        """Asks until it holds, or the time is over. To wait in the store would hold up signals, Ctrl-C among them."""
        deadline_s = None if within_s is None else time.monotonic() + within_s
        for pause_s in _pauses():
            if condition() or (deadline_s is not None and time.monotonic() > deadline_s):
                return
            time.sleep(pause_s)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


# -- from distributed/place.py: Which of a run's ranks this process is, and the device and backend that it gets.


LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets, and what others that launch ranks must."""


@dataclass(frozen=True)
class RankPlace:
    """`rank` of `world_size`, the `local_rank`th on this machine; `launched` is False for a process by itself."""

    rank: int
    world_size: int
    local_rank: int
    launched: bool


def place_of(environment: Mapping[str, str]) -> RankPlace:
    """Return the place that a launcher's variables give; rank 0 of 1 without any.

    They are torchrun's, else those of MPI or of a step of SLURM, with MASTER_ADDR and MASTER_PORT, where ranks meet.

    Raises UsageError where some of them are missing, are no ints, or do not fit together.
    """
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        launcher = launcher_of(environment)
        if launcher is None or environment[launcher.world_size] == "1":
            return RankPlace(0, 1, 0, launched=False)
        return place_of(_as_torchrun_has_it(environment, launcher))
    missing = [name for name in LAUNCHED if not environment.get(name)]
    if missing:
        raise UsageError(
            f"expected {', '.join(LAUNCHED)} together, as torchrun sets them, got none of {', '.join(missing)}; start "
            "with `torchrun --nproc-per-node N script.py`, or unset RANK and WORLD_SIZE for one process"
        )
    rank, world_size, local_rank = (_number(environment, name) for name in LAUNCHED[:3])
    if not 0 <= rank < world_size or not 0 <= local_rank < world_size:
        raise UsageError(
            f"expected RANK and LOCAL_RANK in 0 … WORLD_SIZE - 1, got RANK={rank}, LOCAL_RANK={local_rank} and "
            f"WORLD_SIZE={world_size}"
        )
    return RankPlace(rank, world_size, local_rank, launched=True)


def _as_torchrun_has_it(environment: Mapping[str, str], launcher: Launcher) -> dict[str, str]:
    missing = [name for name in (launcher.local_rank, "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise UsageError(
            f"expected MASTER_ADDR and MASTER_PORT beside {launcher.rank}, {launcher.world_size} and "
            f"{launcher.local_rank}, which {launcher.name} sets, got none of {', '.join(missing)}; export the first "
            "host's name and a free port, start one torchrun on each node, or unset "
            f"{launcher.rank} for a process by itself"
        )
    names = {"RANK": launcher.rank, "WORLD_SIZE": launcher.world_size, "LOCAL_RANK": launcher.local_rank}
    return dict(environment) | {name: environment[of_launcher] for name, of_launcher in names.items()}


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise UsageError(f"expected {name} to be an int, got {environment[name]!r}") from None


def own_place() -> RankPlace:
    return place_of(os.environ)


def device_of(place: RankPlace, kind: str | None) -> torch.device:
    """cuda:LOCAL_RANK where torch sees a GPU, else cpu; `kind`, "cuda" or "cpu", leaves no choice."""
    if kind not in (None, "cuda", "cpu"):
        raise UsageError(f"device: expected 'cuda', 'cpu' or None, got {kind!r}; LOCAL_RANK says which GPU")
    if kind == "cpu" or (kind is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if place.local_rank >= count:
        raise UsageError(
            f"expected a GPU for each rank of a machine, got LOCAL_RANK={place.local_rank} and {count} GPUs; start "
            f"fewer ranks (--nproc-per-node {count}), or pass device='cpu'"
        )
    return torch.device("cuda", place.local_rank)


def backend_of(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"


# -- from distributed/wrapping.py: A model on one of several ranks: gradients averaged over them, and over micro-
# batches.


def wrap(
    model: nn.Module,
    *,
    device: torch.device,
    world_size: int,
    sync_batchnorm: bool,
    find_unused_parameters: bool,
    tell: bool,
) -> nn.Module:
    """See Ranks.wrap. `tell` is True on the rank that warns for all."""
    model = model.to(device)
    if world_size == 1:
        return model
    if sync_batchnorm:
        model = _with_sync_batchnorm(model, device, tell)
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        find_unused_parameters=find_unused_parameters,
    )


def _with_sync_batchnorm(model: nn.Module, device: torch.device, tell: bool) -> nn.Module:
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return converted
    # torch converts on the CPU, too, but the first forward pass in training raises ValueError.
    if tell and any(isinstance(module, _BatchNorm) for module in model.modules()):
        warnings.warn(
            "torch has SyncBatchNorm on GPUs only: on the CPU each rank normalises by its own batch; pass "
            "sync_batchnorm=False to say that this is meant",
            stacklevel=4,
        )
    return model


def no_sync(model: nn.Module, *, unless: bool) -> AbstractContextManager[object]:
    """See Ranks.no_sync."""
    if unless or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


# -- from distributed/seeds.py: Seeds for what a rank draws by itself: dropout, augmentations in Python, noise.


class RankSeeds(NamedTuple):
    torch: int
    numpy: tuple[int, ...]
    python: int


def seeds_of(seed: int, *, rank: int) -> RankSeeds:
    """One seed a generator, which differ between ranks and between generators; the same for the same arguments.

    By numpy's SeedSequence with the rank as its spawn key: `seed + rank` would give rank 1 of seed 0 what rank 0 of
    seed 1 draws.
    """
    if seed < 0:
        raise UsageError(f"seed: expected an int >= 0, got {seed!r}")
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(8, np.uint32).tolist()
    return RankSeeds(_joined(words[:2]), tuple(words[2:6]), _joined(words[6:]))


def _joined(words: list[int]) -> int:
    """63 bits: torch takes no more in every version."""
    return (words[0] << 32 | words[1]) & (2**63 - 1)


def seed_generators(seed: int, *, rank: int) -> None:
    """Seeds the global generators of torch (of its GPUs, too), numpy and random."""
    seeds = seeds_of(seed, rank=rank)
    torch.manual_seed(seeds.torch)
    np.random.seed(list(seeds.numpy))
    random.seed(seeds.python)


# -- from distributed/ranks.py: What a training script holds of the run's ranks.


@dataclass
class RunSpan:
    """Whether the block of `start()` is still running."""

    ended: bool = False


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
    _span: RunSpan = field(repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints and saves for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module, *, sync_batchnorm: bool = True, find_unused_parameters: bool = False) -> nn.Module:
        """The model on this rank's device, in DistributedDataParallel if there are other ranks.

        Every rank then starts with the parameters and buffers of rank 0. With `sync_batchnorm` BatchNorm layers become
        SyncBatchNorm on GPUs; on the CPU, where torch has none, they stay as they are, with one warning.
        `find_unused_parameters` is DistributedDataParallel's.
        """
        self._expect_running()
        return wrap(
            model,
            device=self.device,
            world_size=self.world_size,
            sync_batchnorm=sync_batchnorm,
            find_unused_parameters=find_unused_parameters,
            tell=self.is_first,
        )

    def no_sync(self, model: nn.Module, *, unless: bool = False) -> AbstractContextManager[object]:
        """Within it gradients are added up on this rank and not exchanged, `unless` this is the last micro-batch.

        Forward and backward pass belong inside. Does nothing for a model that is not in DistributedDataParallel.
        """
        self._expect_running()
        return no_sync(model, unless=unless)

    def seed(self, seed: int, /) -> None:
        """Seeds torch, numpy and random: the same in every run, and different on every rank."""
        self._expect_running()
        seed_generators(seed, rank=self.rank)

    def barrier(self) -> None:
        """Waits until every rank is here."""
        self._expect_running()
        if self.world_size > 1:
            torch.distributed.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def _expect_running(self) -> None:
        if self._span.ended:
            raise UsageError("expected to be used inside `with hr.distributed.start() as ranks:`, got a use after it")


# -- from distributed/starting.py: The beginning and the end of a run of several ranks.


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
    span = RunSpan()
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
def _together(place: RankPlace, device: torch.device, timeout_s: float) -> Iterator[None]:
    """The process group and the watch over the other ranks."""
    board = _begin(place, device, timeout_s)
    end = RankEnding(board, place.rank, grace_s=min(GRACE_S, timeout_s))
    end.watch.begin()
    try:
        yield
        end.wait_for_all()
    except BaseException as error:
        end.explain(error)
        raise
    finally:
        end.leave(device)


def _begin(place: RankPlace, device: torch.device, timeout_s: float) -> Board:
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
def _store(place: RankPlace, address: str, port: str, timeout: timedelta) -> Store:
    """Where the ranks meet, for the life of the process: rank 0, or torchrun, keeps it, and a second block of `start`
    must not find the first one's being closed."""
    found = rendezvous(f"tcp://{address}:{port}", place.rank, place.world_size, timeout=timeout)
    store: Store = next(found)[0]
    return store


def _begin_group(store: Store, place: RankPlace, device: torch.device, timeout: timedelta) -> None:
    group.init_process_group(
        backend_of(device),
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
