"""Reading again what failed for a reason that may pass: a disk, a network or a server that may answer the next time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace._core import RETRY_WAITS_S, loses_descriptor, may_pass

T = TypeVar("T")

WAITS_S = RETRY_WAITS_S
"""The pause before each further attempt, as the core has it for what it reads itself."""
pause = time.sleep


def patiently(read: Callable[[], T], *, reopen: Callable[[], object] | None = None) -> T:
    """What `read` returns, at one of `1 + len(WAITS_S)` attempts. `reopen` is called where the descriptor is lost.

    Raises OSError: at once what does not pass, such as a name that is not there, else the last attempt's.
    """
    waits_s = iter(WAITS_S)
    lost = False
    while True:
        try:
            if lost and reopen is not None:
                reopen()
            return read()
        except OSError as error:
            wait_s = next(waits_s, None)
            if wait_s is None or not _may_pass(error):
                raise
            lost = loses_descriptor(error.errno or 0)
        pause(wait_s)


def attempts_text(error: OSError) -> str:
    """What a message adds of the attempts that ended with this error: nothing where one had to be enough."""
    return f", at each of {len(WAITS_S) + 1} attempts" if _may_pass(error) else ""


def _may_pass(error: OSError) -> bool:
    return error.errno is not None and may_pass(error.errno)
