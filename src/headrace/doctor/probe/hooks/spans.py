"""Calls of other people's functions, timed as spans of the step."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..training.training import Training


def spanned(training: Training, kind: str, begin_mark: str, end_mark: str) -> Callable[..., Callable[..., Any]]:
    """Makes a function that counts as a span where the training thread calls it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not training.enter(kind, begin_mark):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                training.leave(end_mark)

        return wrapper

    return make
