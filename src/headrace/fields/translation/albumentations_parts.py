"""Parts of albumentations 2."""

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
from headrace.fields.translation.reader import PartError, Reader, Translated, Vocabulary, finish
from headrace.views import (
    CenterCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    View,
)

_OPENCV = {0: "nearest", 1: "linear", 2: "cubic", 3: "area", 4: "Lanczos"}
_ROUNDED = "the long side is cut to whole pixels, not rounded"


def from_albumentations(transform: Any, *, partial: bool = False) -> Translated:
    """Return what a Compose of albumentations 2 is here.

    Raises UsageError that names each part that cannot be taken, and why. With `partial=True` these are left out instead
    and stand in `unknown`. Boxes, keypoints and masks are fields of their own here, for which nothing is to translate.
    """
    return finish("from_albumentations", Reader(_VOCABULARY).read(transform), partial)


def _always(part: Any) -> None:
    if part.p != 1:
        raise PartError(f"it runs with probability {part.p:g}; a step of a view always runs")


def _resample(reader: Reader, part: Any) -> None:
    name = _OPENCV.get(part.interpolation, f"filter {part.interpolation}")
    reader.resampled("nearest" if name == "nearest" else "triangle")
    if name == "nearest":
        reader.note('pixels are those of "nearest-exact"')
    else:
        reader.note(f"resampled with antialiasing; OpenCV's {name} filter has none" if name != "area" else _AREA)


_AREA = "resampled by antialiased bilinear, not by OpenCV's area filter"


def _fill(part: Any) -> int | tuple[int, ...]:
    if part.border_mode != 0:
        raise PartError(f"its border_mode {part.border_mode} is not here; padding is of one value")
    values = list(part.fill) if isinstance(part.fill, tuple | list) else [part.fill]
    if not all(isinstance(value, int | float) and 0 <= value <= 255 and value == int(value) for value in values):
        raise PartError(f"its fill {part.fill!r} is no whole number of 0…255")
    return tuple(map(int, values)) if len(values) > 1 else int(values[0])


def _square(size: tuple[int, int]) -> int | tuple[int, int]:
    return size[0] if size[0] == size[1] else (size[0], size[1])


def _sampling(reader: Reader, part: Any) -> dict[str, Any]:
    name = _OPENCV.get(part.interpolation, "another filter")
    if name not in ("nearest", "linear"):
        reader.note(f"resampled bilinearly, not by OpenCV's {name} filter")
    return {"interpolation": "nearest" if name == "nearest" else "bilinear", "fill": _fill(part)}


def _random_resized_crop(reader: Reader, part: Any) -> None:
    _always(part)
    _resample(reader, part)
    reader.view(RandomResizedCrop(_square(part.size), scale=tuple(part.scale), ratio=tuple(part.ratio)))


def _resize(reader: Reader, part: Any) -> None:
    _always(part)
    _resample(reader, part)
    reader.view(Resize((part.height, part.width)))


def _whole_size(part: Any) -> int:
    if not isinstance(part.max_size, int):
        raise PartError("it draws its size, or has one a side; give max_size an int, or see hr.RandomScale")
    return part.max_size


def _smallest_size(reader: Reader, part: Any) -> None:
    _always(part)
    size = _whole_size(part)
    _resample(reader, part)
    reader.view(Resize(size), _ROUNDED)


def _letterbox(reader: Reader, part: Any, pad: Any) -> None:
    _always(part)
    _always(pad)
    size, room = _whole_size(part), (pad.min_height, pad.min_width)
    if room != (size, size) or str(getattr(pad.position, "value", pad.position)) != "center":
        raise PartError("they are a Letterbox only with one size, and the image in the middle")
    fill = _fill(pad)
    _resample(reader, part)
    reader.view(Letterbox(size, fill=fill), _ROUNDED)


def _crop(kind: type[View], reader: Reader, part: Any) -> None:
    _always(part)
    pads = bool(part.pad_if_needed)
    if pads and str(getattr(part.pad_position, "value", part.pad_position)) != "center":
        raise PartError("it pads on one side; here on both")
    size, fill = _square((part.height, part.width)), _fill(part) if pads else 0
    if kind is CenterCrop:
        return reader.view(CenterCrop(size, fill=fill))
    if pads:
        reader.note("padding is what the image lacks, on both sides, with the crop anywhere in it")
    return reader.view(RandomCrop(size, pad_if_needed=pads, fill=fill))


def _flip(kind: Callable[[float], View]) -> Callable[[Reader, Any], None]:
    return lambda reader, part: reader.view(kind(float(part.p)))


def _normalize(reader: Reader, part: Any) -> None:
    _always(part)
    if part.normalization != "standard" or part.max_pixel_value not in (255, None):
        raise PartError("it normalizes by other than 255, mean and std; do it in map=")
    if reader.values == "bytes":
        reader.floats("float32", scale=True)
    mean, std = ([float(value) for value in _sequence(values)] for values in (part.mean, part.std))
    reader.normalize(mean, std)


def _sequence(values: Any) -> Iterable[Any]:
    return values if isinstance(values, tuple | list) else (values,)


def _to_float(reader: Reader, part: Any) -> None:
    _always(part)
    if part.max_value not in (None, 255):
        raise PartError("it divides by another number than 255; do it in map=")
    reader.floats("float32", scale=True)


def _nothing(reader: Reader, part: Any) -> None:
    reader.became("nothing")


def _with_probability(augmentation: Augmentation | None, p: float) -> Augmentation | None:
    """Return the augmentation with probability `p`: its own argument where it has one."""
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
    return ColorJitter(brightness=(1 + low, 1 + high))  # its contrast is about black


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
    """Return what one part of OneOf is, which runs whenever it is chosen."""
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

_VOCABULARY = Vocabulary(
    modules=("albumentations",),
    steps={
        "RandomResizedCrop": _random_resized_crop,
        "Resize": _resize,
        "SmallestMaxSize": _smallest_size,
        "CenterCrop": lambda reader, part: _crop(CenterCrop, reader, part),
        "RandomCrop": lambda reader, part: _crop(RandomCrop, reader, part),
        "HorizontalFlip": _flip(RandomHorizontalFlip),
        "VerticalFlip": _flip(RandomVerticalFlip),
        "Normalize": _normalize,
        "ToFloat": _to_float,
        "ToTensorV2": _nothing,
        "NoOp": _nothing,
    },
    makers={name: _probable(make) for name, make in _ALWAYS.items()},
    pairs={("LongestMaxSize", "PadIfNeeded"): _letterbox},
    reasons={
        "LongestMaxSize": "it is taken before PadIfNeeded of the same size, as Letterbox",
        "PadIfNeeded": "it is taken after LongestMaxSize of the same size, as Letterbox",
        "HueSaturationValue": "it adds to hue, saturation and value; here they are factors: take hr.ColorJitter",
        "RGBShift": "it adds to the channels; do it in map=",
        "Sharpen": "its kernel is another; take hr.RandomAdjustSharpness",
        "Perspective": "its corners are normal, not uniform; take hr.RandomPerspective",
        "ElasticTransform": "its displacements are normal, not uniform; take hr.ElasticTransform",
        "CoarseDropout": "its holes' height and width are drawn apart; take hr.RandomErasing",
        "GridDropout": "it erases a grid; take hr.RandomErasing, which is one rectangle",
        "SomeOf": "it draws a subset of its parts; give each a probability of its own",
        "RandomScale": "it gives images of different sizes in a batch; see hr.RandomScale",
    },
    children=lambda part: _children(part),
)


def _children(part: Any) -> Iterable[Any] | None:
    if isinstance(part, list | tuple):
        return part
    holds = _VOCABULARY.name(part) in ("Compose", "Sequential") and part.p == 1
    return part.transforms if holds else None
