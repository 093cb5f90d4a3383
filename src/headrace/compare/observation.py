"""Observation of a loader's epochs, sample by sample: digests, shapes, dtypes, values and statistics of each leaf.

A leaf is an array or a text of a batch, named by its place: `image`, `0`, `meta.id`. Of each sample an observation has
digests, a few statistics, up to `SKETCH` of the values, and a thumbnail by which two makings of an image are matched.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import blake2b
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import UsageError

Floats = npt.NDArray[np.float64]
_LEAST_SIDE = 8
"""Height and width from which an array counts as an image."""
_MOST_CHANNELS = 4
SKETCH = 4096
"""Values of a sample that are compared one by one, at most; where an array has more, at places drawn once by shape."""
THUMBNAIL = 48
"""Height and width of a thumbnail."""
SMALLER = -math.log(0.9) / 2
"""Logarithm of the sides of windows by those of 10 % less area."""
_NUMBERS = "biuf"
"""Kinds of dtypes whose values are numbers."""
_COUNTS = "_counts"
"""End of the name of the counts beside a leaf with several values a sample, as `hr.Images` has."""


@dataclass
class LeafObservation:
    """One leaf of all samples of an epoch, in order."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Samples by dtype and number of dimensions, such as `float32, 3 dimensions`, or `str`."""
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    """Samples by shape, without the batch's dimension."""
    digests: list[bytes] = field(default_factory=list)
    """Digest of the values in each sample."""
    rows: list[dict[str, float]] = field(default_factory=list)
    """Statistics of each sample by name; empty for texts."""
    sketches: list[npt.NDArray[Any]] = field(default_factory=list)
    """Values of each sample at fixed places, [channels, places]; without places for texts."""
    thumbnails: list[npt.NDArray[np.float32]] = field(default_factory=list)
    """Luminance of each sample of an image leaf, [48, 48]."""

    @cached_property
    def statistics(self) -> dict[str, Floats]:
        """Statistics of all samples, for the names that every sample has. Read once the epoch is complete."""
        names = set[str]().union(*self.rows[:1]).intersection(*self.rows)
        return {name: np.array([row[name] for row in self.rows]) for name in sorted(names)}


@dataclass
class EpochObservation:
    """One pass over a loader."""

    leaves: dict[str, LeafObservation] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    """Time in the loader's `next()`. Low: a faster loader."""

    @property
    def samples(self) -> int:
        return sum(self.batch_sizes)

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    def add(self, size: int, leaves: Iterable[tuple[str, Any]]) -> None:
        """Add a batch of `size`. A leaf that other batches have is None in its samples."""
        found = dict(leaves)
        for path in dict.fromkeys([*self.leaves, *found]):
            leaf = self.leaves.setdefault(path, LeafObservation())
            missing = [None] * (self.samples - len(leaf.digests))
            for sample in [*missing, *(_samples(found[path], size) if path in found else [None] * size)]:
                _add(leaf, sample)
        self.batch_sizes.append(size)


@dataclass(frozen=True)
class LoaderObservation:
    """Two or more passes over a loader."""

    name: str
    epochs: tuple[EpochObservation, ...]

    def changed(self, leaf: str) -> int:
        """Return how many samples of the second epoch have values of the leaf that the first has not."""
        one, other = (Counter(epoch.leaves[leaf].digests) for epoch in self.epochs[:2])
        return (other - one).total()


def observe(name: str, loader: Any, *, most_samples: int | None = None, epochs: int = 2) -> LoaderObservation:
    """Iterate over a loader, `epochs` times, and set the epoch by `set_epoch` where it exists.

    `most_samples`: samples of each epoch after which to stop. Raises UsageError if it gives no batches, or batches
    of unknown size.
    """
    observed = tuple(_epoch(name, loader, number, most_samples) for number in range(epochs))
    if not observed[-1].batch_sizes:
        raise UsageError(
            f"{name}: expected a second epoch, got no batch. A generator can be iterated once only: return what begins "
            "anew each time, as a DataLoader does"
        )
    return LoaderObservation(name, observed)


def _epoch(name: str, loader: Any, number: int, most_samples: int | None) -> EpochObservation:
    holders: tuple[Any, ...] = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    for holder in holders:
        if hasattr(holder, "set_epoch"):
            holder.set_epoch(number)
    epoch = EpochObservation()
    for batch in _timed(loader, epoch):
        size = batch_size_of(batch)
        if not size:
            raise UsageError(f"{name}: expected batches of samples, got a {type(batch).__name__} without a length")
        epoch.add(size, leaves_of(batch, size))
        if most_samples is not None and epoch.samples >= most_samples:
            break
    if not epoch.batch_sizes and number == 0:
        raise UsageError(f"{name}: expected batches, and its loader gave none")
    return epoch


def _timed(loader: Iterable[Any], epoch: EpochObservation) -> Iterator[Any]:
    began_s = time.perf_counter()
    for batch in loader:
        epoch.seconds += time.perf_counter() - began_s
        yield batch
        began_s = time.perf_counter()


def batch_size_of(batch: Any) -> int | None:
    """Return the number of samples in a batch; None if it cannot be determined.

    For a dict, tuple or list, it is the length of the first tensor, array or list inside, other than one with counts
    beside it (`hr.Images`); otherwise, and for a list of dicts with numbers or texts, the batch's own length.
    """
    if isinstance(batch, Mapping):
        batch = {name: value for name, value in batch.items() if f"{name}{_COUNTS}" not in batch}
    if isinstance(batch, list | tuple) and any(
        isinstance(value, int | float | str) for one in batch if isinstance(one, Mapping) for value in one.values()
    ):
        return len(batch)  # a dict per sample
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    inner = next((length for part in parts if (length := _length(part)) is not None), None)
    return inner if inner is not None or isinstance(batch, Mapping) else _length(batch)


def _length(value: Any) -> int | None:
    """Return the number of samples in a part of a batch; a text is one sample, not a batch of letters."""
    if isinstance(value, Mapping):
        return batch_size_of(value)
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(value) if hasattr(value, "__len__") and not isinstance(value, str | bytes) else None


def leaves_of(batch: Any, size: int, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays, and the lists of one value per sample, of a batch of `size`, with their places in it.

    A list of one dict per sample, as detectors take, is a dict of lists.
    """
    if _is_of_dicts(batch, size):
        parts = [(str(key), _PerSample(one.get(key) for one in batch)) for key in dict.fromkeys(chain(*batch))]
    elif isinstance(batch, Mapping):
        parts = [(str(key), _by_sample(value, batch.get(f"{key}{_COUNTS}"))) for key, value in batch.items()]
    elif hasattr(batch, "_fields"):
        parts = list(zip(batch._fields, batch, strict=True))
    elif isinstance(batch, tuple | list) and not _is_leaf(batch, size):
        parts = [(str(place), value) for place, value in enumerate(batch)]
    else:
        yield path, batch
        return
    for name, value in parts:
        yield from leaves_of(value, size, f"{path}.{name}" if path else name)


def _by_sample(values: Any, counts: Any) -> Any:
    """Return a list with the part of each sample, if `counts` has the length of each in `values`."""
    if counts is None:
        return values
    ends = list(accumulate(map(int, counts)))
    return _PerSample(values[end - int(count) : end] for count, end in zip(counts, ends, strict=True))


class _PerSample(list[Any]):
    """One value per sample, whatever its length."""


def _is_of_dicts(batch: Any, size: int) -> bool:
    """Return True for a dict per sample; not for parts of a batch, which have other keys, or its length."""
    if not isinstance(batch, tuple | list) or len(batch) != size or not all(isinstance(one, Mapping) for one in batch):
        return False
    lengths = [_length(value) for one in batch for value in one.values()]
    return all(one.keys() == batch[0].keys() for one in batch) and any(length != size for length in lengths)


def _is_leaf(values: tuple[Any, ...] | list[Any], size: int) -> bool:
    """Return True for one value per sample: texts, numbers, or arrays that do not themselves hold a batch."""
    if isinstance(values, _PerSample):
        return not _is_of_dicts(values, size)
    if len(values) != size:
        return False
    if all(isinstance(one, str | bytes | int | float | None) for one in values):
        return True
    shapes = [getattr(one, "shape", None) for one in values]
    return None not in shapes and not all(shape and shape[0] == size for shape in shapes)


def _samples(value: Any, size: int) -> list[Any]:
    """Return the part of each sample; a value without the batch's dimension belongs to every sample."""
    array = value if isinstance(value, tuple | list) else as_array(value)
    has_samples = (len(array) if isinstance(array, tuple | list) or array.ndim else 0) == size
    return [array[row] for row in range(size)] if has_samples else [array] * size


def as_array(value: Any) -> npt.NDArray[Any]:
    """Return a tensor of torch or an array of another library as a numpy array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
        return np.asarray(value.numpy())
    return np.asarray(value)


def _add(leaf: LeafObservation, sample: Any) -> None:
    if isinstance(sample, str | bytes) or sample is None:
        kind, data = type(sample).__name__, sample.encode() if isinstance(sample, str) else sample or b""
        digest = blake2b(kind.encode() + data, digest_size=16).digest()
        rows = {"size": float(len(data)), "choice": int.from_bytes(digest[:6], "big") / 2**48}
        array = np.empty(0)
    else:
        array = as_array(sample)
        kind = f"{array.dtype}, {array.ndim} dimensions"
        leaf.shapes[array.shape] += 1
        digest = blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        rows = {"size": float(array.size)}
    leaf.kinds[kind] += 1
    leaf.digests.append(digest)
    leaf.rows.append(rows)
    if array.dtype.kind not in _NUMBERS or not array.size:
        leaf.sketches.append(np.empty((0, 0)))
        return
    image = channels_first(array)
    planes = array.reshape(1, -1) if image is None else image.reshape(len(image), -1)
    leaf.sketches.append(planes[:, _places(planes.shape[1], SKETCH // len(planes))])
    values = planes.astype(np.float64)
    is_finite = np.isfinite(values)
    values = np.where(is_finite, values, 0.0)
    rows.update(_statistics(values), infinite=float((~is_finite).sum()))
    if image is not None:
        luminance = values.mean(axis=0).reshape(image.shape[1:])
        down, across = (overlaps(side, THUMBNAIL) for side in luminance.shape)
        thumbnail = down @ luminance @ across.T
        leaf.thumbnails.append(thumbnail.astype(np.float32))
        rows.update(_image_statistics(values, luminance, thumbnail))


@cache
def _places(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return places of an array with `count` values per channel: all, or `most` of them drawn by a fixed seed."""
    return np.arange(count) if count <= most else np.sort(np.random.default_rng(0).choice(count, most, replace=False))


@cache
def overlaps(side: int, parts: int, margin: float = 0.0) -> Floats:
    """Return weights, float64[parts, side], that average a row over equal parts of it, less a margin at both ends."""
    edges = np.linspace(side * margin, side * (1 - margin), parts + 1)
    upper, lower = np.minimum(edges[1:, None], np.arange(1, side + 1)), np.maximum(edges[:-1, None], np.arange(side))
    return np.asarray(np.clip(upper - lower, 0, None) / (edges[1] - edges[0]))


def channels_first(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return an image as [channels, height, width], a stack of images as one above the other; None for other arrays."""
    if array.ndim == 4 and array.shape[1] <= _MOST_CHANNELS and min(array.shape[2:]) >= _LEAST_SIDE:
        return array.transpose(1, 0, 2, 3).reshape(array.shape[1], -1, array.shape[3])
    if array.ndim == 2 and min(array.shape) >= _LEAST_SIDE:
        return array[None]
    if array.ndim != 3:
        return None
    channels_last = array.shape[2] <= _MOST_CHANNELS < array.shape[0]
    image = array.transpose(2, 0, 1) if channels_last else array
    is_image = image.shape[0] <= _MOST_CHANNELS and min(image.shape[1:]) >= _LEAST_SIDE
    return image if is_image else None


def _statistics(planes: Floats) -> dict[str, float]:
    """Return statistics that react to offset, contrast, colour and order."""
    means, ramp = planes.mean(axis=1), np.linspace(-1, 1, planes.shape[1])
    table = {
        "mean": means, "deviation": planes.std(axis=1), "lowest": planes.min(axis=1), "highest": planes.max(axis=1),
        "colour": means - means.mean(), "first against last": planes @ ramp / len(ramp),
    }  # fmt: skip
    return {f"{name} of channel {n}": float(v) for name, each in table.items() for n, v in enumerate(each)}


def _image_statistics(planes: Floats, luminance: Floats, thumbnail: Floats) -> dict[str, float]:
    """Return statistics that react to blur, saturation and shape, and to the size and the aspect of a window.

    A smaller window shows coarser details: the middle of a thumbnail shows how much. Edges are off the thumbnail's
    grid, as those on it blur less.
    """
    height, width = luminance.shape
    least = 1e-6 * float(np.square(luminance).mean()) + 1e-30
    views = [overlaps(THUMBNAIL, THUMBNAIL // 4, margin) for margin in (0.01, 0.01 + 0.49 * (1 - math.exp(-SMALLER)))]
    sharp, whole, middle = (
        [float(np.square(np.diff(picture, axis=axis)).mean()) + least for axis in (1, 0)]
        for picture in (luminance, *(view @ thumbnail @ view.T for view in views))
    )
    colour = float((planes**2).mean() - (luminance**2).mean())  # of channels about grey
    return {
        "height": float(height), "width": float(width), "saturation": max(0.0, colour) ** 0.5,
        "sharpness": sum(sharp) ** 0.5, "detail": math.log(sum(whole)) / 2, "middle": math.log(sum(middle)) / 2,
        "aspect": math.log(whole[0] / whole[1]) / 2,
    }  # fmt: skip
