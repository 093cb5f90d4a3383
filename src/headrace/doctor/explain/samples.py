"""Explanation of inspected samples, leaf by leaf."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.doctor.explain.derived_pictures import explain_crops, near_picture
from headrace.doctor.explain.look import TURNED, LeafPath, LeafValue, Look, LookedSample
from headrace.doctor.explain.masks import MaskExplanation, explain_mask
from headrace.doctor.explain.pictures import Array, LeafPlacement, PictureExplanation, Sighting, explain_picture
from headrace.doctor.explain.placements import SEARCHES, UNTRANSPOSED, Box, is_scaled, known_placements
from headrace.doctor.explain.planes import PlaneExplanation, explain_plane
from headrace.doctor.explain.values import (
    CallExplanation,
    TokensExplanation,
    ValueExplanation,
    explain_call,
    explain_tokens,
    explain_value,
    tokenizers_of,
)

ArrayExplanation = PictureExplanation | MaskExplanation | PlaneExplanation
View = tuple[LeafPlacement, ...]
"""Placements of a leaf in the samples that explain it."""
MOST_S = 8.0
"""CPU time limit of coloured pictures, and another of all other leaves, since other programs may use the machine."""
_LEAST_PLAIN = 4
"""Minimum number of samples that show a window as it is, where repetitions of others do not."""
_MOST_VAIN = 12
"""Number of repetitions without a window as it is, after which no further ones are searched."""
_MOST_CLASSES, _MOST_FLOATS = 300, 64
"""Maximum number of distinct values of an array of integers, or of whole floats, that is first tried as a mask."""
_MOST_NARROW = 4


@dataclass(frozen=True)
class LeafExplanation:
    path: LeafPath
    by: ArrayExplanation | ValueExplanation | TokensExplanation | CallExplanation | None
    input: int | None = None
    """Number of the sample's input, in read order."""
    decoding: str = ""
    """Decoding of the input: a key of `decoded`."""
    is_random: bool = False
    """True if repetitions of a sample differ in this leaf."""
    seen: Sequence[Sighting] = ()
    """Sightings that explain an array."""
    is_array: bool = False
    """True for an array of two or more dimensions, which may show an image."""
    is_cut: bool = False
    """True if the time limit ended the search for its window."""
    near: LeafExplanation | None = None
    """Explanation of a random picture that is only near the window that it shows; None if `by` explains it."""
    plain: float = 1.0
    """Share of a random picture's repetitions that show the explained window."""


@np.errstate(invalid="ignore", over="ignore")  # samples may hold NaN and infinite values, which fit nothing
def explain_look(look: Look, most_s: float = MOST_S) -> dict[LeafPath, LeafExplanation]:
    """Return the explanation of each leaf that all samples have.

    After `most_s`, remaining arrays are only compared with the views of others, not searched; the clock starts again
    after the coloured ones. Images whose colours a known library's transform randomises are not searched: no window can
    be recognised in them.
    """
    samples, began = look.samples, dict[bool, float]()
    is_drawn = bool(look.transforms) and all(one.augment for one in look.transforms)
    paths = [path for path in samples[0].leaves if all(path in each.leaves for each in samples)]
    found: dict[LeafPath, LeafExplanation] = {}
    views: list[View] = []
    tokenizers = tokenizers_of(look.tokenizers)
    for path in sorted(paths, key=lambda path: not is_coloured(samples[0].leaves[path])):
        leaf = samples[0].leaves[path]
        if leaf.kind == "array" and leaf.value.ndim >= 2:
            until = most_s + began.setdefault(is_coloured(leaf), time.thread_time())
            found[path] = _explained_array(path, samples, views, 0.0 if is_drawn and is_coloured(leaf) else until)
        else:
            found[path] = _explained_value(path, look, tokenizers)
        placed = getattr(found[path].by, "placements", ())
        views += [placed] if placed and placed not in views else []
    for path in (path for path, leaf in found.items() if leaf.is_array and leaf.by is None):
        again = _explained_array(path, samples, views, 0.0)
        if again.by is not None:
            found[path] = again
        elif again.is_random and is_coloured(samples[0].leaves[path]):
            near = _near(path, samples, views) or _mostly(path, samples, time.thread_time() + most_s)
            found[path] = replace(found[path], near=near)
    return {path: _before_turn(found[path], samples) for path in paths}


def _before_turn(leaf: LeafExplanation, samples: Sequence[LookedSample]) -> LeafExplanation:
    """Return the explanation by windows of turned pictures as windows of the files, if these were turned whole."""
    by, number = leaf.by, leaf.input
    if leaf.near is not None:
        leaf = replace(leaf, near=_before_turn(leaf.near, samples))
    if leaf.decoding != TURNED or number is None or not isinstance(by, ArrayExplanation):
        return leaf
    files = files_of(number, samples)
    pairs = list(zip((each.source.shape for each in leaf.seen), (file.shape for file in files), strict=True))
    if not all(is_scaled(*pair) for pair in pairs):
        return leaf
    placements = tuple(
        one if turned[:2] == file[:2] else replace(one, window=Box(0, 0, *file[:2]), size=turned[:2], at=one.window[:2])
        for one, (turned, file) in zip(by.placements, pairs, strict=True)
    )
    seen = [replace(each, source=file) for each, file in zip(leaf.seen, files, strict=True)]
    return replace(leaf, by=replace(by, placements=placements), seen=seen)


def is_coloured(leaf: LeafValue) -> bool:
    """Return True for an image of several channels, which shows its window best."""
    return leaf.kind == "array" and leaf.value.ndim == 3 and 3 in (leaf.value.shape[0], leaf.value.shape[2])


def _explained_array(
    path: LeafPath, samples: Sequence[LookedSample], views: Sequence[View], until: float
) -> LeafExplanation:
    """Explain pixels. `views`: placements of other leaves, tried first; others are searched until a time."""
    leaves = [each.leaves[path] for each in samples]
    is_random = _differs_by_making(samples, leaves)
    if any(leaf.kind != "array" or leaf.value.ndim < 2 or _is_narrow(leaf.value) for leaf in leaves):
        return LeafExplanation(path, None, is_random=is_random)
    chosen, is_cut = spread(samples), False
    for number in _likely_inputs(leaves[0], chosen):
        for decoding, seen in sightings(path, number, chosen):
            by = _by_views(seen, views)
            if by is None and time.thread_time() < until:
                by = _explain_array(seen)
            elif by is None:
                is_cut = until > 0.0
            if by is not None:
                return LeafExplanation(path, by, number, decoding, is_random, seen)
    return LeafExplanation(path, None, is_random=is_random, is_array=True, is_cut=is_cut)


def _is_narrow(value: Array) -> bool:
    """Return True for rows of boxes or points, which any picture would explain."""
    return value.ndim == 2 and min(value.shape) <= _MOST_NARROW


def _likely_inputs(leaf: LeafValue, samples: Sequence[LookedSample]) -> list[int]:
    """Return the numbers of the inputs; those of one channel come first for a leaf that has no colours."""
    numbers = range(min(len(each.inputs) for each in samples))
    if is_coloured(leaf):
        return list(numbers)
    pictures = samples[0].pictures
    return sorted(numbers, key=lambda number: min((one.ndim for one in pictures[number].values()), default=3))


def _near(path: LeafPath, samples: Sequence[LookedSample], views: Sequence[View]) -> LeafExplanation | None:
    """Explain a random picture by the views of other leaves, where its own pixels are only near them."""
    chosen = spread(samples)
    for number in range(min(len(each.inputs) for each in chosen)):
        for decoding, seen in sightings(path, number, chosen):
            by = next((by for view in views if (by := near_picture(seen, view)) is not None), None)
            if by is not None:
                return LeafExplanation(path, by, number, decoding, is_random=True, seen=seen)
    return None


def _mostly(path: LeafPath, samples: Sequence[LookedSample], until: float) -> LeafExplanation | None:
    """Explain a random picture by the repetitions that show a window as it is, if half of the samples have one."""
    least = max(_LEAST_PLAIN, len({each.index for each in samples}) // 2)
    upright = [each for each in samples if not each.turned]
    for number in range(min((len(each.inputs) for each in upright), default=0)):
        for decoding, seen in sightings(path, number, upright):
            plain, tried = list[int](), 0
            while tried < len(seen) and time.thread_time() < until and (plain or tried < _MOST_VAIN):
                plain += [tried] if explain_picture([seen[tried]], SEARCHES[:1]) is not None else []
                tried += 1
            chosen = [seen[place] for place in {upright[place].index: place for place in plain}.values()]
            by = explain_picture(chosen, SEARCHES[:1]) if len(chosen) >= least else None
            if by is not None:
                share = len(plain) / tried * len(upright) / len(samples)
                return LeafExplanation(path, by, number, decoding, is_random=True, seen=chosen, plain=share)
    return None


def _explained_value(path: LeafPath, look: Look, tokenizers: Sequence[Any]) -> LeafExplanation:
    samples, columns = look.samples, look.columns
    leaves = [each.leaves[path] for each in samples]
    is_random = _differs_by_making(samples, leaves)
    if any(leaf.kind == "object" for leaf in leaves):
        return LeafExplanation(path, None, is_random=is_random)
    values, indices = [leaf.value for leaf in leaves], [each.index for each in samples]
    by = explain_value(values, indices, columns)
    if by is None and all(leaf.kind == "array" and leaf.value.shape == (1,) for leaf in leaves):
        by = explain_value([value[0] for value in values], indices, columns)
    if by is None and all(leaf.kind == "array" for leaf in leaves):
        tokens = explain_tokens(values, indices, columns, tokenizers) or explain_call(values, indices, look.calls)
        return LeafExplanation(path, tokens, is_random=is_random)
    return LeafExplanation(path, by, is_random=is_random)


def _by_views(seen: Sequence[Sighting], views: Sequence[View]) -> ArrayExplanation | None:
    is_whole, is_deep = _is_whole(seen), all(each.source.dtype != np.uint8 for each in seen)
    for view in views:
        by: ArrayExplanation | None = explain_mask(seen, view) if is_whole else None
        if by is None and (is_whole or is_deep):
            by = explain_plane(seen, view)
        if by is None and not is_whole:
            by = explain_picture(seen, [(known_placements(seen, view), [UNTRANSPOSED])])
        if by is not None:
            return by
    return None


def _differs_by_making(samples: Sequence[LookedSample], leaves: Sequence[LeafValue]) -> bool:
    first: dict[int, Any] = {}
    for each, leaf in zip(samples, leaves, strict=True):
        is_array = isinstance(leaf.value, np.ndarray)
        value = (leaf.value.shape, leaf.value.tobytes()) if is_array else repr(leaf.value)  # NaN is no other NaN
        if first.setdefault(each.index, value) != value:
            return True
    return False


def spread(samples: Sequence[LookedSample]) -> list[LookedSample]:
    """Return a repetition per index, cycling through those with most inputs: datasets may keep what they read."""
    by_index: dict[int, list[LookedSample]] = {}
    for each in samples:
        by_index.setdefault(each.index, []).append(each)
    whole = []
    for makings in by_index.values():
        most = max(len(each.inputs) for each in makings)
        whole.append([each for each in makings if len(each.inputs) == most])
    return [makings[place % len(makings)] for place, makings in enumerate(whole)]


def files_of(number: int, samples: Sequence[LookedSample]) -> list[Array]:
    """Return one input of each sample of the spread as its file holds it."""
    return [each.pictures[number]["plain"] for each in spread(samples)]


def sightings(path: LeafPath, number: int, samples: Sequence[LookedSample]) -> Iterator[tuple[str, list[Sighting]]]:
    """Yield, by decoding, a leaf of each sample with the image of one input. Orientation may change the pixels."""
    names = dict.fromkeys(name for each in samples for name in each.pictures[number])
    for decoding in (TURNED,) if TURNED in names else names:
        fallback = "plain" if decoding in ("exif", TURNED) else decoding
        found = [each.pictures[number].get(decoding, each.pictures[number].get(fallback)) for each in samples]
        if all(picture is not None for picture in found):
            yield (
                decoding,
                [
                    Sighting(each.leaves[path].value, picture, each.boxes, each.sizes)
                    for each, picture in zip(samples, found, strict=True)
                    if picture is not None
                ],
            )


def _explain_array(seen: Sequence[Sighting]) -> ArrayExplanation | None:
    if seen[0].leaf.ndim == 4:
        return explain_crops(seen)
    if _is_whole(seen):
        return explain_mask(seen) or explain_plane(seen) or explain_picture(seen)
    by = explain_picture(seen)
    if by is not None and not by.is_scaled_by_sample:
        return by
    return explain_plane(seen) or by


def _is_whole(seen: Sequence[Sighting]) -> bool:
    """Return True for leaves of few distinct integers, or of classes as floats."""
    values = [np.unique(each.leaf) for each in seen]
    if all(each.dtype.kind in "iub" for each in values):
        return max(map(len, values)) <= _MOST_CLASSES
    are_whole = all(np.array_equal(each, np.round(each)) for each in values)
    return are_whole and max(map(len, values)) <= _MOST_FLOATS and max(each[-1] for each in values) > 1
