"""Stages of batch production, with the time of each excluding its inner stages."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable

from .evidence_file import EvidenceFile
from .patches import Function, Patches, stand_in

Total = list[int]
"""Calls, wall ns and thread CPU ns, excluding inner stages."""
Totals = dict[int, Total]
MOST_STAGES = 1000
"""Limit of stages: a script that names classes or functions by sample must not fill memory or evidence."""


class Stages:
    """Exclusive times by stage, in each thread with an open account.

    Stages are numbers (`CallTimer.stage`), so a hook costs two pairs of clock readings and almost no allocation. A
    stage nested in another of the same category belongs to the outer stage: a path's `read_bytes` that opens a file is
    one read, and a transform's resize through Pillow is part of the transform.

    `enter` and `leave` surround the user's own calls, so they never raise: an error is reported to `failed`, and
    counting stops.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._is_off = False
        self.categories: dict[int, str] = {}
        self._local = threading.local()
        self._making: Account | None = None

    def open(self) -> Account:
        """Count this thread's stages from now on. An account already open in this thread is discarded."""
        account = Account(self)
        if not self._is_off:
            self._local.account = self._making = account
        return account

    def close(self) -> Totals:
        """Return the totals since `open`, and stop counting in this thread."""
        account: Account | None = getattr(self._local, "account", None)
        self._local.account = None
        if account is self._making:
            self._making = None
        return {} if account is None else account.totals

    def current(self) -> Account | None:
        account: Account | None = getattr(self._local, "account", None)
        return account

    @property
    def is_counting(self) -> bool:
        """True while any thread of this process produces a batch."""
        return self._making is not None

    def enter(self, stage: int) -> Account | None:
        """Begin a stage and return its account, to `leave` at the end; None if the stage does not count."""
        try:
            account: Account | None = getattr(self._local, "account", None)
            return None if account is None else account.enter(stage)
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Stop counting in all threads."""
        self._is_off = True
        self._making = None
        self._local = threading.local()
        self._failed(error)

    def forked(self) -> None:
        """Close all accounts in the child of a fork."""
        self._local = threading.local()
        self._making = None


class Account:
    """Open stages of one thread, and totals of the ended stages."""

    __slots__ = ("_categories", "_inside", "_open", "_stages", "totals")

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._categories = stages.categories
        self._open: list[list[int]] = []  # stage, wall at start, CPU at start, wall and CPU of inner stages
        self._inside: set[str | None] = set()
        self.totals: Totals = {}

    def enter(self, stage: int) -> Account | None:
        """Begin a stage; return None inside a stage of the same category."""
        category = self._categories.get(stage)
        if category in self._inside:
            return None
        self._inside.add(category)
        self._open.append([stage, time.monotonic_ns(), time.thread_time_ns(), 0, 0])
        return self

    def leave(self) -> None:
        try:
            cpu = time.thread_time_ns()
            wall = time.monotonic_ns()
            stage, wall_start, cpu_start, inner_wall, inner_cpu = self._open.pop()
            self._inside.discard(self._categories.get(stage))
            wall -= wall_start
            cpu -= cpu_start
            if self._open:
                outer = self._open[-1]
                outer[3] += wall
                outer[4] += cpu
            total = self.totals.get(stage)
            if total is None:
                total = self.totals[stage] = [0, 0, 0]
            total[0] += 1
            total[1] += wall - inner_wall
            total[2] += cpu - inner_cpu
        except Exception as error:
            self._stages.fail(error)


class CallTimer:
    """Timer that counts calls of library functions as stages during batch production."""

    def __init__(self, stages: Stages, patches: Patches, evidence: EvidenceFile) -> None:
        self.stages = stages
        self.patches = patches
        self._evidence = evidence

    def stage(self, category: str, label: str) -> int:
        """Return the number of a stage of docs/doctor/internals.md. Beyond `MOST_STAGES`, labels are `other`."""
        name = f"{category}:{label}"
        if len(self.stages.categories) >= MOST_STAGES and name not in self._evidence.names:
            name = f"{category}:other"
        number = self._evidence.name(name)
        self.stages.categories[number] = category
        return number


def timed_call(stages: Stages, stage: int, function: Function) -> Function:
    """Return a function that does what `function` does, and counts its time as `stage` if an account is open."""

    def call(*args: Any, **kwargs: Any) -> Any:
        account = stages.enter(stage)
        if account is None:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            account.leave()

    return call


def timed(stages: Stages, stage: int) -> Callable[[Function], Function]:
    return lambda original: stand_in(original, timed_call(stages, stage, original))


def timed_by_type(timer: CallTimer, category: str) -> Callable[[Function], Function]:
    """Return a decorator that times a method in a stage per class of its object."""

    def make(original: Function) -> Function:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not timer.stages.is_counting:
                return original(self, *args, **kwargs)
            stage = timer.stage(category, type(self).__name__)
            return timed_call(timer.stages, stage, original)(self, *args, **kwargs)

        return stand_in(original, call)

    return make


def unless_compiling(
    is_compiling: Callable[[], bool], make: Callable[[Function], Function]
) -> Callable[[Function], Function]:
    """Return `make` for functions that torch.compile or torch.jit may process: both get the original.

    `is_compiling` is torch.compiler's, which a trace treats as a constant.
    """

    def make_both(original: Function) -> Function:
        made = make(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            return made(*args, **kwargs)

        call.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]  # torch.jit asks for it
        return call

    return make_both


NOBODY = -1
"""Identity that no thread has."""


def nothing(*_: Any) -> None:
    """Do nothing, in place of a hook's function."""


class TrainingCost:
    """Cost of the hooks in the training thread.

    Hooks add their own duration between two clock readings. In a run that sleeps or waits between calls, they find the
    CPU caches cold and take ten times as long as in a loop.
    """

    def __init__(self) -> None:
        self.measured_ns = 0

    def since(self, begun: int) -> None:
        """Add the time from `begun`, by time.monotonic_ns(), until now."""
        self.measured_ns += time.monotonic_ns() - begun

    def take(self) -> int:
        total = max(self.measured_ns, 0)  # a wait that was subtracted may not have been added yet
        self.measured_ns -= total
        return total
