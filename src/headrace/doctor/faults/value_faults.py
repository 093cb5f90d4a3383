"""Faults of values: channels in another order than their means, wrong scales, and numbers that are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from headrace.doctor.explain import PictureExplanation
from headrace.doctor.explain.look import LeafPath, LeafValue, Look
from headrace.doctor.explain.pictures import Array
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.faults.fault_kinds import KINDS
from headrace.doctor.session.after_run import DataFault

_KNOWN = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "0.5 and 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Means and standard deviations of fractions, red first, that people normalise with."""
_CLOSE = 2e-3
RGB, BGR = (0, 1, 2), (2, 1, 0)


def channel_order(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield images whose channels are in the reverse order of the means that normalise them."""
    for path, by in _pictures(explained):
        for name, (mean, std) in list(_KNOWN.items())[:2]:
            means = mean if by.channels == BGR else mean[::-1]
            stds = std if by.channels == BGR else std[::-1]
            if by.channels in (RGB, BGR) and _is_affine(by, [1 / (255 * each) for each in stds], _shifts(means, stds)):
                order = "blue first" if by.channels == BGR else "red first"
                yield KINDS["channel-order"].found(path, order=order, name=name)


def wrong_scale(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield images that are normalised twice, divided by 255 twice, or normalised without the division."""
    for path, by in _pictures(explained):
        for name, (mean, std) in _KNOWN.items():
            # means in either order, since channels may also be reversed
            for what in {**_wrong_ways(by, name, mean, std), **_wrong_ways(by, name, mean[::-1], std[::-1])}:
                yield KINDS["normalized-twice"].found(path, what=what)
        if _is_affine(by, [1 / 255**2] * len(by.scale), [0.0] * len(by.scale)):
            yield KINDS["normalized-twice"].found(path, what="divided by 255 twice")


def _wrong_ways(by: PictureExplanation, name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> dict[str, None]:
    """Return the wrong normalisations, by these means and deviations, that explain an image."""
    ways = {
        f"normalised twice by {name} means": (
            [1 / (255 * each * each) for each in std],
            [-(m / s + m) / s for m, s in zip(mean, std, strict=True)],
        ),
        f"normalised by {name} means of fractions, while its values are 0 to 255": (
            [1 / each for each in std],
            _shifts(mean, std),
        ),
        f"normalised by {name} means, and then divided by 255": (
            [1 / (255**2 * each) for each in std],
            [each / 255 for each in _shifts(mean, std)],
        ),
    }
    return {what: None for what, (scale, shift) in ways.items() if _is_affine(by, scale, shift)}


def non_finite(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield leaves with NaN or infinite values that no leaf of the sample marks as invalid."""
    for path in explained:
        bad, looked = set[int](), {each.index for each in look.samples}
        for each in look.samples:
            value = each.leaves[path].value
            if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
                wrong = ~np.isfinite(value)
                if np.any(wrong) and not _is_marked(each.leaves.values(), np.asarray(wrong)):
                    bad.add(each.index)
        if bad:
            some = ", ".join(map(str, sorted(bad)[:6]))
            yield KINDS["non-finite"].found(path, count=len(bad), looked=len(looked), some=some)


def _is_marked(leaves: Iterable[LeafValue], wrong: Array) -> bool:
    """Return True if a leaf of zeros and ones, or of booleans, marks all values that are not finite."""
    for leaf in leaves:
        mask = leaf.value
        if not isinstance(mask, np.ndarray) or mask.size != wrong.size or not np.isin(mask, (0, 1)).all():
            continue
        marks = {bool(value) for value in mask.reshape(-1)[wrong.reshape(-1)]}
        if marks == {False} or (marks == {True} and not mask.all()):
            return True
    return False


def _pictures(explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[tuple[LeafPath, PictureExplanation]]:
    for path, one in explained.items():
        if isinstance(one.by, PictureExplanation) and len(one.by.channels) == 3 and not one.by.is_scaled_by_sample:
            yield path, one.by


def _shifts(mean: tuple[float, ...], std: tuple[float, ...]) -> list[float]:
    return [-m / s for m, s in zip(mean, std, strict=True)]


def _is_affine(by: PictureExplanation, scale: list[float], shift: list[float]) -> bool:
    """Return True if the leaf is `scale * source + shift`, by channel."""
    if len(by.scale) != len(scale):
        return False
    near_scale = np.allclose(by.scale, scale, rtol=_CLOSE, atol=0)
    return near_scale and np.allclose(by.shift, shift, rtol=_CLOSE, atol=_CLOSE * 255 * min(scale))
