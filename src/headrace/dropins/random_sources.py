"""`sample_random`: per-sample random sources, and detection of draws from the global sources."""

from __future__ import annotations

import operator
import random
import sys
import threading
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import _core
from headrace.errors import UsageError, warn_caller
from headrace.loader import Output, batch_rng, sample_rng
from headrace.plan import epoch_key
from headrace.system import rank_of_process

if TYPE_CHECKING:
    import torch


_PYTHON, _TORCH, _KEYS = 1, 2, 3
"""Constants that separate the seeds of one sample's sources."""


class SampleRandom:
    """Random sources of one sample: `numpy`, `torch` and `python`, each created on first access.

    They are independent of each other and of the sources of any other sample, batch and epoch.
    """

    def __init__(self, key: int, step: int, row: int | None) -> None:
        """Identify the sample by the epoch's `key`, the batch (`step`) and its `row`; row None is the whole batch."""
        self._key = key
        self._step = step
        self._row = row
        self._keys_drawn = 0

    @cached_property
    def numpy(self) -> np.random.Generator:
        """Generator for NumPy, albumentations, SciPy."""
        if self._row is None:
            return batch_rng(self._key, step=self._step, rank=0)
        return sample_rng(self._key, draw_id=self._row, pass_=self._step)

    @cached_property
    def torch(self) -> torch.Generator:
        """CPU generator for the `generator=` argument of torch's functions."""
        import torch

        generator = torch.Generator()
        generator.manual_seed(self._seed(_TORCH))
        return generator

    @cached_property
    def python(self) -> random.Random:
        """Generator with the methods of the `random` module."""
        return random.Random(self._seed(_PYTHON))

    def draw_key(self) -> int:
        """Draw 64 bits from a separate stream, at a tenth of the cost of creating a generator."""
        self._keys_drawn += 1
        return _core.hash64(self._seed(_KEYS), self._keys_drawn)

    def _seed(self, source: int) -> int:
        row = 0 if self._row is None else self._row + 1
        return _core.hash64(_core.hash64(_core.hash64(self._key, self._step), row), source)


class _Current(threading.local):
    source: SampleRandom | None = None


_current = _Current()


def sample_random() -> SampleRandom:
    """Return the random sources of the sample that this thread loads, for code in `__getitem__` or `collate_fn`.

    Under ThreadDataLoader, draws depend only on the loader's seed, the epoch and the sample's position in it, not on
    the number or timing of threads. All calls for one sample return the same object and continue its draws.
    `__getitems__` and `collate_fn` each have one object for the whole batch.

    Anywhere else (under DataLoader, in a script) each call returns new sources, seeded from torch's default generator,
    so they follow `torch.manual_seed` and differ between workers.
    """
    source = _current.source
    if source is not None:
        return source
    import torch

    return SampleRandom(int(torch.empty((), dtype=torch.int64).random_()), 0, None)


def present_sample() -> SampleRandom | None:
    """Return the sources of the sample that a ThreadDataLoader loads in this thread; None if there is none."""
    return _current.source


def random_key(base_seed: int, epoch: int) -> int:
    """Derive the key of an epoch's sources from the epochs since `base_seed` was drawn and this process's rank."""
    try:
        rank = rank_of_process().rank
    except UsageError:  # contradictory variables are harmless: the rank only separates draws
        rank = 0
    return _core.hash64(epoch_key(base_seed, epoch), rank)


def enter(source: SampleRandom | None) -> None:
    """Set the sources of the sample that this thread loads; None: it loads nothing."""
    _current.source = source


if TYPE_CHECKING:
    RandomSource: TypeAlias = int | np.random.Generator | torch.Generator


def draw_keys(rng: RandomSource | None, output: Output, count: int) -> list[int]:
    """Draw `count` keys of 64 bits (63 from torch), in order.

    With an int, key k is the key of epoch k of `Loader(seed=rng)`. With a generator, each key is a draw. Without `rng`,
    keys come from the sources of the sample that a ThreadDataLoader loads in this thread. Elsewhere they come from the
    generator that matches `output`: torch's default or NumPy's global one. DataLoader seeds both in its workers.
    """
    if rng is None and (sample := present_sample()) is not None:
        # Threads share the global generators, so draws from them would depend on timing.
        return [sample.draw_key() for _ in range(count)]
    if isinstance(rng, np.random.Generator):
        return [int(rng.integers(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]
    if rng is None and output == "numpy":
        return [int(np.random.randint(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]
    torch: Any = import_module("torch") if rng is None else sys.modules.get("torch")  # imported if rng is its generator
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
    """Return the states of the global sources by their names in messages, torch's only if imported. Takes 25 µs."""
    numpy_state: Any = np.random.get_state(legacy=False)
    own = numpy_state["state"]
    # Other bit generators than the Mersenne Twister (`set_bit_generator`) have other state, including arrays.
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
    """Return the names of the sources that have advanced since `before`."""
    return [name for name, state in global_states().items() if name in before and state != before[name]]


WAITS = 3
"""Number of consumer waits to watch. The two snapshots of a wait take 50 µs."""


class GlobalRandomWatch:
    """Detector of draws from global generators: while the main thread waits for a batch, only the dataset can draw.

    Threads share the global sources of `random`, NumPy and torch, so the sample that receives a number depends on
    timing. The detector runs in the consumer, so it does not slow down samples. It watches a loader's first waits and
    warns once.
    """

    def __init__(self, waits: int = WAITS) -> None:
        self._waits = waits

    def before_wait(self) -> dict[str, Any] | None:
        """Return the global states for `after_wait`; None after enough waits, or outside the main thread."""
        if self._waits <= 0 or threading.current_thread() is not threading.main_thread():
            return None
        self._waits -= 1
        return global_states()

    def after_wait(self, before: dict[str, Any] | None) -> None:
        """Warn, at the line that requested the batch, if a source has advanced since `before`."""
        if before is None:
            return
        moved = moved_sources(before)
        if moved:
            self._waits = 0
            warn_caller(
                f"{' and '.join(moved)} moved while ThreadDataLoader waited for a batch: the dataset or collate_fn "
                "seems to draw from it. Threads share it, so which sample gets which number depends on timing, and a "
                "run does not repeat. Draw from sample_random() instead, or load with num_workers=0 or in DataLoader's "
                "processes",
                UserWarning,
            )
