"""One measured run a folder: of two that write to the same files, neither could be undone alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.errors import UsageError


@contextmanager
def alone_in(root: Path) -> Iterator[None]:
    """Nobody else measures in that folder meanwhile, nor in one below it or around it. Needs no file: the folders
    themselves are locked, which ends with this process. Where a file system has no locks, so much is not known.

    Raises UsageError where somebody does.
    """
    with ExitStack() as stack:
        for folder in (root, *root.parents):
            _lock(stack, folder, fcntl.LOCK_EX if folder == root else fcntl.LOCK_SH)
        yield


def _lock(stack: ExitStack, folder: Path, kind: int) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            f"expected a folder in which nothing else is measured, got {folder}, where a doctor runs that will put its "
            "files back; wait for it, give --observe, or run in a copy of the folder"
        ) from error
    except OSError:
        return
