"""Stand-ins for other people's functions that count their time as a stage."""

from __future__ import annotations

import functools
import pkgutil
from types import BuiltinFunctionType, MethodType
from typing import Any, Callable

from .stages import MOST_STAGES, Stages

Function = Callable[..., Any]


def timed(stages: Stages, stage: int) -> Callable[[Function], Function]:
    """Makes a function that counts its time as `stage` wherever an account is open, and does what it did."""

    def make(original: Function) -> Function:
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


def timed_by_type(stages: Stages, stage_of: Callable[[str], int]) -> Callable[[Function], Function]:
    """The same for a method, as the stage of the name of its object's class. What is known of names is kept, but of no
    more than there are stages, and no class is: a script may make one for each sample."""
    known: dict[str, int] = {}

    def make(original: Function) -> Function:
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
    inner: Callable[[Function], Function] | None = None,
) -> Callable[[Function], Function]:
    """The same for a function that torch.compile may trace, or torch.jit script: they get the original. `is_compiling`
    is torch.compiler's, which a trace takes for a constant. `inner` makes another stand-in, behind the one that counts
    time."""

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


class Builtin:
    """Stands in for a built-in function or a bound method: like these, and unlike a Python function, it does not take
    the object as its first argument where a class has it for an attribute."""

    def __init__(self, original: Function, call: Function) -> None:
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


def stand_in(original: Function, call: Function) -> Function:
    """`call` in the place of `original`, and of its kind."""
    if isinstance(original, (BuiltinFunctionType, MethodType, Builtin)):
        return Builtin(original, call)
    return functools.wraps(original)(call)
