"""Faults of ranges: 16-bit values read as 8-bit ones, values that saturate, and samples of different scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from headrace.doctor.explain import PictureExplanation, PlaneExplanation, Sighting, explain_picture
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.masks import NEAREST, shown_values
from headrace.doctor.explain.pictures import MOST_LEVELS, Array, sided
from headrace.doctor.explain.samples import LeafExplanation, sightings, spread
from headrace.doctor.faults.fault_kinds import INTENDED, KINDS
from headrace.doctor.session.after_run import DataFault

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
_MOST_SHOWN = 4


def clipped(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield leaves that lose the range of their files: by 8 bits, by a bound, or by another scale in some samples."""
    bounds = [one.by.far for one in explained.values() if isinstance(one.by, PlaneExplanation) and one.by.is_validity]
    for path, one in explained.items():
        found = None
        if one.by is None:
            found = _lost(look, path)
        elif isinstance(one.by, PictureExplanation):
            found = _scaled_apart(look, one.by)
        elif isinstance(one.by, PlaneExplanation):
            found = _saturated(one.by, one.seen)
            if found is not None and any(far is not None and far.least <= found.bound * (1 + _NEAR) for far in bounds):
                continue
        if found is not None:
            yield KINDS["clipped"].found(path, what=found.what, certainty=found.certainty)


class _Found(NamedTuple):
    what: str
    certainty: str = "certain"
    bound: float = np.inf
    """File value at which a leaf saturates."""


def _lost(look: Look, path: LeafPath) -> _Found | None:
    """Return the conversion to 8 bits that explains a leaf which the values of the file do not explain."""
    chosen = spread(look.samples)
    if any(not isinstance(each.leaves[path].value, np.ndarray) for each in chosen):
        return None
    for number in range(min(len(each.inputs) for each in chosen)):
        for _, seen in sightings(path, number, chosen):
            # files of small values lose nothing
            wide = [each for each in seen if each.source.dtype != np.uint8 and each.source.max(initial=0) > _TOP]
            for what, lose in _LOSSES.items() if len(wide) > 1 else ():
                if _is_explained([_as_lost(each, lose) for each in wide[:_MOST_SAMPLES]]):
                    most = max(float(each.source.max()) for each in wide)
                    certainty = INTENDED if what == _HIGH and most >= _FULL else "certain"
                    return _Found(f"holds {what}, which reach {most:g}", certainty)
    return None


def _as_lost(each: Sighting, lose: Callable[[Array], Array]) -> Sighting:
    return replace(each, source=lose(np.nan_to_num(each.source)).astype(np.uint8))


def _is_explained(seen: Sequence[Sighting]) -> bool:
    """Return True if 8-bit sources explain leaves that hold no more values than 8 bits do, or explain them exactly."""
    by = explain_picture(seen) if all(each.leaf.ndim in (2, 3) for each in seen) else None
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
    some = ", ".join(map(str, apart[:_MOST_SHOWN]))
    return _Found(
        f"has {max(filter(None, ratios))} times the scale of the others in {len(apart)} of {len(indices)} samples: "
        f"{some}"
    )
