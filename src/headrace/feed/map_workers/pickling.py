"""Pickles between a parent and its own workers: tensors by their numbers, exceptions as near as they can be."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from types import TracebackType
from typing import Any

from headrace.errors import UsageError
from headrace.feed.map_workers.messages import Failure
from headrace.loader.batch_values import Plain


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """A tensor's own pickle holds all of the memory that it is a view of."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return NotImplemented
        plain = Plain.of(value)
        return NotImplemented if plain is None else (_restore, (plain.array, plain.tensor))


def _restore(array: Any, tensor: str) -> Any:
    return Plain(array.copy() if not array.flags.writeable else array, tensor).restore()


def dumps(message: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    return buffer.getvalue()


def loads_rows(data: bytes) -> dict[int, Any]:
    """What the user's function returned, by row. Raises UsageError for values that cannot be made again."""
    try:
        rows: dict[int, Any] = pickle.loads(data)
    except Exception as error:  # whatever the values' own classes raise
        raise UsageError(
            f"map: expected values that can be pickled and made again, as they come from a process of their own, got "
            f"some that cannot ({type(error).__name__}: {error}); return arrays, tensors, numbers, text, or lists and "
            "dicts of these, or use map_workers=0"
        ) from error
    return rows


def failure(row: int, error: BaseException) -> Failure:
    """An exception on its way to the parent. One that cannot be pickled goes as the nearest of its bases that can."""
    lines = traceback.format_exception(type(error), error, _from_the_user(error.__traceback__))
    words = f"{type(error).__qualname__}: {error}"
    return Failure(row, _portable(error, words), words, "".join(lines).rstrip())


def raised(failure: Failure) -> BaseException:
    """The exception, in the parent. One whose class is in the worker alone becomes a RuntimeError."""
    try:
        error: BaseException = pickle.loads(failure.error)
    except Exception:  # whatever the user's classes raise
        error = RuntimeError(failure.words)
    return error


def _from_the_user(whole: TracebackType | None) -> TracebackType | None:
    """A traceback without the calls that led to the user's code; all of it where there is none of theirs."""
    part = whole
    while part is not None and part.tb_frame.f_globals.get("__name__", "").startswith("headrace."):
        part = part.tb_next
    return whole if part is None else part


def _portable(error: BaseException, words: str) -> bytes:
    if (data := _survives(error)) is not None:
        return data
    for base in type(error).__mro__[1:]:
        try:
            stand_in = base(words)
        except Exception:  # its constructor wants something else
            continue
        if isinstance(stand_in, BaseException) and (data := _survives(stand_in)) is not None:
            return data
    return dumps(RuntimeError(words))


def _survives(error: BaseException) -> bytes | None:
    """The exception's pickle, if an equal one comes of it."""
    try:
        data = dumps(error)
        copy = pickle.loads(data)
    except Exception:  # whatever the user's classes raise
        return None
    return data if type(copy) is type(error) and str(copy) == str(error) else None
