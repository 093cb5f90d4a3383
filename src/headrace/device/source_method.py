"""A method that an object has only if its source has one of that name, so that `hasattr` tells the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class SourceMethod(Generic[S, P, R]):
    """Decorates a method of a class whose instances have `source`. Frameworks ask `hasattr(loader, "state_dict")`
    before they save a run: a method that is there and then raises would end it."""

    def __init__(self, function: Callable[Concatenate[S, P], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> SourceMethod[S, P, R]: ...
    @overload
    def __get__(self, instance: S, owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        name = self._function.__name__
        if not hasattr(instance.source, name):
            raise AttributeError(
                f"{owner.__name__}.{name}: expected a source that has it, got {type(instance.source).__name__}, which "
                "has none"
            )
        return self._function.__get__(instance, owner)
