"""Faults of values: wrong channels, scales and ranges, and numbers that are none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headrace.doctor.explain import MaskExplanation, PictureExplanation, PlaneExplanation, Sighting, explain_picture
from headrace.doctor.explain.look import LeafPath, LeafValue, Look, path_text
from headrace.doctor.explain.masks import NEAREST, shown_values
from headrace.doctor.explain.pictures import MOST_LEVELS, Array, sided
from headrace.doctor.explain.samples import sightings, spread
from headrace.doctor.faults.fault_kinds import INTENDED, MOST_SHOWN, Explained, FaultKind
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import Trainer

_KNOWN = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "0.5 and 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Means and standard deviations of fractions, red first, that people normalise with."""
_CLOSE = 2e-3
RGB, BGR = (0, 1, 2), (2, 1, 0)
_TOP = 255
"""Largest 8-bit value."""
_FULL = 1 << 15
"""File value from which on its 16 bits are in use, as in photographs: then high bytes may be enough."""
_LOSSES: dict[str, Callable[[Array], Array]] = {
    "the high bytes of the file's 16-bit values": lambda source: source.astype(np.int64) >> 8,
    "the file's values modulo 256": lambda source: source.astype(np.int64) & _TOP,
    "the file's values up to 255": lambda source: source.clip(0, _TOP),
}
"""Conversions to 8 bits, by what a leaf then holds."""
_HIGH = next(iter(_LOSSES))
_EXACT = 0.05
"""Maximum difference in levels of a leaf that was resampled after the loss, in floating point."""
_MOST_SAMPLES = 4
"""Number of samples that prove a loss."""
_SATURATED = 0.002
"""Minimum share of pixels that exceed a bound."""
_NEAR = 1e-3
_RATIOS = (255, 256, 257, 65535)
"""Ratios of the scales of samples, of which some were divided by the maximum of 8 or 16 bits."""


CHANNEL_ORDER = FaultKind(
    "channel-order",
    "{0} has its channels {order}, and is normalised by {name} means in the other order.",
    "Convert with cv2.cvtColor(image, cv2.COLOR_BGR2RGB) before the normalisation, or reverse the means.",
    "the channels of the file and the fitted means are in opposite orders",
)


def channel_order(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield images whose channels are in the reverse order of the means that normalise them."""
    for path, by in _pictures(explained):
        for name, (mean, std) in list(_KNOWN.items())[:2]:
            means = mean if by.channels == BGR else mean[::-1]
            stds = std if by.channels == BGR else std[::-1]
            if by.channels in (RGB, BGR) and _is_affine(by, [1 / (255 * each) for each in stds], _shifts(means, stds)):
                order = "blue first" if by.channels == BGR else "red first"
                yield CHANNEL_ORDER.found(path, order=order, name=name)


NORMALIZED_TWICE = FaultKind(
    "normalized-twice",
    "{0} is {what}.",
    "Scale to fractions once, and normalise once; look for a second Normalize or ToTensor, also in collate_fn.",
    "the fitted scale and shift are those of two normalisations, of two divisions by 255, before or after a "
    "normalisation, or of one normalisation without the division",
)


def wrong_scale(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield images that are normalised twice, divided by 255 twice, or normalised without the division."""
    for path, by in _pictures(explained):
        for name, (mean, std) in _KNOWN.items():
            # means in either order, since channels may also be reversed
            for what in {**_wrong_ways(by, name, mean, std), **_wrong_ways(by, name, mean[::-1], std[::-1])}:
                yield NORMALIZED_TWICE.found(path, what=what)
        if _is_affine(by, [1 / 255**2] * len(by.scale), [0.0] * len(by.scale)):
            yield NORMALIZED_TWICE.found(path, what="divided by 255 twice")


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


def normalized_by_loop(session: Session, explained: Explained, trainer: Trainer) -> Iterator[DataFault]:
    """Yield images that are normalised once more between the batch and the model."""
    facts = session.process_facts(trainer).get("facts", {})
    entered = dict(facts.get("entered", []))
    for path, by in _pictures(explained):
        fits = entered.get(path_text(path), [])
        if len(fits) != len(by.scale) or all(np.allclose(fit, (1.0, 0.0), atol=_CLOSE) for fit in fits):
            continue
        scale = [own * again for own, (again, _) in zip(by.scale, fits, strict=True)]
        shift = [own * again + more for own, (again, more) in zip(by.shift, fits, strict=True)]
        as_given = replace(by, scale=tuple(scale), shift=tuple(shift))
        for name, (mean, std) in _KNOWN.items():
            for what in _wrong_ways(as_given, name, mean, std):
                yield NORMALIZED_TWICE.found(path, what=f"{what}, the second time between the batch and the model")


NON_FINITE = FaultKind(
    "non-finite",
    "{0} holds NaN or infinite values in {count} of {looked} samples that were looked at: {some}.",
    "Leave such samples out, or mask the values before the loss.",
    "values that are not finite, unless a leaf of zeros and ones marks them as invalid",
)


def non_finite(look: Look, explained: Explained) -> Iterator[DataFault]:
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
            yield NON_FINITE.found(path, count=len(bad), looked=len(looked), some=sorted(bad))


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


def _pictures(explained: Explained) -> Iterator[tuple[LeafPath, PictureExplanation]]:
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


CLIPPED = FaultKind(
    "clipped",
    "{0} {what}.",
    "Read the file's own type (cv2.IMREAD_UNCHANGED, numpy.asarray of Pillow's image), convert to float before "
    "any arithmetic, and divide all samples by the same number.",
    "the leaf is explained by the files' high bytes, by their values modulo 256 or up to 255, or by two scales "
    "255 times apart. `unless intended` if 16 bits are full, and at any other bound that no mask of valid "
    "pixels shares",
)


def clipped(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield leaves that lose the range of their files: by 8 bits, by a bound, or by another scale in some samples."""
    bounds = [one.by.far for one in explained.values() if isinstance(one.by, PlaneExplanation) and one.by.is_validity]
    for path, one in explained.items():
        found = None
        if one.by is None or isinstance(one.by, MaskExplanation):
            used = {other.input for other in explained.values() if other.by is not None}
            found = _lost(look, path, used)
        elif isinstance(one.by, PictureExplanation):
            found = _scaled_apart(look, one.by)
        elif isinstance(one.by, PlaneExplanation):
            found = _saturated(one.by, one.seen)
            if found is not None and any(far is not None and far.least <= found.bound * (1 + _NEAR) for far in bounds):
                continue
        if found is not None:
            yield CLIPPED.found(path, what=found.what, certainty=found.certainty)


class _Found(NamedTuple):
    what: str
    certainty: str = "certain"
    bound: float = np.inf
    """File value at which a leaf saturates."""


def _lost(look: Look, path: LeafPath, used: set[int | None]) -> _Found | None:
    """Return the conversion to 8 bits that explains a leaf which the values of the file do not explain.

    `used`: inputs that explain other leaves, beside which a constant leaf may be a mask.
    """
    chosen = spread(look.samples)
    if any(not isinstance(each.leaves[path].value, np.ndarray) for each in chosen):
        return None
    for number in range(min(len(each.inputs) for each in chosen)):
        for _, seen in sightings(path, number, chosen):
            # files of small values lose nothing
            wide = [each for each in seen if each.source.dtype != np.uint8 and each.source.max(initial=0) > _TOP]
            most = max((float(each.source.max()) for each in wide), default=0.0)
            if number not in used and len(wide) > 1 and _are_full(wide):
                return _Found(f"is the same everywhere, while its files hold {_TOP} to {most:g}: bounded by 8 bits")
            for what, lose in _LOSSES.items() if len(wide) > 1 else ():
                if _is_explained([_as_lost(each, lose) for each in wide[:_MOST_SAMPLES]]):
                    certainty = INTENDED if what == _HIGH and most >= _FULL else "certain"
                    return _Found(f"holds {what}, which reach {most:g}", certainty)
    return None


def _are_full(wide: Sequence[Sighting]) -> bool:
    """Return True if leaves hold one positive value, and their sources only values that 8 bits bound."""
    values = np.unique(np.concatenate([np.unique(each.leaf) for each in wide]))
    return values.size == 1 and values[0] > 0 and all(each.source.min() >= _TOP for each in wide)


def _as_lost(each: Sighting, lose: Callable[[Array], Array]) -> Sighting:
    return replace(each, source=lose(np.nan_to_num(each.source)).astype(np.uint8))


def _is_explained(seen: Sequence[Sighting]) -> bool:
    """Return True if 8-bit sources explain leaves that hold no more values than 8 bits do, or explain them exactly."""
    is_shown = all(each.leaf.ndim in (2, 3) and np.ptp(each.source) > 0 for each in seen)  # a flat one fits anything
    by = explain_picture(seen) if is_shown else None
    if by is None or by.is_scaled_by_sample:
        return False
    is_coarse = all(len(np.unique(each.leaf)) <= _TOP + 1 for each in seen)
    return by.levels <= (MOST_LEVELS if is_coarse else _EXACT)


def _saturated(by: PlaneExplanation, seen: Sequence[Sighting]) -> _Found | None:
    """Return the bound at which a leaf saturates. A window with two bounds is chosen on purpose."""
    if by.is_validity or by.normalisation is not None or by.scale <= 0 or not seen:
        return None
    leaves = [sided(each.leaf, by.layout)[..., 0].astype(np.float64) for each in seen]
    finite = [leaf[np.isfinite(leaf)] for leaf in leaves]
    low, high = min(float(leaf.min()) for leaf in finite), max(float(leaf.max()) for leaf in finite)
    near, above, below, most = _NEAR * (high - low), 0.0, 0.0, 0.0
    for leaf, each, placement in zip(leaves, seen, by.placements, strict=True):
        shown = shown_values(each.source, placement, by.filter or NEAREST[0], leaf.shape)
        if shown is None:
            return None
        made = by.scale * shown.astype(np.float64) + by.shift
        above = max(above, float(np.mean((made > high + near) & (leaf >= high - near))))
        below = max(below, float(np.mean((made < low - near) & (leaf <= low + near))))
        most = max(most, float(shown.max()))
    if above < _SATURATED or below >= _SATURATED:
        return None
    bound = (high - by.shift) / by.scale
    is_byte = abs(bound - _TOP) <= _NEAR * _TOP
    what = (
        f"saturates at the file's value {bound:g}, in up to {above:.0%} of a sample's pixels; the file reaches {most:g}"
    )
    return _Found(what, "certain" if is_byte else INTENDED, bound)


def _scaled_apart(look: Look, by: PictureExplanation) -> _Found | None:
    """Return the samples that lack the division by 255 which others have."""
    if not by.is_scaled_by_sample:
        return None
    least = min(by.by_sample)
    ratios = [
        next((ratio for ratio in (1, *_RATIOS) if np.isclose(scale, ratio * least[0], rtol=_NEAR)), None)
        if scale > 0 and abs(shift - least[1]) <= scale
        else None
        for scale, shift in by.by_sample
    ]
    if None in ratios or len(set(ratios)) != 2:
        return None
    indices = [each.index for each in spread(look.samples)]
    apart = [index for index, ratio in zip(indices, ratios, strict=True) if ratio != 1]
    some = ", ".join(map(str, apart[:MOST_SHOWN]))
    return _Found(
        f"has {max(filter(None, ratios))} times the scale of the others in {len(apart)} of {len(indices)} samples: "
        f"{some}"
    )
