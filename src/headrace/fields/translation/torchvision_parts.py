"""Pixel operations of torchvision (v1 and v2) and timm, and their vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from headrace.augment import (
    Augmentation,
    AugMix,
    AutoAugment,
    ColorJitter,
    CutMix,
    ElasticTransform,
    GaussianBlur,
    Mixing,
    MixUp,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomChoice,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    TrivialAugmentWide,
)
from headrace.fields.translation.reader import PartError, Reader, Translated, Vocabulary, finish
from headrace.fields.translation.timm_objects import timm_policy_of
from headrace.fields.translation.torchvision_views import PAIRS, STEPS, fill_of, interpolation_of, pair_of
from headrace.foreign_arguments import known_arguments


@known_arguments("from_torchvision")
def from_torchvision(transform: Any, *, partial: bool = False) -> Translated:
    """Translate a torchvision transform: a Compose of v1 or v2, a single transform, or a list of transforms.

    Raises UsageError with each unsupported part and the reason. With `partial=True` these parts are skipped and listed
    in `unknown`.
    """
    return finish("from_torchvision", Reader(_VOCABULARY).read(transform), partial)


@known_arguments("from_timm")
def from_timm(transform: Any, *, partial: bool = False) -> Translated:
    """Translate a transform from timm's create_transform, including the tuple from `separate=True`.

    Raises UsageError like `from_torchvision`. Images for timm's prefetcher stay uint8, as in timm: the prefetcher's
    normalization and erasing are not part of the transform.
    """
    return finish("from_timm", Reader(_VOCABULARY).read(transform), partial)


def _sampling(reader: Reader, part: Any, name: str | None = None) -> dict[str, Any]:
    """Return the interpolation and fill of a geometric operation."""
    given = interpolation_of(part.interpolation) if name is None else name
    kind: Literal["nearest", "bilinear"] = "nearest" if given.startswith("nearest") else "bilinear"
    if given not in ("nearest", "nearest-exact", "bilinear"):
        reader.note(f"resampled bilinearly, not by {given}")
    return {"interpolation": kind, "fill": fill_of(reader, getattr(part, "fill", 0))}


def _range(value: Any) -> float | tuple[float, float]:
    return 0.0 if value is None else float(value) if isinstance(value, int | float) else pair_of(value)


def _color_jitter(reader: Reader, part: Any) -> Augmentation | None:
    found = ColorJitter(*map(_range, (part.brightness, part.contrast, part.saturation, part.hue)))
    return found if found.nodes() else None


def _photometric(reader: Reader, part: Any) -> Augmentation:
    return RandomPhotometricDistort(
        pair_of(part.brightness), pair_of(part.contrast), pair_of(part.saturation), pair_of(part.hue), p=float(part.p)
    )


def _blur(reader: Reader, part: Any) -> Augmentation:
    width, height = part.kernel_size
    return GaussianBlur((int(width), int(height)), pair_of(part.sigma))


def _solarize(reader: Reader, part: Any) -> Augmentation:
    return RandomSolarize(reader.on_bytes(float(part.threshold)), float(part.p))


def _refuse_centre(part: Any) -> None:
    if getattr(part, "center", None) is not None:
        raise PartError("its center is a place; here it is the middle of the image")


def _rotation(reader: Reader, part: Any) -> Augmentation:
    _refuse_centre(part)
    if part.expand:
        raise PartError("expand=True gives images of different sizes")
    return RandomRotation(pair_of(part.degrees), **_sampling(reader, part))


def _affine(reader: Reader, part: Any) -> Augmentation:
    _refuse_centre(part)
    translate = None if part.translate is None else pair_of(part.translate)
    scale = None if part.scale is None else pair_of(part.scale)
    shear = None if part.shear is None else tuple(map(float, part.shear))
    return RandomAffine(pair_of(part.degrees), translate, scale, shear, **_sampling(reader, part))


def _perspective(reader: Reader, part: Any) -> Augmentation:
    return RandomPerspective(float(part.distortion_scale), float(part.p), **_sampling(reader, part))


def _elastic(reader: Reader, part: Any) -> Augmentation:
    alpha, sigma = (tuple(map(float, value)) for value in (part.alpha, part.sigma))
    return ElasticTransform(alpha, sigma, **_sampling(reader, part))


def _rand_augment(reader: Reader, part: Any) -> Augmentation | None:
    if type(part).__module__.startswith("timm"):
        return timm_policy_of(reader, part)
    found = RandAugment(part.num_ops, part.magnitude, part.num_magnitude_bins, **_sampling(reader, part))
    return found if found.num_ops else None


def _trivial_augment(reader: Reader, part: Any) -> Augmentation:
    return TrivialAugmentWide(part.num_magnitude_bins, **_sampling(reader, part))


def _auto_augment(reader: Reader, part: Any) -> Augmentation:
    if type(part).__module__.startswith("timm"):
        return timm_policy_of(reader, part)
    return AutoAugment(getattr(part.policy, "value", part.policy), **_sampling(reader, part))


def _aug_mix(reader: Reader, part: Any) -> Augmentation:
    return AugMix(
        *(part.severity, part.mixture_width, max(part.chain_depth, -1), part.alpha, part.all_ops),
        **_sampling(reader, part),
    )


def _random_apply(reader: Reader, part: Any) -> Augmentation | None:
    inner = reader.augmentations(part.transforms)
    return RandomApply(inner, float(part.p)) if inner else None


def _random_choice(reader: Reader, part: Any) -> Augmentation:
    children = [reader.augmentations([each]) for each in part.transforms]
    if not all(children):
        raise PartError("one of its parts does nothing")
    found = [each[0] if len(each) == 1 else RandomApply(each, 1.0) for each in children]
    weights = [float(weight) for weight in getattr(part, "p", None) or ()]
    return RandomChoice(found, weights if len(set(weights)) > 1 else None)


_MIXINGS = {"MixUp": MixUp, "CutMix": CutMix}
_PAIRS = "each image is mixed with its neighbour, in pairs; torchvision mixes it with the image before it"


def _mixing_of(part: Any) -> Mixing:
    return _MIXINGS[type(part).__name__](alpha=float(part.alpha), num_classes=part.num_classes)


def _mixing(reader: Reader, part: Any) -> None:
    reader.mix(_mixing_of(part), _PAIRS)


def _choice(reader: Reader, part: Any) -> None:
    """Add a RandomChoice, as batch mixing if all its parts are mixings."""
    if all(reader.vocabulary.name(each) in _MIXINGS for each in part.transforms):
        weights = [float(weight) for weight in getattr(part, "p", None) or ()]
        mixings = [_mixing_of(each) for each in part.transforms]
        return reader.mix(RandomChoice(mixings, weights if len(set(weights)) > 1 else None), _PAIRS)
    return reader.augment(_random_choice(reader, part))


def _random_order(reader: Reader, part: Any) -> Augmentation:
    return RandomOrder(reader.augmentations(part.transforms))


def _probable(kind: Any, *names: str) -> Any:
    """Return a function that builds an augmentation that has the same argument names and a probability."""
    return lambda reader, part: kind(*(getattr(part, name) for name in names), p=float(part.p))


def _erasing(reader: Reader, part: Any) -> None:
    if hasattr(part, "probability"):
        return _timm_erasing(reader, part)
    value = getattr(part, "value", 0)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = tuple(float(each) for each in value)
        value = value[0] if len(value) == 1 else value
    value = "random" if value is None else value
    return reader.erase(RandomErasing(float(part.p), pair_of(part.scale), pair_of(part.ratio), value))


def _timm_erasing(reader: Reader, part: Any) -> None:
    ratio = tuple(math.exp(value) for value in part.log_aspect_ratio)
    value: float | str = {"pixel": "random", "rand": "random_color"}.get(part.mode, 0.0)
    low, high = part.min_count, part.max_count
    area = (part.min_area, part.max_area)
    count = low if low == high else (low, high)
    reader.erase(RandomErasing(float(part.probability), area, pair_of(ratio), value, count=count))


def children_of(part: Any) -> Iterable[Any] | None:
    """Return the parts of a Compose, a Sequential, a list or a tuple; None for anything else."""
    if isinstance(part, list | tuple):
        return part
    name, module = type(part).__name__, type(part).__module__
    if name == "Compose" and module.startswith(("torchvision", "timm")):
        return part.transforms  # type: ignore[no-any-return]
    return list(part) if name == "Sequential" and module.startswith("torch") else None


_SIZES = "it gives images of different sizes in a batch; see hr.RandomScale and Buckets"

_VOCABULARY = Vocabulary(
    modules=("torchvision", "timm", "torch", "open_clip"),
    steps={**STEPS, "RandomErasing": _erasing, "MixUp": _mixing, "CutMix": _mixing, "RandomChoice": _choice},
    makers={
        "ColorJitter": _color_jitter,
        "RandomGrayscale": _probable(RandomGrayscale),
        "GaussianBlur": _blur,
        "RandomSolarize": _solarize,
        "RandomPosterize": _probable(RandomPosterize, "bits"),
        "RandomEqualize": _probable(RandomEqualize),
        "RandomAutocontrast": _probable(RandomAutocontrast),
        "RandomInvert": _probable(RandomInvert),
        "RandomAdjustSharpness": _probable(RandomAdjustSharpness, "sharpness_factor"),
        "RandomPhotometricDistort": _photometric,
        "RandomChannelPermutation": lambda reader, part: RandomChannelPermutation(),
        "RandomRotation": _rotation,
        "RandomAffine": _affine,
        "RandomPerspective": _perspective,
        "ElasticTransform": _elastic,
        "RandAugment": _rand_augment,
        "TrivialAugmentWide": _trivial_augment,
        "AutoAugment": _auto_augment,
        "AugMix": _aug_mix,
        "AugMixAugment": lambda reader, part: timm_policy_of(reader, part),
        "RandomApply": _random_apply,
        "RandomChoice": _random_choice,
        "RandomOrder": _random_order,
        "Identity": lambda reader, part: None,
    },
    pairs=PAIRS,
    reasons={
        "Lambda": "it is a function of your own; do it in map=",
        "Pad": "padding is taken before RandomCrop only",
        "CenterCropOrPad": "it is taken after ResizeKeepRatio only; take CenterCrop, which pads what is smaller",
        "RandomCropOrPad": "it may pad by reflection; take RandomCrop(pad_if_needed=True)",
        "RandomResize": _SIZES,
        "ScaleJitter": _SIZES,
        "RandomShortestSize": _SIZES,
        "RandomResizedCropToSequence": _SIZES,
        "ResizeToSequence": _SIZES,
        "RandomZoomOut": "it pads to a drawn size; do it in map=",
        "RandomIoUCrop": "its crop depends on the boxes; do it in map=",
        "LinearTransformation": "it mixes all pixels of an image; do it in batch_map=",
        "GaussianNoise": "noise on all pixels is not in the core; do it on the device or in map=",
        "JPEG": "compressing anew is not in the core; do it in map=",
    },
    children=children_of,
)
