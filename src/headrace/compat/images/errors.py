"""What is wrong with one image, as the exceptions that the Loader raises for it."""

from __future__ import annotations

import os

from headrace.dropins.image_source import ImageSource, origin_of
from headrace.errors import HeadraceError, NotFoundError, SampleError
from headrace.loader.bad_samples import error_at

CORRUPT, LIMIT, _IO = 2, 3, 5
"""Codes of failures (core/common/fault.hpp)."""


def error_for(source: ImageSource, code: int, why: str) -> HeadraceError:
    """The exception for a failure of this source; `key` is its path, or says what it is."""
    key, shard = origin_of(source)
    if code == _IO and isinstance(source, str | os.PathLike) and _is_missing(source):
        return NotFoundError(f"expected an image at {shard}, got nothing under that name; check the path")
    return error_at(code, why, key=key, shard=shard, offset=None, field="image")


def at_item(error: HeadraceError, item: int) -> HeadraceError:
    """The same error, naming the place in the list as well."""
    if isinstance(error, SampleError):
        why = f"sources[{item}]: {error.why}"
        return type(error)(why, key=error.key, shard=error.shard, offset=error.offset, field=error.field)
    return type(error)(f"sources[{item}]: {error}")


def _is_missing(path: str | os.PathLike[str]) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
