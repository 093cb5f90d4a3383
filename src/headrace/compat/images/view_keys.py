"""Keys of random views: one number says which window of an image is cut, and whether it is flipped."""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import numpy as np

from headrace import _core
from headrace.dropins.random_sources import present_sample
from headrace.errors import UsageError
from headrace.loader import Output

if TYPE_CHECKING:
    import torch

    RandomSource: TypeAlias = int | np.random.Generator | torch.Generator


def draw_keys(rng: RandomSource | None, output: Output, count: int) -> list[int]:
    """`count` keys of 64 bits (63 from torch), in order.

    From an int, key k is that of epoch k of `Loader(seed=rng)`. From a generator, each key is a draw. Without `rng`
    they are draws of the sample that a ThreadDataLoader loads in this thread; elsewhere, from the generator that goes
    with `output`: torch's default one, or numpy's global one. DataLoader seeds both in each of its workers.
    """
    if rng is None:
        return _default(output, count)
    if isinstance(rng, np.random.Generator):
        return [int(rng.integers(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]
    if _is_torch_generator(rng):
        return _from_torch(rng, count)
    return [_core.hash64(_seed(rng), k) for k in range(count)]


def _default(output: Output, count: int) -> list[int]:
    sample = present_sample()
    if sample is not None:  # threads share the global generators: which image gets which draw would be chance
        return [sample.draw_key() for _ in range(count)]
    return _from_torch(None, count) if output == "torch" else _from_numpy_global(count)


def _from_torch(generator: torch.Generator | None, count: int) -> list[int]:
    import torch

    return [int(torch.empty((), dtype=torch.int64).random_(generator=generator)) for _ in range(count)]


def _from_numpy_global(count: int) -> list[int]:
    return [int(np.random.randint(0, 1 << 64, dtype=np.uint64)) for _ in range(count)]


def _is_torch_generator(rng: object) -> TypeGuard[torch.Generator]:
    torch = sys.modules.get("torch")  # who has one of its generators has imported it
    return torch is not None and isinstance(rng, torch.Generator)


def _seed(rng: object) -> int:
    try:
        seed = operator.index(rng)  # type: ignore[arg-type]  # what is no whole number says so
    except TypeError:
        seed = -1
    if not 0 <= seed < 1 << 64:
        raise UsageError(
            f"rng: expected an int from 0 to 2**64 - 1, a numpy.random.Generator or a torch.Generator, got {rng!r}"
        )
    return seed
