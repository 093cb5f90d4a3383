"""Global random generators of Python, numpy and torch: their states, held and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable


def generators_held() -> Callable[[], None]:
    """Return a function that restores the current state of the global random generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python = random.getstate()
    numpys = None if numpy is None else numpy.random.get_state(legacy=False)
    torchs = None if torch is None else torch.get_rng_state()

    def put_back() -> None:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.set_rng_state(torchs)

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
