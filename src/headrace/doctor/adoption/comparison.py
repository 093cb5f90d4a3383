"""Comparison of a generated module with the script it was made from: the same samples, loaded both ways."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

import headrace as hr
from headrace.errors import UsageError

from ..attach import trackers_offline
from ..explain.look import Look, LookedSample, path_text, read_look
from ..probe.value_look import LOOK_FILE, look_at_values
from ..session import session_folder
from .script_start import only_rank, script_loader

if TYPE_CHECKING:
    pass

NOTHING = "nothing"
"""Kind of a leaf that a batch does not have."""
ROUNDING, ROUNDED_SHARE = 0.02, 0.95
"""Maximum difference due to rounding and resize filters, as a share of an image's range; minimum share within it."""
FLOAT_ROUNDING = 1e-5
"""The same for other numbers, as a share of the largest."""
ALIKE = 0.25
"""Maximum difference between the ends of two random ranges that count as alike, as a share of the range."""
NUMBERS = "biuf"
"""Kinds of NumPy dtypes that are compared as numbers."""

Leaf = npt.NDArray[Any] | str | bytes
"""Array or text of a batch."""
Verdict = Literal["same", "different", "not comparable"]


@dataclass
class LeafComparison:
    """One array or text of the batches, from the script and from the Loader."""

    path: str
    """`0`, `image`, `meta.id`; empty for a batch that is one array."""
    script: list[str] = field(default_factory=list)
    """Dtype and shape: `float32[1, 3, 224, 224]`, `str`."""
    loader: list[str] = field(default_factory=list)
    script_range: tuple[float, float] | None = None
    loader_range: tuple[float, float] | None = None
    largest: float | None = None
    """Largest difference of two values; None for random or incomparable values."""
    drawn: bool = False
    """True if the script's own values vary between calls."""
    differs: str = ""
    """First difference of two texts, or of values that differ by more than rounding."""

    @property
    def is_same_kind(self) -> bool:
        """True if dtypes and shapes are the same in all samples."""
        return self.script == self.loader

    @property
    def verdict(self) -> Verdict:
        """The same except for rounding; different; or not comparable, if the script draws at random.

        For random values, dtypes and shapes are compared, and the ends of their ranges by `ALIKE`.
        """
        if not self.is_same_kind:
            return "different"
        if not self.drawn:
            return "different" if self.differs else "same"
        one, other = self.script_range, self.loader_range
        if one is None or other is None:
            return "not comparable"
        reach = ALIKE * max(one[1] - one[0], other[1] - other[0])
        is_alike = max(abs(one[0] - other[0]), abs(one[1] - other[1])) <= reach
        return "not comparable" if is_alike else "different"


def compare_with_script(
    make_loader: Callable[..., Any],
    batches: Callable[[Any], Iterable[Any]],
    script: Sequence[str],
    *,
    dataset: str = "",
    launched: bool = False,
) -> list[LeafComparison]:
    """Load the same few samples both ways, print and return the differences, one row per array of the batch.

    The script runs up to its first pass over a DataLoader with a dataset of class `dataset`; with `launched`, as the
    only rank of a launcher. Its trackers are offline. Raises UsageError if the script does not get there, or
    already trains from a Loader.
    """
    with session_folder() as folder, trackers_offline(folder.settings):
        with patch.dict(os.environ, only_rank() if launched else {}):
            theirs = script_loader(script, dataset)
        if isinstance(theirs, hr.Loader):
            raise UsageError(
                f"expected {script[0]} with its DataLoader, got one that trains from headrace.Loader already"
            )
        look = str(folder.path / LOOK_FILE)
        look_at_values(theirs, look)
        rows = list(looked_rows(read_look(Path(look)), make_loader, batches))
    for row in rows:
        print(described(row))
    print(verdict(rows))
    return rows


def looked_rows(
    look: Look, make_loader: Callable[..., Any], batches: Callable[[Any], Iterable[Any]]
) -> Iterator[LeafComparison]:
    """Make the inspected samples again, and yield the comparison of each array and text of a batch of one.

    If the dataset makes batches, its own batches are compared.

    Raises:
        ValueError: The samples are not among the Loader's.
    """
    with (
        patch.object(hr, "RandomScale", partial(_middle_scale, hr.RandomScale)),
        patch.object(hr, "MixUp", partial(hr.MixUp, p=0.0)),
        patch.object(hr, "CutMix", partial(hr.CutMix, p=0.0)),
    ):
        made = make_loader(_batch_size(look), shuffle=False)
    rows: dict[str, LeafComparison] = {}
    by_index: dict[int, list[dict[str, Any]]] = {}
    for each in look.samples:
        by_index.setdefault(each.index, []).append({path_text(path): leaf for path, leaf in each.arrays.items()})
    for first, *again in by_index.values():
        for path, leaf in [each for making in (first, *again) for each in making.items()]:
            row = rows.setdefault(path, LeafComparison(path))
            row.script_range = _wider(row.script_range, leaf)
    for index, place in _places(look, made).items():
        one, *others = by_index[index]
        step, at = divmod(place, 2) if look.mixed else (place, 0)
        made.seek(0, step)
        with _first(batches(made)) as batch:
            mine = dict(leaves(batch))
        if look.mixed:  # one of two
            mine = {path: leaf[at : at + 1] for path, leaf in mine.items()}
        for path in dict.fromkeys([*one, *mine]):
            row = rows.setdefault(path, LeafComparison(path))
            _compare(row, one.get(path), [other.get(path) for other in others], mine.get(path))
    yield from (row for row in rows.values() if row.loader)


def _batch_size(look: Look) -> int:
    """Return the size of the dataset's own batches; otherwise 1, or 2 if samples are mixed."""
    if look.mixed:
        return 2
    arrays = look.samples[0].arrays.values() if look.is_batched and look.opened is None else ()
    return max((len(leaf) for leaf in arrays if isinstance(leaf, np.ndarray) and leaf.ndim), default=1)


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


def verified(look: Look, make_loader: Callable[..., Any], batches: Callable[[Any], Iterable[Any]]) -> dict[str, str]:
    """Make the inspected samples again, and return how each leaf compares: `same`, `drawn` or `different`.

    Random values are compared by dtype and shape.
    """
    rows = looked_rows(look, make_loader, batches)
    return {row.path: _verified(row) for row in rows if {*row.loader} != {NOTHING}}


def _verified(row: LeafComparison) -> str:
    if row.drawn and row.is_same_kind:
        return "drawn"
    return row.verdict if row.verdict == "same" else f"different: {described(row).partition(': different: ')[2]}"


def _middle_scale(view: Callable[..., Any], short_sides: Sequence[int], **given: Any) -> Any:
    """Return a RandomScale of the middle scale only: several would require shuffle=True, and so another order."""
    return view(short_sides[len(short_sides) // 2 :][:1], **given)


@contextmanager
def _first(batches: Iterable[Any]) -> Iterator[Any]:
    iterator: Any = iter(batches)
    with closing(iterator):
        yield next(iterator)


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
        yield path, _array(batch)


def _array(value: Any) -> npt.NDArray[Any]:
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _compare(row: LeafComparison, one: Leaf | None, again: list[Leaf | None], mine: Leaf | None) -> None:
    row.script.append(kind_of(one))
    row.loader.append(kind_of(mine))
    for other in (one, *again):
        row.script_range = _wider(row.script_range, other)
    row.loader_range = _wider(row.loader_range, mine)
    row.drawn |= not all(_is_repeated(one, other) for other in again)
    if row.drawn or not row.is_same_kind:
        row.largest = None
    elif isinstance(one, np.ndarray) and isinstance(mine, np.ndarray) and one.dtype.kind in NUMBERS:
        difference = np.abs(one.astype(np.float64) - mine.astype(np.float64))
        largest = float(difference.max(initial=0.0))
        row.largest = max(row.largest or 0.0, largest)
        if not _is_close(one, mine, difference, row.script_range):
            row.differs = row.differs or f"values differ by {largest:.4g}"
    elif not _is_equal(one, mine):
        row.differs = row.differs or f"the script has {str(one)[:60]!r}, the Loader {str(mine)[:60]!r}"


def _is_repeated(one: Leaf | None, other: Leaf | None) -> bool:
    """Return True if two repetitions are equal, except for rounding when a sample is mixed with itself."""
    if (
        isinstance(one, np.ndarray)
        and isinstance(other, np.ndarray)
        and one.shape == other.shape
        and one.dtype.kind == "f"
    ):
        reach = FLOAT_ROUNDING * float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
        return np.allclose(one, other, rtol=0.0, atol=reach, equal_nan=True)
    return _is_equal(one, other)


def _is_equal(one: Leaf | None, other: Leaf | None) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and one == other


def _is_close(
    one: npt.NDArray[Any],
    mine: npt.NDArray[Any],
    difference: npt.NDArray[Any],
    ends: tuple[float, float] | None,
) -> bool:
    """Compare images by most of their values, since a pixel at an edge may round differently; others by all values.

    `ends` are the range over all samples: one image may be nearly uniform. Integers other than images, such as labels
    and tokens, must be equal.
    """
    is_picture = one.ndim > 2
    if one.dtype.kind in "biu" and not is_picture:
        return not difference.any()
    values = one[np.isfinite(one)].astype(np.float64)
    if not values.size or not np.array_equal(np.isfinite(one), np.isfinite(mine)):
        return _is_equal(one, mine)
    low, high = ends or (0.0, 0.0)
    reach = ROUNDING * (high - low) if is_picture else FLOAT_ROUNDING * float(np.abs(values).max())
    far = int((difference[np.isfinite(one)] > reach).sum())
    return far <= (1 - ROUNDED_SHARE) * values.size if is_picture else far == 0


def _wider(known: tuple[float, float] | None, leaf: Leaf | None) -> tuple[float, float] | None:
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in NUMBERS:
        return known
    values = leaf[np.isfinite(leaf)]
    if not values.size:
        return known
    low, high = float(values.min()), float(values.max())
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def kind_of(leaf: Leaf | None) -> str:
    """Return the dtype and shape of an array, or the type of a text."""
    if leaf is None:
        return NOTHING
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, np.ndarray) else type(leaf).__name__


def described(row: LeafComparison) -> str:
    """Return one line about an array: its verdict and the evidence."""
    name = f"{row.path or 'batch'}: {row.verdict}"
    if not row.is_same_kind:
        script, loader = next(pair for pair in zip(row.script, row.loader, strict=True) if pair[0] != pair[1])
        return f"{name}: the script has {script}, the Loader {loader}"
    ranges = [
        f"{low:.4g} to {high:.4g}"
        for low, high in (each for each in (row.script_range, row.loader_range) if each is not None)
    ]
    if row.drawn:
        values = f": values {' in the script, '.join(ranges)} in the Loader" if ranges else ""
        return f"{name}: {row.script[0]}, drawn at random{values}"
    if row.largest is None:
        return f"{name}: {row.script[0]}" + (f", {row.differs}" if row.differs else "")
    return f"{name}: {row.script[0]}, largest difference {row.largest:.4g}, values {' and '.join(ranges)}"


def verdict(rows: Sequence[LeafComparison]) -> str:
    """Return the last line: which arrays differ, which cannot be compared, or that all are the same."""
    found = {kind: [row.path or "batch" for row in rows if row.verdict == kind] for kind in get_args(Verdict)}
    if not rows:
        return "Not comparable: no sample was loaded."
    drawn = f"not comparable, since the script draws at random: {', '.join(found['not comparable'])}"
    if found["different"]:
        more = f"; {drawn}" if found["not comparable"] else ""
        return f"Different: {', '.join(found['different'])}{more}."
    if found["not comparable"]:
        return f"{drawn[:1].upper()}{drawn[1:]}; {len(found['same'])} of {len(rows)} arrays are the same."
    return f"Same: all {len(rows)} arrays of a batch."
