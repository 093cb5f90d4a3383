"""Comparison of a generated module with the script it was made from: the same samples, loaded both ways."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

import headrace as hr
from headrace.compare import EpochObservation, Judgement, LoaderObservation, as_array, judge
from headrace.doctor.explain.look import Look, LookedSample, path_text
from headrace.errors import UsageError

if TYPE_CHECKING:
    pass

KEY = " sample"
"""Leaf that pairs the samples of both loaders."""
MIXED_ROUNDING = 1e-5
"""Rounding of a sample that is mixed with itself, as a share of the largest value."""

Leaf = npt.NDArray[Any] | str | bytes
"""Array or text of a batch."""


def verified(look: Look, make_loader: Callable[..., Any], batches: Callable[[Any], Iterable[Any]]) -> dict[str, str]:
    """Return how each leaf compares: `same`, `drawn: ` and the samples' number, or `different: ` and how."""
    judgement = judged(look, make_loader, batches)
    drawn = f"drawn: {max(judgement.samples)} samples compared"
    found = dict.fromkeys(judgement.compared, "same") | {one.leaf: drawn for one in judgement.unseen}
    return found | {one.leaf: f"different: {one.code}: {one.before} | {one.after}" for one in judgement.differences}


def judged(look: Look, make_loader: Callable[..., Any], batches: Callable[[Any], Iterable[Any]]) -> Judgement:
    """Make the look's samples (or the dataset's own batches) again, and compare. Raises ValueError for others."""
    with (
        patch.object(hr, "RandomScale", partial(_middle_scale, hr.RandomScale)),
        patch.object(hr, "MixUp", partial(hr.MixUp, p=0.0)),
        patch.object(hr, "CutMix", partial(hr.CutMix, p=0.0)),
        patch.object(hr, "Loader", partial(hr.Loader, prefetch=1)),  # a sample of each pass is taken
    ):
        made = make_loader(2 if look.mixed else look.batch_size, shuffle=False)
    places = _places(look, made)
    before, after = _scripts_epochs(look, places), []
    for number, epoch in enumerate(before):
        after.append(EpochObservation())
        for (index, place), size in zip(places.items(), epoch.batch_sizes, strict=False):
            after[-1].add(size, _keyed(index, size, _made(made, batches, number, place, is_mixed=bool(look.mixed))))
    judgement = judge(LoaderObservation("script", before), LoaderObservation("Loader", tuple(after)))
    judgement.compared.pop(KEY, None)
    return judgement


def _scripts_epochs(look: Look, places: Mapping[int, int]) -> tuple[EpochObservation, ...]:
    """Return the makings that all samples have; twice the first, if the look had no time for a second."""
    by_index: dict[int, list[LookedSample]] = {index: [] for index in places}
    for each in look.samples:
        if each.index in by_index:
            by_index[each.index].append(each)
    makings = min(map(len, by_index.values()))
    epochs = [EpochObservation() for _ in range(max(makings, 2))]
    for index, samples in by_index.items():
        first = {path_text(path): leaf for path, leaf in samples[0].arrays.items()}
        size = look.size_of(samples[0])
        for number, epoch in enumerate(epochs):
            leaves = {path_text(path): leaf for path, leaf in samples[min(number, makings - 1)].arrays.items()}
            if look.mixed:
                leaves = {path: _unmixed(first.get(path), leaf) for path, leaf in leaves.items()}
            epoch.add(size, _keyed(index, size, leaves))
    return tuple(epochs)


def _keyed(index: int, size: int, leaves: Mapping[str, Leaf]) -> Iterator[tuple[str, Any]]:
    """Yield a batch's leaves, and the keys of its samples."""
    for path, leaf in leaves.items():
        yield path, leaf if isinstance(leaf, np.ndarray) else [leaf] * size
    yield KEY, [f"{index}/{row}" for row in range(size)]


def _unmixed(first: Leaf | None, again: Leaf) -> Leaf:
    """Return the first making for one that differs from it by rounding."""
    are_floats = isinstance(first, np.ndarray) and isinstance(again, np.ndarray) and first.dtype.kind == "f"
    if not are_floats or first is None or np.shape(first) != np.shape(again):
        return again
    reach = MIXED_ROUNDING * float(np.abs(first).max(initial=0.0))
    return first if np.allclose(first, again, rtol=0.0, atol=reach, equal_nan=True) else again


def _made(
    loader: Any, batches: Callable[[Any], Iterable[Any]], epoch: int, place: int, *, is_mixed: bool
) -> dict[str, Leaf]:
    step, row = divmod(place, 2) if is_mixed else (place, 0)
    loader.seek(epoch, step)
    iterator: Any = iter(batches(loader))
    with closing(iterator):
        found = dict(leaves(next(iterator)))
    return {path: leaf[row : row + 1] for path, leaf in found.items()} if is_mixed else found


def _places(look: Look, made: Any) -> dict[int, int]:
    """Return the positions of inspected samples in a Loader's order."""
    indices = dict.fromkeys(each.index for each in look.samples)
    if look.length is not None or look.opened is None:
        chosen = {index: place for place, index in enumerate(look.chosen)} if look.chosen is not None else None
        return {index: index if chosen is None else chosen[index] for index in indices if not chosen or index in chosen}
    found: dict[int, int] = {}
    named: dict[str | None, list[LookedSample]] = {}
    for each in look.samples:
        named.setdefault(each.key, []).append(each)
    for place, key in enumerate(made.dataset.keys):
        for each in named.get(key, ()):
            column, data = next(iter(each.members.items()))
            if each.index not in found and made.dataset.read(column, place) == data:
                found[each.index] = place
    if len(found) < len(indices):
        raise ValueError(f"expected samples by the names {', '.join(map(str, named))} in its tars, got none")
    return found


def _middle_scale(view: Callable[..., Any], short_sides: Sequence[int], **given: Any) -> Any:
    """Return a RandomScale of the middle scale only: several would require shuffle=True, and so another order."""
    return view(short_sides[len(short_sides) // 2 :][:1], **given)


def leaves(batch: Any, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield the arrays and texts of a batch by path. None is skipped: the Loader leaves it to the script."""
    below = f"{path}." if path else ""
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from leaves(value, f"{below}{key}")
    elif isinstance(batch, list | tuple):
        for number, value in enumerate(batch):
            yield from leaves(value, f"{below}{number}")
    elif isinstance(batch, str | bytes):
        yield path, batch
    elif batch is not None:
        yield path, as_array(batch)


def kind_of(leaf: Leaf) -> str:
    """Return the dtype and shape of an array, or the type of a text."""
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, np.ndarray) else type(leaf).__name__


# Start of a script up to its first training pass over a DataLoader.


class _LoaderFoundError(BaseException):
    """Signal that the script has begun to iterate the wanted loader. No handler of the script catches it."""


def script_loader(script: Sequence[str], kinds: Sequence[type]) -> Any:
    """Run a script up to its first training pass over a DataLoader or a loader of `kinds`, and return that loader.

    A pass that begins with autograd off is an evaluation. `script` is the command line after `python`. Raises
    UsageError if the script ends first.
    """
    import torch
    from torch.utils.data import DataLoader

    found: list[Any] = []

    def begin_of(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def begin(loader: Any) -> Any:
            if not torch.is_grad_enabled():
                return original(loader)
            found.append(loader)
            raise _LoaderFoundError

        return begin

    try:
        with ExitStack() as patches:
            for kind in (DataLoader, *kinds):
                patches.enter_context(patch.object(kind, "__iter__", begin_of(kind.__iter__)))  # type: ignore[attr-defined]
            _run(list(script))
    except SystemExit as error:
        if found:
            return found[0]
        raise UsageError(f"expected {script[0]} to iterate a DataLoader, got its end (exit {error.code})") from error
    except BaseException:  # exceptions of a framework's own clean-up would hide the loader
        if not found:
            raise
    if found:
        return found[0]
    raise UsageError(f"expected {script[0]} to iterate a DataLoader, got its end")


def _run(script: list[str]) -> None:
    is_module = script[0] == "-m"
    argv = script[1:] if is_module else script
    folder = os.getcwd() if is_module else os.path.dirname(os.path.abspath(argv[0]))
    with patch.object(sys, "argv", argv), patch.object(sys, "path", [folder, *sys.path]):
        if is_module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(argv[0], run_name="__main__")
