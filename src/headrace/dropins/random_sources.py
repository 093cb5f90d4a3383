"""`sample_random`: random sources of one sample, the same however many threads load."""

from __future__ import annotations

import random
import threading
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from headrace import _core
from headrace.errors import UsageError
from headrace.loader import user_functions
from headrace.plan.order_old import epoch_key
from headrace.system.rank import rank_of_process

if TYPE_CHECKING:
    import torch

_PYTHON, _TORCH, _KEYS = 1, 2, 3
"""Keep the seeds of one sample's sources apart."""


class SampleRandom:
    """Random sources of one sample: `numpy`, `torch` and `python`, each made when it is first asked for.

    They are independent of each other, and of those of any other sample, batch and epoch.
    """

    def __init__(self, key: int, step: int, row: int | None) -> None:
        """`key` stands for the epoch, `step` for the batch in it, and `row` for the sample; None is the whole batch."""
        self._key = key
        self._step = step
        self._row = row
        self._keys_drawn = 0

    @cached_property
    def numpy(self) -> np.random.Generator:
        """For numpy, albumentations, scipy."""
        if self._row is None:
            return user_functions.batch_rng(self._key, step=self._step, rank=0)
        return user_functions.sample_rng(self._key, draw_id=self._row, pass_=self._step)

    @cached_property
    def torch(self) -> torch.Generator:
        """For `generator=` of torch's functions; on the CPU."""
        import torch

        generator = torch.Generator()
        generator.manual_seed(self._seed(_TORCH))
        return generator

    @cached_property
    def python(self) -> random.Random:
        """Has what the module `random` has."""
        return random.Random(self._seed(_PYTHON))

    def draw_key(self) -> int:
        """64 random bits from a stream of their own, for what one number decides: a tenth of a generator's cost."""
        self._keys_drawn += 1
        return _core.hash64(self._seed(_KEYS), self._keys_drawn)

    def _seed(self, source: int) -> int:
        row = 0 if self._row is None else self._row + 1
        return _core.hash64(_core.hash64(_core.hash64(self._key, self._step), row), source)


class _Current(threading.local):
    source: SampleRandom | None = None


_current = _Current()


def sample_random() -> SampleRandom:
    """The random sources of the sample that this thread loads, for use in `__getitem__`, `collate_fn` and below.

    Under ThreadDataLoader what they draw depends on the loader's seed, the epoch and the sample's place in it, and on
    nothing else: not on the number of threads, nor on which of them is quicker. Every call for one sample gives the
    same object, so that draws go on; `__getitems__` has one for the whole batch, and so has `collate_fn`.

    Anywhere else (under DataLoader, in a script) each call gives new sources, seeded by a draw from torch's default
    generator, so they follow `torch.manual_seed` and differ from worker to worker.
    """
    source = _current.source
    if source is not None:
        return source
    import torch

    return SampleRandom(int(torch.empty((), dtype=torch.int64).random_()), 0, None)


def present_sample() -> SampleRandom | None:
    """The sources of the sample that a ThreadDataLoader loads in this thread; None where it loads none."""
    return _current.source


def random_key(base_seed: int, epoch: int) -> int:
    """The key of an epoch's sources: of its number since `base_seed` was drawn, and of this process's rank."""
    try:
        rank = rank_of_process().rank
    except UsageError:  # variables that contradict each other part no data here: a rank only keeps draws apart
        rank = 0
    return _core.hash64(epoch_key(base_seed, epoch), rank)


def enter(source: SampleRandom | None) -> None:
    """From now on, this thread loads what `source` belongs to; None: nothing."""
    _current.source = source
