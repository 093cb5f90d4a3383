"""States of random generators: the global ones of Python, numpy and torch, and those that a dataset reaches."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, Callable

from .leaves import as_array
from .objects import LEAVES, class_name, members_of, named_in, reached

GLOBAL = ("random", "numpy.random", "torch")
"""Names of the global generators."""
_MOST_LEVELS, _MOST_OBJECTS, _MOST_GENERATORS = 6, 1_000, 16
_LIBRARIES = ("torch", "torchvision", "numpy", "PIL", "cv2", "builtins")
"""Libraries whose classes keep no generator of their own in their modules."""
State = Callable[[], Any]
"""Function that reads the state of a generator."""


def global_generators() -> dict[str, tuple[State, Callable[[Any], None]]]:
    """Return the functions that read and set the state of each global generator, by name."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    found: dict[str, tuple[State, Callable[[Any], None]]] = {"random": (random.getstate, random.setstate)}
    if numpy is not None:
        found["numpy.random"] = partial(numpy.random.get_state, legacy=False), numpy.random.set_state
    if torch is not None:
        found["torch"] = torch.get_rng_state, torch.set_rng_state
    return found


def generators_held() -> Callable[[], None]:
    """Return a function that restores the current state of the global random generators."""
    held = [(state(), restore) for state, restore in global_generators().values()]

    def put_back() -> None:
        for state, restore in held:
            restore(state)

    return put_back


def generators_moved(seed: int) -> None:
    """Reseed the global random generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed)
    if torch is not None:
        torch.default_generator.manual_seed(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global random generators on exit."""
    put_back = generators_held()
    try:
        yield
    finally:
        put_back()


def generators_of(dataset: Any) -> dict[str, State]:
    """Return functions that read the states of the global generators, and of generators that a dataset reaches."""
    found = {name: state for name, (state, _) in global_generators().items()}
    own = reached([(dataset, 0)], _is_generator, _MOST_LEVELS, _MOST_OBJECTS, _inner)
    for number, generator in enumerate(islice(own, _MOST_GENERATORS), start=1):
        found[f"{class_name(type(generator))} {number}"] = partial(_state, generator)
    return found


def state_text(state: Any) -> str:
    """Return all of a state as text."""
    return repr(_plain(state))


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return [(key, _plain(value)) for key, value in state.items()]
    array = as_array(state)
    return state if array is None else array.tobytes()


def _is_generator(thing: Any) -> bool:
    numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    kinds: tuple[type, ...] = (random.Random,)
    kinds += () if numpy is None else (numpy.Generator, numpy.RandomState)
    kinds += () if torch is None else (torch.Generator,)
    return issubclass(type(thing), kinds) and not issubclass(type(thing), random.SystemRandom)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state() if hasattr(generator, "initial_seed") else generator.get_state(legacy=False)


def _inner(thing: Any) -> list[Any]:
    """Return what an object holds, and what the code of its class names."""
    kind = type(thing)
    if kind is FunctionType:
        members = named_in(thing)
    elif kind is MethodType:
        members = [thing.__self__, thing.__func__]
    elif kind is partial:
        members = [thing.func, *thing.args, *thing.keywords.values()]
    else:
        members = [*members_of(thing).values(), *_functions_of(kind)]
    return [one for one in members if type(one) in (FunctionType, MethodType) or not issubclass(type(one), LEAVES)]


def _functions_of(kind: type) -> list[Any]:
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES]
    return [value for base in own for value in vars(base).values() if type(value) is FunctionType]
