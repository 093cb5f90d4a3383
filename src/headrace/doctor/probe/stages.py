"""Stages of batch production: how long each takes, without the stages inside it."""

from __future__ import annotations

import functools
import pkgutil
import threading
import time
from collections.abc import Iterable
from types import BuiltinFunctionType, MethodType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .sample_digests import SampleStages


# -- from doctor/probe/stages.py: Where the time of a batch goes: stages that nest, each charged with what its inner
# stages did not take.


Total = list[int]
"""Calls, wall ns and thread-CPU ns, exclusive of inner stages."""
Totals = dict[int, Total]
"""By stage."""
MOST_STAGES = 1000
"""A script that names classes or functions by the sample must fill neither the memory nor the evidence with them."""


class Stages:
    """Exclusive times by stage, in each thread while an account is open in it. Stages are numbers
    (`Probe.stage(category, label)`), so that a hook costs two clock pairs and no allocation to speak of.

    A stage inside one of its own category is a part of that one: what an imageio read decodes by Pillow is one decode,
    and the Pillow call by which a transform resizes is that transform.

    `enter` and `leave` stand around the user's own calls, so they never raise: what goes wrong in them is told to
    `failed`, and nothing counts any more.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._is_off = False
        self.categories: dict[int, str] = {}
        self._local = threading.local()
        self._making: Account | None = None
        self._beside: list[Account] = []

    def open(self) -> Account:
        """From now on this thread's stages count, and those of threads that have no account count as beside it. An
        account that is open is thrown away."""
        account = Account(self)
        if not self._is_off:
            self._local.account = self._making = account
        self._beside = []
        return account

    def close(self) -> tuple[Totals, Totals]:
        """The totals since `open` of this thread, and of the threads beside it; nothing counts in this thread from now
        on. With several accounts open at once, what runs beside them counts for the one opened last."""
        account: Account | None = getattr(self._local, "account", None)
        self._local.account = None
        if account is None:
            return {}, {}
        if account is not self._making:
            return account.totals, {}
        beside, self._beside, self._making = self._beside, [], None
        return account.totals, _sum_totals(other.take() for other in beside)

    def current(self) -> Account | None:
        """The account that is open in this thread."""
        account: Account | None = getattr(self._local, "account", None)
        return account

    def look(self) -> SampleStages | None:
        """Return what looks closely at the sample that this thread makes."""
        account = self.current()
        return None if account is None else account.look

    @property
    def is_counting(self) -> bool:
        """Whether any thread of this process makes a batch."""
        return self._making is not None

    def enter(self, stage: int) -> Account | None:
        """Call `leave` of what this gives when the stage ends. None where it does not count: then there is nothing to
        leave."""
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
        """Nothing counts any more, in whatever thread."""
        self._is_off = True
        self._making = None
        self._local = threading.local()
        self._failed(error)

    def aside(self) -> Account:
        """Open an account whose stages count for nothing in place of this thread's, until `back`."""
        account = self._local.account = Account(self)
        return account

    def back(self, account: Account) -> None:
        self._local.account = account

    def forked(self) -> None:
        """In the child of a fork: nothing is open, whatever the parent was at."""
        self._local = threading.local()
        self._making = None
        self._beside = []

    def _account_beside(self, making: Account) -> Account:
        """A thread's own, for as long as it lives: a stage may begin beside one batch and end beside the next."""
        account: Account | None = getattr(self._local, "beside", None)
        if account is None:
            account = self._local.beside = Account(self)
        if account.beside is not making:
            account.beside = making
            self._beside.append(account)
        return account


class Account:
    """The open stages of one thread and the totals of those that have ended."""

    __slots__ = ("_categories", "_inside", "_open", "_stages", "_whole", "beside", "look", "totals")

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._categories = stages.categories
        self._open: list[list[int]] = []  # stage, wall at start, CPU at start, wall and CPU of inner stages
        self._inside: set[str | None] = set()
        self.totals: Totals = {}
        self._whole: Totals = {}
        self.beside: Account | None = None
        self.look: SampleStages | None = None
        """What looks at each result, of a sample that is looked at closely."""

    def enter(self, stage: int) -> Account | None:
        """None inside a stage of the same category."""
        category = self._categories.get(stage)
        if category in self._inside:
            return None
        self._inside.add(category)
        self._open.append([stage, time.monotonic_ns(), time.thread_time_ns(), 0, 0])
        return self

    def leave(self) -> int:
        """Wall ns of the stage that ends, inner ones included."""
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
        """`stage` has ended, and gave `result`. What is done to look at that is no stage."""
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
        """Enters `stage`, and keeps apart what is counted from now on: a sample's stages from its batch's."""
        self._whole, self.totals = self.totals, {}
        self.enter(stage)

    def end_part(self) -> tuple[int, Totals]:
        """Wall ns and the totals of the part, which are added to the whole's."""
        wall = self.leave()
        part, self.totals = self.totals, self._whole
        add_totals(self.totals, part)
        return wall, part

    def take(self) -> Totals:
        """The totals so far, which begin anew."""
        totals, self.totals = self.totals, {}
        return totals


def add_totals(sum_: Totals, totals: Totals) -> None:
    """Adds `totals` to `sum_`."""
    for stage, (calls, wall, cpu) in totals.items():
        total = sum_.get(stage)
        if total is None:
            sum_[stage] = [calls, wall, cpu]
        else:
            total[0] += calls
            total[1] += wall
            total[2] += cpu


def _sum_totals(parts: Iterable[Totals]) -> Totals:
    """Of parts that other threads may still write to."""
    result: Totals = {}
    for totals in parts:
        add_totals(result, dict(totals))
    return result


# -- from doctor/probe/timed.py: Stand-ins for other people's functions that count their time as a stage.


TimedFunction = Callable[..., Any]


def timed(stages: Stages, stage: int) -> Callable[[TimedFunction], TimedFunction]:
    """Makes a function that counts its time as `stage` wherever an account is open, and does what it did."""

    def make(original: TimedFunction) -> TimedFunction:
        def call(*args: Any, **kwargs: Any) -> Any:
            account = stages.enter(stage)
            if account is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            finally:
                account.leave()
            if account.look is not None:
                account.gave(stage, result, args)
            return result

        return stand_in(original, call)

    return make


def timed_by_type(stages: Stages, stage_of: Callable[[str], int]) -> Callable[[TimedFunction], TimedFunction]:
    """The same for a method, as the stage of the name of its object's class. What is known of names is kept, but of no
    more than there are stages, and no class is: a script may make one for each sample."""
    known: dict[str, int] = {}

    def make(original: TimedFunction) -> TimedFunction:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            name = type(self).__name__
            stage = known.get(name)
            if stage is None:
                stage = stage_of(name)
                if len(known) < MOST_STAGES:
                    known[name] = stage
            account = stages.enter(stage)
            if account is None:
                return original(self, *args, **kwargs)
            try:
                result = original(self, *args, **kwargs)
            finally:
                account.leave()
            if account.look is not None:
                account.gave(stage, result, args)
            return result

        return stand_in(original, call)

    return make


def timed_in_torch(
    stages: Stages,
    stage: int,
    is_compiling: Callable[[], bool],
    inner: Callable[[TimedFunction], TimedFunction] | None = None,
) -> Callable[[TimedFunction], TimedFunction]:
    """The same for a function that torch.compile may trace, or torch.jit script: they get the original. `is_compiling`
    is torch.compiler's, which a trace takes for a constant. `inner` makes another stand-in, behind the one that counts
    time."""

    def make(original: TimedFunction) -> TimedFunction:
        time_call = timed(stages, stage)(original if inner is None else inner(original))

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            return time_call(*args, **kwargs)

        call.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]  # torch.jit asks for it
        return call

    return make


class Builtin:
    """Stands in for a built-in function or a bound method: like these, and unlike a Python function, it does not take
    the object as its first argument where a class has it for an attribute."""

    def __init__(self, original: TimedFunction, call: TimedFunction) -> None:
        functools.update_wrapper(self, original)
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]  # update_wrapper has set it

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name, so that where it is unpickled it is what is found there. Where the original does not say its module,
        pickle searches for it."""
        original = self.__wrapped__  # type: ignore[attr-defined]
        name: str = original.__qualname__
        return name if original.__module__ is None else (pkgutil.resolve_name, (f"{original.__module__}:{name}",))


def stand_in(original: TimedFunction, call: TimedFunction) -> TimedFunction:
    """`call` in the place of `original`, and of its kind."""
    if isinstance(original, (BuiltinFunctionType, MethodType, Builtin)):
        return Builtin(original, call)
    return functools.wraps(original)(call)
