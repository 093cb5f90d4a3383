"""Pixel operations of albumentations 2, and its vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from headrace.augment import (
    Augmentation,
    ColorJitter,
    GaussianBlur,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomChoice,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomOrder,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
)
from headrace.fields.translation.albumentations_views import OPENCV_FILTERS, PAIRS, STEPS, fill_of
from headrace.fields.translation.reader import PartError, Reader, Translated, Vocabulary, finish
from headrace.foreign_arguments import known_arguments


@known_arguments("from_albumentations")
def from_albumentations(transform: Any, *, partial: bool = False) -> Translated:
    """Translate a Compose of albumentations 2.

    Raises UsageError with each unsupported part and the reason. With `partial=True` these parts are skipped and listed
    in `unknown`. Boxes and keypoints need no translation: they are separate fields in Headrace. So are masks: `mask` is
    a field that picks the pixels that albumentations picks.
    """
    return finish("from_albumentations", Reader(_VOCABULARY).read(transform), partial)


def _sampling(reader: Reader, part: Any) -> dict[str, Any]:
    name = OPENCV_FILTERS.get(part.interpolation, "another filter")
    if name not in ("nearest", "linear"):
        reader.note(f"resampled bilinearly, not by OpenCV's {name} filter")
    return {"interpolation": "nearest" if name == "nearest" else "bilinear", "fill": fill_of(part)}


def _with_probability(augmentation: Augmentation | None, p: float) -> Augmentation | None:
    """Apply probability `p` to the augmentation, through its own argument if it has one."""
    if augmentation is None or p == 1:
        return augmentation
    if any(each.name == "p" for each in fields(augmentation)) and getattr(augmentation, "p", 0) == 1:  # type: ignore[arg-type]
        return replace(augmentation, p=p)  # type: ignore[type-var]
    return RandomApply([augmentation], p)


def _probable(make: Callable[[Reader, Any], Augmentation | None]) -> Callable[[Reader, Any], Augmentation | None]:
    return lambda reader, part: _with_probability(make(reader, part), float(part.p))


def _color_jitter(reader: Reader, part: Any) -> Augmentation | None:
    found = ColorJitter(*(tuple(value) for value in (part.brightness, part.contrast, part.saturation, part.hue)))
    return found if found.nodes() else None


def _brightness_contrast(reader: Reader, part: Any) -> Augmentation:
    if tuple(part.brightness_limit) != (0, 0):
        raise PartError("it adds brightness; here brightness and contrast are factors: take hr.ColorJitter")
    low, high = part.contrast_limit
    return ColorJitter(brightness=(1 + low, 1 + high))  # albumentations scales contrast around black


def _to_gray(reader: Reader, part: Any) -> Augmentation:
    if part.method != "weighted_average" or part.num_output_channels != 3:
        raise PartError('it is taken with method="weighted_average" and 3 channels')
    return RandomGrayscale(1.0)


def _blur(reader: Reader, part: Any) -> Augmentation:
    low, high = part.blur_limit
    if low != high:
        raise PartError("it draws its kernel's size; take blur_limit=0, with sigma_limit")
    sigma = tuple(map(float, part.sigma_limit))
    if low == 0:
        reader.note("the kernel is as wide as the largest sigma needs, for all")
        low = 2 * int(3.5 * sigma[1]) + 1
    return GaussianBlur(int(low) | 1, sigma)


def _solarize(reader: Reader, part: Any) -> Augmentation:
    low, high = part.threshold_range
    if low != high:
        raise PartError("it draws its threshold; here it is one number")
    return RandomSolarize(255 * float(low), 1.0)


def _posterize(reader: Reader, part: Any) -> Augmentation:
    bits = part.num_bits
    if not isinstance(bits, tuple | list) or not all(isinstance(each, int) for each in bits):
        raise PartError("its bits differ by channel; here all have one number")
    choices = [RandomPosterize(each, 1.0) for each in range(bits[0], bits[-1] + 1)]
    return choices[0] if len(choices) == 1 else RandomChoice(choices)


def _equalize(reader: Reader, part: Any) -> Augmentation:
    if not part.by_channels or part.mask is not None:
        raise PartError("it is taken with by_channels=True and without a mask")
    if part.mode == "cv":
        reader.note("equalized as Pillow does; OpenCV's table differs by a few levels")
    return RandomEqualize(1.0)


def _autocontrast(reader: Reader, part: Any) -> Augmentation:
    if part.method != "pil" or part.cutoff != 0 or part.ignore is not None:
        raise PartError('it is taken with method="pil", without cutoff and ignore')
    return RandomAutocontrast(1.0)


def _rotate(reader: Reader, part: Any) -> Augmentation:
    if part.crop_border:
        raise PartError("crop_border=True gives images of different sizes")
    low, high = part.limit
    return RandomRotation((float(low), float(high)), **_sampling(reader, part))


def _affine(reader: Reader, part: Any) -> Augmentation:
    across, down = (tuple(part.scale[axis]) for axis in "xy")
    if across != down or (across[0] != across[1] and not part.keep_ratio) or part.balanced_scale:
        raise PartError("it draws the scales of x and y apart; here both are one: take keep_ratio=True")
    if any(tuple(part.shear[axis]) != (0, 0) for axis in "xy"):
        raise PartError("it shears after it turns; here it is the other way round")
    if part.fit_output:
        raise PartError("fit_output=True gives images of different sizes")
    if part.translate_px is not None and any(tuple(part.translate_px[axis]) != (0, 0) for axis in "xy"):
        raise PartError("it moves by pixels; here translate is a share: take translate_percent")
    translate = None
    if part.translate_percent is not None:
        ranges = [tuple(part.translate_percent[axis]) for axis in "xy"]
        if any(low != -high for low, high in ranges):
            raise PartError("it moves more to one side; here translate is a share to both")
        translate = tuple(high for _, high in ranges)
        reader.note("moved by the nearest whole pixels, not cut to them")
    low, high = part.rotate
    return RandomAffine((-float(high), -float(low)), translate, across, **_sampling(reader, part))


def _one_of(reader: Reader, part: Any) -> Augmentation:
    parts = list(part.transforms)
    found = [_forced(reader, each) for each in parts]
    weights = [float(each.p) for each in parts]
    return RandomChoice(found, None if len(set(weights)) == 1 else weights)


def _forced(reader: Reader, part: Any) -> Augmentation:
    """Translate one part of OneOf, which always runs when chosen."""
    name = _VOCABULARY.name(part)
    make = _ALWAYS.get(name)
    if make is None:
        raise PartError(f"{name or type(part).__name__} inside of it cannot be taken")
    found = make(reader, part)
    if found is None:
        raise PartError(f"{name} inside of it does nothing")
    return found


def _sequential(reader: Reader, part: Any) -> Augmentation | None:
    inner = reader.augmentations(part.transforms)
    return RandomApply(inner, 1.0) if inner else None


def _random_order(reader: Reader, part: Any) -> Augmentation:
    if part.n != len(part.transforms) or part.replace:
        raise PartError("it draws some of its parts; here RandomOrder runs all")
    return RandomOrder(reader.augmentations(part.transforms))


_ALWAYS: dict[str, Callable[[Reader, Any], Augmentation | None]] = {
    "ColorJitter": _color_jitter,
    "RandomBrightnessContrast": _brightness_contrast,
    "ToGray": _to_gray,
    "GaussianBlur": _blur,
    "Solarize": _solarize,
    "Posterize": _posterize,
    "Equalize": _equalize,
    "AutoContrast": _autocontrast,
    "InvertImg": lambda reader, part: RandomInvert(1.0),
    "ChannelShuffle": lambda reader, part: RandomChannelPermutation(),
    "Rotate": _rotate,
    "Affine": _affine,
    "ShiftScaleRotate": _affine,
    "OneOf": _one_of,
    "Sequential": _sequential,
    "Compose": _sequential,
    "RandomOrder": _random_order,
}

_BY_CONTENT = "it depends on boxes or masks; do it in map="
_NOISE = "noise on all pixels is not in the core; do it on the device or in map="
_KERNEL = "its kernel is another; take hr.GaussianBlur"
_HOLES = "its holes are drawn in another way; take hr.RandomErasing"
_DISTORTION = "its displacements are drawn in another way; take hr.ElasticTransform"
_CROP = "its size is drawn, or fixed in pixels of the source; take RandomResizedCrop or RandomCrop"
_QUARTERS = "it turns by quarters; take the two flips, or hr.RandomRotation"
_CURVE = "it changes colours by a curve of its own; take hr.ColorJitter, or do it in map="
_COMPRESSED = "compressing anew is not in the core; do it in map="
_SUBSET = "it draws which of its parts run; give each a probability of its own, or take OneOf"

_REASONS = {
    "LongestMaxSize": "it is taken before PadIfNeeded of the same size, as Letterbox",
    "PadIfNeeded": "it is taken after LongestMaxSize of the same size, as Letterbox",
    "Pad": "padding is taken as that of RandomCrop, or after LongestMaxSize",
    "HueSaturationValue": "it adds to hue, saturation and value; here they are factors: take hr.ColorJitter",
    "RGBShift": "it adds to the channels; do it in map=",
    "CLAHE": "it equalizes by tiles; take hr.RandomEqualize",
    "Sharpen": "its kernel is another; take hr.RandomAdjustSharpness",
    "UnsharpMask": "its kernel is another; take hr.RandomAdjustSharpness",
    "Perspective": "its corners are normal, not uniform; take hr.RandomPerspective",
    "SafeRotate": "it shrinks what it turns so that all stays inside; take hr.RandomAffine",
    "RandomScale": "it gives images of different sizes in a batch; see hr.RandomScale",
    "Mosaic": "it joins several samples; see the recipe of a detector with Mosaic",
    "ReplayCompose": "it records what it drew; take Compose",
    "Lambda": "it is a function of your own; do it in map=",
    **dict.fromkeys(["SomeOf", "OneOrOther"], _SUBSET),
    **dict.fromkeys(["ElasticTransform", "GridElasticDeform", "GridDistortion", "OpticalDistortion"], _DISTORTION),
    **dict.fromkeys(["PiecewiseAffine", "ThinPlateSpline"], _DISTORTION),
    **dict.fromkeys(["CoarseDropout", "Erasing", "GridDropout", "XYMasking", "PixelDropout"], _HOLES),
    **dict.fromkeys(["ConstrainedCoarseDropout", "MaskDropout", "CropNonEmptyMaskIfExists"], _BY_CONTENT),
    **dict.fromkeys(["AtLeastOneBBoxRandomCrop", "BBoxSafeRandomCrop", "RandomSizedBBoxSafeCrop"], _BY_CONTENT),
    **dict.fromkeys(["RandomCropNearBBox"], _BY_CONTENT),
    **dict.fromkeys(["Crop", "CropAndPad", "RandomCropFromBorders", "RandomSizedCrop"], _CROP),
    **dict.fromkeys(["RandomRotate90", "Transpose", "D4", "SquareSymmetry"], _QUARTERS),
    **dict.fromkeys(["Blur", "MedianBlur", "MotionBlur", "AdvancedBlur", "ZoomBlur", "Defocus", "GlassBlur"], _KERNEL),
    **dict.fromkeys(["GaussNoise", "ISONoise", "MultiplicativeNoise", "AdditiveNoise", "ShotNoise"], _NOISE),
    **dict.fromkeys(["SaltAndPepper"], _NOISE),
    **dict.fromkeys(["RandomGamma", "RandomToneCurve", "PlanckianJitter", "FancyPCA", "ToSepia"], _CURVE),
    **dict.fromkeys(["ImageCompression", "Downscale"], _COMPRESSED),
}

_VOCABULARY = Vocabulary(
    modules=("albumentations",),
    steps=STEPS,
    makers={name: _probable(make) for name, make in _ALWAYS.items()},
    pairs=PAIRS,
    reasons=_REASONS,
    children=lambda part: _children(part),
)


def _children(part: Any) -> Iterable[Any] | None:
    if isinstance(part, list | tuple):
        return part
    holds = _VOCABULARY.name(part) in ("Compose", "Sequential") and part.p == 1
    return part.transforms if holds else None
