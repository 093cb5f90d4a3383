"""The save-and-resume battery: what must hold of every loader that has state, whatever it loads.

Each check takes a factory `make(**overrides)` of something that iterates over dicts, and has `len`, `state_dict` and
`load_state_dict` as `Loader` has. What it makes for one set of overrides must be equal; overrides are named as the
arguments of `Loader` are: threads, batch_size, rank, world_size, remainder, instruction_set.

`over` makes one test of a file's cases and these checks; `battery_recipes` has cases of every source with all fields,
plans, workers and caches.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import numpy as np
import pytest

from headrace import _core

Batch = Mapping[str, Any]

THREADS = (1, 2, 8)
WORLD_SIZES = (1, 2, 4)
EPOCHS = 2
GLOBAL_BATCH = 12
"""What each world size divides. A factory may have another: its attribute `global_batch`."""


class Resumable(Protocol):
    """What the battery asks of whatever it tests."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...
    def set_epoch(self, epoch: int, /) -> None: ...


Make = Callable[..., Resumable]


def plain(value: Any) -> Any:
    """A batch's part as numpy array or list, its bits kept."""
    if type(value).__module__ == "torch":
        import torch

        value = value.view(torch.uint16) if value.dtype == torch.bfloat16 else value
        return value.numpy().copy()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def kept(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Copies: the loader may use its memory again."""
    return [{name: plain(value) for name, value in batch.items()} for batch in batches]


def epochs(loader: Resumable, count: int = EPOCHS) -> list[dict[str, Any]]:
    return [batch for _ in range(count) for batch in kept(loader)]


def assert_equal(got: list[dict[str, Any]], expected: list[dict[str, Any]], what: str) -> None:
    """Same batches in the same order, bit for bit, types and shapes included."""
    assert len(got) == len(expected), f"{what}: {len(got)} batches, expected {len(expected)}"
    for step, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        assert list(mine) == list(theirs), f"{what}, batch {step}: other fields"
        for name in theirs:
            assert _same(mine[name], theirs[name]), f"{what}, batch {step}: field {name!r} differs"


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return list(mine) == list(theirs) and all(_same(mine[name], theirs[name]) for name in theirs)
    if not isinstance(theirs, np.ndarray):
        return type(mine) is type(theirs) and bool(mine == theirs)
    return mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def joined(parts: Iterable[Batch]) -> dict[str, Any]:
    """The ranks' parts of one global batch, in rank order. A short batch leaves some ranks nothing."""
    parts = list(parts)
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _joined([value[name] for value in values]) for name in values[0]}
    values = [value for value in values if len(value)]
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    return [item for value in values for item in value]


def check_threads(make: Make) -> None:
    """No thread count changes a bit, and no run either."""
    expected = epochs(make(threads=1))
    for threads in THREADS:
        assert_equal(epochs(make(threads=threads)), expected, f"threads={threads}")


def check_instruction_sets(make: Make) -> None:
    """No instruction-set level that this processor has changes a bit."""
    expected = kept(make(instruction_set="scalar"))
    for level in _core.levels():
        assert_equal(kept(make(instruction_set=level)), expected, f"instruction_set={level}")


def check_held_batches(make: Make) -> None:
    """A batch that somebody holds keeps its bits while all later ones are made; what holds many is told so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*batches of .* are alive", UserWarning)
        held = list(make())
    assert_equal(kept(held), kept(make()), "held to the end")


def check_world_sizes(make: Make, global_batch: int | None = None) -> None:
    """The ranks' parts, joined in rank order, are the batches of world size 1."""
    global_batch = _global_batch(make, global_batch)
    expected = epochs(make(batch_size=global_batch, rank=0, world_size=1))
    for world_size in WORLD_SIZES:
        ranks = [epochs(loader) for loader in loaders_of(make, global_batch, world_size)]
        assert_equal([joined(parts) for parts in zip(*ranks, strict=True)], expected, f"world_size={world_size}")


def _global_batch(make: Make, given: int | None) -> int:
    return given if given is not None else getattr(make, "global_batch", GLOBAL_BATCH)


def loaders_of(make: Make, global_batch: int, world_size: int) -> list[Resumable]:
    batch_size = global_batch // world_size
    return [make(batch_size=batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]


def check_resume_at_every_step(make: Make, **other: Any) -> None:
    """Stopped after any batch, the rest of this epoch and the next one follow; `other` overrides what resumes.

    The state passes through JSON. Its loader is dropped while it prefetches, so what it had ready is not counted.
    """
    loader = make()
    expected = epochs(loader)
    for taken in range(len(loader) + 1):
        state = state_after(make(), taken)
        resumed = make(**other)
        resumed.load_state_dict(state)
        got = kept(resumed) + (kept(resumed) if taken < len(loader) else [])
        assert_equal(got, expected[taken:], f"resumed after {taken}")


def check_resume_twice(make: Make) -> None:
    """A resumed run that is stopped and resumed again goes on as if nothing had happened."""
    loader = make()
    expected = kept(loader)
    for first in range(len(loader)):
        resumed = make()
        resumed.load_state_dict(state_after(make(), first))
        got = take(resumed, 1)
        again = make()
        again.load_state_dict(resumed.state_dict())
        if first + 1 < len(loader):
            got += kept(again)
        assert_equal(got, expected[first:], f"resumed after {first} and {first + 1}")


def check_abandoned_passes(make: Make) -> None:
    """A pass left by `break` counts as its epoch's; a restored position is continued once.

    `set_epoch` takes any epoch, and leaves a position that was restored in this one. A pass of which nothing was
    received leaves the position as it was.
    """
    loader = make()
    expected, steps = epochs(loader, 3), len(loader)
    first, second, third = (expected[epoch * steps :][:steps] for epoch in range(3))
    loader = make()
    loader.load_state_dict(state_after(make(), 1))
    take(loader, 0)
    assert_equal(take(loader, 1), first[1:2] if steps > 1 else second[:1], "restored")
    loader.set_epoch(0)
    assert_equal(take(loader, 1), first[:1], "set_epoch")
    if steps == 1:
        return
    assert_equal(take(loader, 1), second[:1], "after a break")
    assert loader.state_dict() == state_after(_positioned(make(), 1), 1)
    assert_equal(kept(loader), third, "after another")
    loader.load_state_dict(state_after(make(), 1))
    loader.set_epoch(0)
    assert_equal(take(loader, 1), first[1:2], "set_epoch of the restored epoch")


def _positioned(loader: Resumable, epoch: int) -> Resumable:
    loader.set_epoch(epoch)
    return loader


def check_restored_state_is_the_same(make: Make) -> None:
    """A state that is loaded and saved again before any batch is the same state, also once iteration has begun."""
    for taken in range(len(make()) + 1):
        state = state_after(make(), taken)
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        iterator = iter(resumed)
        assert resumed.state_dict() == state
        close(iterator)


def check_resume_on_other_world_sizes(make: Make, global_batch: int | None = None) -> None:
    """From any world size to any other, at every step: the same global batches."""
    global_batch = _global_batch(make, global_batch)
    whole = make(batch_size=global_batch, rank=0, world_size=1)
    steps, expected = len(whole), epochs(whole)
    for saved_on in WORLD_SIZES:
        for taken in {0, 1, steps - 1, steps}:
            states = [state_after(loader, taken) for loader in loaders_of(make, global_batch, saved_on)]
            assert all(state == states[0] for state in states), "ranks save different states"
            for resumed_on in WORLD_SIZES:
                got = [_resumed(loader, states[0]) for loader in loaders_of(make, global_batch, resumed_on)]
                rest = expected[taken:steps] if taken < steps else expected[steps:]
                what = f"saved on {saved_on}, resumed on {resumed_on} after {taken}"
                assert_equal([joined(parts) for parts in zip(*got, strict=True)], rest, what)


def _resumed(loader: Resumable, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    loader.load_state_dict(state)
    return kept(loader)


def state_after(loader: Resumable, taken: int) -> dict[str, Any]:
    """The state, as it comes out of a file, once `taken` batches have been received."""
    take(loader, taken)
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def take(loader: Resumable, count: int) -> list[dict[str, Any]]:
    """The first batches of a pass, which is then broken off."""
    iterator = iter(loader)
    try:
        return kept(_first(iterator, count))
    finally:
        close(iterator)


def close(iterator: Iterator[Batch]) -> None:
    """Ends a pass. A DataLoader's iterator has no `close`: its workers end when it is dropped."""
    end = getattr(iterator, "close", None)
    if end is not None:
        end()


def _first(iterator: Iterator[Batch], count: int) -> Iterator[Batch]:
    return islice(iterator, count)


def check_resume_with_other_threads(make: Make) -> None:
    check_resume_at_every_step(make, threads=1)


CHECKS: dict[str, Callable[[Make], None]] = {
    "threads": check_threads,
    "instruction sets": check_instruction_sets,
    "held batches": check_held_batches,
    "world sizes": check_world_sizes,
    "resume": check_resume_at_every_step,
    "resume with other threads": check_resume_with_other_threads,
    "resume twice": check_resume_twice,
    "abandoned passes": check_abandoned_passes,
    "restored state": check_restored_state_is_the_same,
    "resume on other world sizes": check_resume_on_other_world_sizes,
}


def over(cases: Iterable[str], *, but: Iterable[str] = (), one_in: int = 10) -> pytest.MarkDecorator:
    """Parametrize a test by `case` and `check`: it calls `check(make)` with what makes the case's loaders.

    `but`: checks that say nothing of these cases. One pair in `one_in` belongs to `make test`, so that each case has
    some checks there and each check some cases; `make test-long` has all of them.
    """
    pairs = [(place, case, check) for place, case in enumerate(cases) for check in CHECKS if check not in set(but)]
    order = list(CHECKS)
    return pytest.mark.parametrize(
        ("case", "check"),
        [
            pytest.param(
                case,
                CHECKS[check],
                id=f"{case}-{check}",
                marks=pytest.mark.long if (place + order.index(check)) % one_in else (),
            )
            for place, case, check in pairs
        ],
    )
