"""`sample_random`: random sources of one sample, and checks of who draws from global ones."""

from __future__ import annotations

import operator
import random
import sys
import threading
import warnings
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import _core
from headrace.errors import UsageError
from headrace.loader import Output, batch_rng, sample_rng
from headrace.plan import epoch_key
from headrace.system import rank_of_process

if TYPE_CHECKING:
    import torch


_PYTHON, _TORCH, _KEYS = 1, 2, 3
"""Keep the seeds of one sample's sources apart."""


class SampleRandom:
    """Random sources of one sample: `numpy`, `torch` and `python`, each made when it is first asked for.

    They are independent of each other, and of those of any other sample, batch and epoch.
    """

    def __init__(self, key: int, step: int, row: int | None) -> None:
        """Identify the sample by the epoch's `key`, the batch (`step`) and its `row`; None is the whole batch."""
        self._key = key
        self._step = step
        self._row = row
        self._keys_drawn = 0

    @cached_property
    def numpy(self) -> np.random.Generator:
        """Generator for numpy, albumentations, scipy."""
        if self._row is None:
            return batch_rng(self._key, step=self._step, rank=0)
        return sample_rng(self._key, draw_id=self._row, pass_=self._step)

    @cached_property
    def torch(self) -> torch.Generator:
        """Generator for `generator=` of torch's functions; on the CPU."""
        import torch

        generator = torch.Generator()
        generator.manual_seed(self._seed(_TORCH))
        return generator

    @cached_property
    def python(self) -> random.Random:
        """Has what the module `random` has."""
        return random.Random(self._seed(_PYTHON))

    def draw_key(self) -> int:
        """Draw 64 bits from a stream of their own, for a single number: at a tenth of a generator's cost."""
        self._keys_drawn += 1
        return _core.hash64(self._seed(_KEYS), self._keys_drawn)

    def _seed(self, source: int) -> int:
        row = 0 if self._row is None else self._row + 1
        return _core.hash64(_core.hash64(_core.hash64(self._key, self._step), row), source)


class _Current(threading.local):
    source: SampleRandom | None = None


_current = _Current()


def sample_random() -> SampleRandom:
    """Return the random sources of the sample that this thread loads, for use in `__getitem__`, `collate_fn` and below.

    Under ThreadDataLoader their draws depend on the loader's seed, the epoch and the sample's place in it, and on
    nothing else: not on the number of threads, nor on which of them is quicker. Every call for one sample returns the
    same object, so that draws go on; `__getitems__` has one for the whole batch, and so has `collate_fn`.

    Anywhere else (under DataLoader, in a script) each call returns new sources, seeded by a draw from torch's default
    generator, so they follow `torch.manual_seed` and differ from worker to worker.
    """
    source = _current.source
    if source is not None:
        return source
    import torch

    return SampleRandom(int(torch.empty((), dtype=torch.int64).random_()), 0, None)


def present_sample() -> SampleRandom | None:
    """Return the sources of the sample that a ThreadDataLoader loads in this thread; None where it loads none."""
    return _current.source


def random_key(base_seed: int, epoch: int) -> int:
    """Return the key of an epoch's sources, from its number since `base_seed` was drawn, and this process's rank."""
    try:
        rank = rank_of_process().rank
    except UsageError:  # contradictory variables do no harm here: a rank only separates draws
        rank = 0
    return _core.hash64(epoch_key(base_seed, epoch), rank)


def enter(source: SampleRandom | None) -> None:
    """Declare what this thread loads from now on; None: nothing."""
    _current.source = source


if TYPE_CHECKING:
    RandomSource: TypeAlias = int | np.random.Generator | torch.Generator


def draw_keys(rng: RandomSource | None, output: Output, count: int) -> list[int]:
    """`count` keys of 64 bits (63 from torch), in order.

    From an int, key k is that of epoch k of `Loader(seed=rng)`. From a generator, each key is a draw. Without `rng`
    they are draws of the sample that a ThreadDataLoader loads in this thread; elsewhere, from the generator that goes
    with `output`: torch's default one, or numpy's global one. DataLoader seeds both in each of its workers.
    """
    if rng is None and (sample := present_sample()) is not None:
        # Threads share the global generators: which image gets which draw would be chance.
        return [sample.draw_key() for _ in range(count)]
    if isinstance(rng, np.random.Generator):
        return [int(rng.integers(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]
    if rng is None and output == "numpy":
        return [int(np.random.randint(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]
    torch: Any = import_module("torch") if rng is None else sys.modules.get("torch")  # who has a generator imported it
    if rng is None or (torch is not None and isinstance(rng, torch.Generator)):
        return [int(torch.empty((), dtype=torch.int64).random_(generator=rng)) for _ in range(count)]
    try:
        seed = operator.index(rng)  # type: ignore[arg-type]  # what is no whole number says so
    except TypeError:
        seed = -1
    if not 0 <= seed < 1 << 64:
        raise UsageError(
            f"rng: expected an int from 0 to 2**64 - 1, a numpy.random.Generator or a torch.Generator, got {rng!r}"
        )
    return [_core.hash64(seed, k) for k in range(count)]


def global_states() -> dict[str, Any]:
    """Return the state of each global source, by its name in messages; 25 µs. torch's only where it is imported."""
    numpy_state: Any = np.random.get_state(legacy=False)
    own = numpy_state["state"]
    # Another bit generator than the Mersenne Twister (`set_bit_generator`) holds other things, arrays among them.
    is_twister = numpy_state["bit_generator"] == "MT19937"
    states = {
        "random": random.getstate(),
        "numpy.random": (own["key"].tobytes(), own["pos"]) if is_twister else repr(numpy_state),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch's default generator"] = torch.get_rng_state().numpy().tobytes()
    return states


def moved_sources(before: dict[str, Any]) -> list[str]:
    """Return the names of the sources that have moved since `before`."""
    return [name for name, state in global_states().items() if name in before and state != before[name]]


WAITS = 3
"""Waits of the consumer that are watched: two snapshots take 50 µs of a wait."""


class GlobalRandomWatch:
    """Watch on the global generators: while the main thread waits for a batch, only the dataset can move one.

    Threads share the global sources of `random`, numpy and torch, so which sample gets which number depends on timing.
    The watch runs in the consumer, so it costs the samples nothing. It warns once, and only watches a loader's first
    waits.
    """

    def __init__(self, waits: int = WAITS) -> None:
        self._waits = waits

    def before_wait(self) -> dict[str, Any] | None:
        """Return the global states, for `after_wait`; None once enough waits were watched."""
        if self._waits <= 0 or threading.current_thread() is not threading.main_thread():
            return None
        self._waits -= 1
        return global_states()

    def after_wait(self, before: dict[str, Any] | None) -> None:
        """Warn, at the line that asked for the batch, if a state has moved since."""
        if before is None:
            return
        moved = moved_sources(before)
        if moved:
            self._waits = 0
            warnings.warn(
                f"{' and '.join(moved)} moved while ThreadDataLoader waited for a batch: the dataset or collate_fn "
                "seems to draw from it. Threads share it, so which sample gets which number depends on timing, and a "
                "run does not repeat. Draw from sample_random() instead, or load with num_workers=0 or in DataLoader's "
                "processes",
                UserWarning,
                stacklevel=5,
            )
