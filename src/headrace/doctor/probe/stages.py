"""Stages of batch production: how long each takes, without the stages inside it."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Callable, Protocol

from .evidence_file import EvidenceFile
from .patches import Function, Patches, stand_in

Total = list[int]
"""Calls, wall ns and thread-CPU ns, exclusive of inner stages."""
Totals = dict[int, Total]
"""By stage."""
MOST_STAGES = 1000
"""A script that names classes or functions by the sample must fill neither the memory nor the evidence with them."""


class SampleLook(Protocol):
    """What looks closely at one sample while it is produced."""

    calls: Any
    """Notes what libraries are asked; None where nobody does."""
    takes: set[str]
    """Remedies, by their keys, that injection would have done something for in it."""

    def ended(self, stage: int, result: Any, arguments: tuple[Any, ...]) -> None:
        """Note a stage's end."""


class Stages:
    """Exclusive times by stage, in each thread while an account is open in it.

    Stages are numbers (`CallTimer.stage`), so that a hook costs two clock pairs and no allocation to speak of. A stage
    inside one of its own category is a part of that one: what an imageio read decodes by Pillow is one decode, and the
    Pillow call by which a transform resizes is that transform.

    `enter` and `leave` stand around the user's own calls, so they never raise: what goes wrong in them is reported to
    `failed`, and nothing counts any more.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._is_off = False
        self.categories: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self._local = threading.local()
        self._making: Account | None = None
        self._beside: list[Account] = []
        self.looked: set[Account] = set()
        """Accounts whose sample is looked at closely. While there is one, calls take a longer way."""
        self.at_looks: Callable[[bool], None] = lambda begins: None
        """Called as a look begins, and as it ends."""

    def open(self) -> Account:
        """Count this thread's stages from now on, and those of threads without an account as beside it.

        An account that is open is thrown away.
        """
        account = Account(self)
        if not self._is_off:
            self._local.account = self._making = account
        self._beside = []
        return account

    def close(self) -> tuple[Totals, Totals]:
        """Return the totals since `open` of this thread, and of the threads beside it; stop counting in this thread.

        With several accounts open at once, what runs beside them counts for the one opened last.
        """
        account: Account | None = getattr(self._local, "account", None)
        self._local.account = None
        if account is None:
            return {}, {}
        self.end_look(account)
        if account is not self._making:
            return account.totals, {}
        beside, self._beside, self._making = self._beside, [], None
        totals: Totals = {}
        for other in beside:
            add_totals(totals, dict(other.take()))  # it may still be written to
        return account.totals, totals

    def current(self) -> Account | None:
        account: Account | None = getattr(self._local, "account", None)
        return account

    def look(self) -> SampleLook | None:
        """Return what looks closely at the sample that this thread produces."""
        account = self.current()
        return None if account is None else account.look

    def begin_look(self, account: Account, look: SampleLook) -> None:
        """Let `look` see what `account` counts, until `end_look`."""
        account.look = look
        self.looked.add(account)
        self.at_looks(True)

    def end_look(self, account: Account) -> None:
        """End the look, if there is one: also that of a sample which raised."""
        account.look = None
        if account in self.looked:
            self.looked.discard(account)
            self.at_looks(False)

    @property
    def is_counting(self) -> bool:
        """True while any thread of this process produces a batch."""
        return self._making is not None

    def enter(self, stage: int) -> Account | None:
        """Begin a stage; call `leave` of what this returns when it ends. None where it does not count."""
        try:
            account: Account | None = getattr(self._local, "account", None)
            if account is None:
                if self._making is None:
                    return None
                account = self._account_beside(self._making)
            return account.enter(stage)
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Count nothing any more, in whatever thread."""
        self._is_off = True
        self._making = None
        self._local = threading.local()
        self._failed(error)

    def aside(self) -> Account:
        """Open an account whose stages count for nothing in place of this thread's, until `back`."""
        account = self._local.account = Account(self)
        return account

    def back(self, account: Account) -> None:
        """Make `account` this thread's again."""
        self._local.account = account

    def forked(self) -> None:
        """Open nothing in the child of a fork, whatever the parent was at."""
        self._local = threading.local()
        self._making = None
        self._beside = []
        self.looked = set()

    def _account_beside(self, making: Account) -> Account:
        """Return a thread's own, which lives as long: a stage may begin beside one batch and end beside the next."""
        account: Account | None = getattr(self._local, "beside", None)
        if account is None:
            account = self._local.beside = Account(self)
        if account.beside is not making:
            account.beside = making
            self._beside.append(account)
        return account


class Account:
    """Open stages of one thread and the totals of those that have ended."""

    __slots__ = ("_categories", "_inside", "_open", "_stages", "_whole", "beside", "look", "totals")

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._categories = stages.categories
        self._open: list[list[int]] = []  # stage, wall at start, CPU at start, wall and CPU of inner stages
        self._inside: set[str | None] = set()
        self.totals: Totals = {}
        self._whole: Totals = {}
        self.beside: Account | None = None
        self.look: SampleLook | None = None
        """What looks at each result, of a sample that is looked at closely."""

    def enter(self, stage: int) -> Account | None:
        """Begin a stage; None inside a stage of the same category."""
        category = self._categories.get(stage)
        if category in self._inside:
            return None
        self._inside.add(category)
        self._open.append([stage, time.monotonic_ns(), time.thread_time_ns(), 0, 0])
        return self

    def leave(self) -> int:
        """End a stage, and return its wall ns, inner stages included."""
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
            return wall
        except Exception as error:
            self._stages.fail(error)
            return 0

    def gave(self, stage: int, result: Any, arguments: tuple[Any, ...]) -> None:
        """Look at the result of a stage that has ended. What that does itself is no stage."""
        look, self.look = self.look, None
        try:
            self._stages.aside()
            if look is not None:
                look.ended(stage, result, arguments)
        except Exception as error:
            self._stages.fail(error)
        else:
            self._stages.back(self)
            self.look = look

    def begin_part(self, stage: int) -> None:
        """Enter `stage`, and count separately from now on: a sample's stages from its batch's."""
        self._whole, self.totals = self.totals, {}
        self.enter(stage)

    def end_part(self) -> tuple[int, Totals]:
        """Return wall ns and the totals of the part, and add these to the whole's."""
        wall = self.leave()
        part, self.totals = self.totals, self._whole
        add_totals(self.totals, part)
        return wall, part

    def take(self) -> Totals:
        """Return the totals so far, and begin anew."""
        totals, self.totals = self.totals, {}
        return totals


def add_totals(sum_: Totals, totals: Totals) -> None:
    """Add `totals` to `sum_`."""
    for stage, (calls, wall, cpu) in totals.items():
        total = sum_.get(stage)
        if total is None:
            sum_[stage] = [calls, wall, cpu]
        else:
            total[0] += calls
            total[1] += wall
            total[2] += cpu


class CallTimer:
    """Timer that counts calls of other people's functions as stages, wherever a batch is produced."""

    def __init__(self, stages: Stages, patches: Patches, evidence: EvidenceFile) -> None:
        self.stages = stages
        self.patches = patches
        self._evidence = evidence

    def stage(self, category: str, label: str) -> int:
        """Return the number of a stage; the categories are those of docs/doctor/session.md.

        Once there are `MOST_STAGES`, all new ones of a category are one, labelled `other`.
        """
        name = f"{category}:{label}"
        if len(self.stages.categories) >= MOST_STAGES and name not in self._evidence.names:
            name = f"{category}:other"
        number = self._evidence.name(name)
        self.stages.categories[number] = category
        self.stages.names[number] = name
        return number

    def time(self, owner: Any, name: str, category: str, label: str) -> bool:
        """Count calls of `owner.name` as a stage. False where that cannot be done."""
        return self.patches.replace(owner, name, timed(self.stages, self.stage(category, label)))

    def time_by_type(self, owner: Any, name: str, category: str) -> bool:
        """Count calls of a method as the stage that is named after the class of its object."""
        make = timed_by_type(self.stages, lambda label: self.stage(category, label))
        return self.patches.replace(owner, name, make)


def timed_call(stages: Stages, stage: int, function: Function, subject: Any = None) -> Function:
    """Return what does what `function` does, and counts its time as `stage` wherever an account is open.

    `subject` is the object that is called, where its class says what the call does.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if stages.looked:
            return call_looked_at(stages, stage, function, subject, args, kwargs)
        account = stages.enter(stage)
        if account is None:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            account.leave()

    return call


def call_looked_at(
    stages: Stages, stage: int, function: Function, subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Count a call as a stage while a sample is looked at: this thread's, or another's."""
    account = stages.enter(stage)
    look = stages.look()
    calls = None if look is None else look.calls
    begun = None if calls is None else calls.begin(stage, subject, args, kwargs, account is not None)
    result: Any = None
    try:
        result = function(*args, **kwargs)
    finally:
        if account is not None:
            account.leave()
        if calls is not None and begun is not None:
            calls.end(begun, result)
    if account is not None and account.look is not None:
        account.gave(stage, result, args)
    return result


def timed(stages: Stages, stage: int) -> Callable[[Function], Function]:
    """Return what makes a function's timed stand-in."""
    return lambda original: stand_in(original, timed_call(stages, stage, original))


def timed_by_type(stages: Stages, stage_of: Callable[[str], int]) -> Callable[[Function], Function]:
    """Return what makes a method's timed stand-in, which counts as the stage of the name of its object's class.

    Of names, no more are remembered than there are stages, and no class is: a script may make one for each sample.
    """
    known: dict[str, int] = {}

    def make(original: Function) -> Function:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = type(self).__name__
            stage = known.get(name)
            if stage is None:
                stage = stage_of(name)
                if len(known) < MOST_STAGES:
                    known[name] = stage
            if stages.looked:
                return call_looked_at(stages, stage, functools.partial(original, self), self, args, kwargs)
            account = stages.enter(stage)
            if account is None:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            finally:
                account.leave()

        return stand_in(original, call)

    return make


def timed_in_torch(
    stages: Stages,
    stage: int,
    is_compiling: Callable[[], bool],
    inner: Callable[[Function], Function] | None = None,
) -> Callable[[Function], Function]:
    """Return what makes the timed stand-in of a function that torch.compile may trace, or torch.jit script.

    Both get the original. `is_compiling` is torch.compiler's, which a trace takes for a constant. `inner` makes another
    stand-in, behind the timed one.
    """

    def make(original: Function) -> Function:
        time_call = timed(stages, stage)(original if inner is None else inner(original))

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            return time_call(*args, **kwargs)

        call.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]  # torch.jit asks for it
        return call

    return make
