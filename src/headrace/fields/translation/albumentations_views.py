"""Views and conversions of albumentations 2: crops, resizes, flips, types and normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.fields.image import Filter
from headrace.fields.translation.reader import Handler, PairHandler, PartError, Reader
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

OPENCV_FILTERS = {0: "nearest", 1: "linear", 2: "cubic", 3: "area", 4: "Lanczos"}
_FILTERS: Mapping[str, Filter] = {"nearest": "nearest-opencv", "linear": "linear"}
_ROUNDED = "the long side is cut to whole pixels, not rounded"


def _always(part: Any) -> None:
    if part.p != 1:
        raise PartError(f"it runs with probability {part.p:g}; a step of a view always runs")


def _resample(reader: Reader, part: Any) -> None:
    name = OPENCV_FILTERS.get(part.interpolation, f"filter {part.interpolation}")
    if getattr(part, "area_for_downscale", None) is not None:
        name = "area"
    reader.resampled(_FILTERS.get(name, "triangle"))
    if OPENCV_FILTERS.get(getattr(part, "mask_interpolation", 0)) == "nearest":
        reader.mask_filter = "nearest-opencv"
    if name == "area":
        reader.note("resampled by antialiased bilinear, not by OpenCV's area filter")
    elif name not in _FILTERS:
        reader.note(f"resampled with antialiasing; OpenCV's {name} filter has none")


def fill_of(part: Any) -> int | tuple[int, ...]:
    if part.border_mode != 0:
        raise PartError(f"its border_mode {part.border_mode} is not here; padding is of one value")
    values = list(part.fill) if isinstance(part.fill, tuple | list) else [part.fill]
    if not all(isinstance(value, int | float) and 0 <= value <= 255 and value == int(value) for value in values):
        raise PartError(f"its fill {part.fill!r} is no whole number of 0…255")
    return tuple(map(int, values)) if len(values) > 1 else int(values[0])


def _square(size: tuple[int, int]) -> int | tuple[int, int]:
    return size[0] if size[0] == size[1] else (size[0], size[1])


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
    fill = fill_of(pad)
    _resample(reader, part)
    reader.view(Letterbox(size, fill=fill), _ROUNDED)


def _crop(kind: type[View], reader: Reader, part: Any) -> None:
    _always(part)
    pads = bool(part.pad_if_needed)
    if pads and str(getattr(part.pad_position, "value", part.pad_position)) != "center":
        raise PartError("it pads on one side; here on both")
    size, fill = _square((part.height, part.width)), fill_of(part) if pads else 0
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


STEPS: dict[str, Handler] = {
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "SmallestMaxSize": _smallest_size,
    "CenterCrop": lambda reader, part: _crop(CenterCrop, reader, part),
    "RandomCrop": lambda reader, part: _crop(RandomCrop, reader, part),
    "HorizontalFlip": _flip(RandomHorizontalFlip),
    "VerticalFlip": _flip(RandomVerticalFlip),
    "Normalize": _normalize,
    "ToFloat": _to_float,
    **dict.fromkeys(["ToTensorV2", "ToRGB", "NoOp"], _nothing),
}

PAIRS: dict[tuple[str, ...], PairHandler] = {("LongestMaxSize", "PadIfNeeded"): _letterbox}
