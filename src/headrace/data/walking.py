"""Every folder below one, through links, without going round in circles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from headrace.errors import ReadError

T = TypeVar("T")


def walk(
    root: bytes, look: Callable[[bytes], tuple[list[bytes], T]], *, in_circle: Callable[[], object] | None = None
) -> Iterator[tuple[bytes, T]]:
    """Each folder's path below `root`, which is empty for `root` itself, and what `look` makes of the folder beside the
    names of those subfolders of it that are visited. One that is inside of itself is not: `in_circle` is told.

    Raises ReadError for a folder that cannot be listed.
    """
    todo: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", ())]
    while todo:
        path, above = todo.pop()
        full = os.path.join(root, path) if path else root
        try:
            status = os.stat(full)
            here = (status.st_dev, status.st_ino)
            if here in above:
                if in_circle is not None:
                    in_circle()
                continue
            subfolders, found = look(full)
        except OSError as error:
            raise ReadError(
                f"{os.fsdecode(full)}: could not be listed: {error.strerror}. "
                f"Make it readable, or move it out of the dataset"
            ) from error
        yield path, found
        prefix = path + b"/" if path else b""
        todo += [(prefix + name, (*above, here)) for name in subfolders]
