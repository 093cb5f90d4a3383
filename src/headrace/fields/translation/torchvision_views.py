"""Views and conversions of torchvision (v1 and v2) and timm: crops, resizes, flips, types and normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.augment import RandomGrayscale
from headrace.fields.image import Filter
from headrace.fields.translation.reader import Handler, PairHandler, PartError, Reader
from headrace.views import (
    CenterCrop,
    FiveCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    TenCrop,
)

_FILTERS: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest",
    "bilinear": "triangle",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
}
_OF_TENSORS: dict[str, Filter] = {"nearest": "nearest-torch", "nearest-exact": "nearest-exact"}
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def interpolation_of(value: Any) -> str:
    """Return the name of an interpolation given as an enum, a str or a Pillow constant."""
    value = getattr(value, "value", value)
    return _PILLOW.get(value, str(value)) if isinstance(value, int) else str(value)


def size_of(value: Any) -> int | tuple[int, int]:
    """Return an int or (height, width); a sequence of one item becomes an int."""
    if isinstance(value, Sequence):
        return int(value[0]) if len(value) == 1 else (int(value[0]), int(value[1]))
    return int(value)


def crop_size_of(value: Any) -> int | tuple[int, int]:
    """Return the size of a crop; a square becomes an int."""
    size = size_of(value)
    return size[0] if isinstance(size, tuple) and size[0] == size[1] else size


def pair_of(value: Any) -> tuple[float, float]:
    low, high = value
    return float(low), float(high)


def _resample(reader: Reader, part: Any) -> None:
    """Set the resampling filter from a part."""
    given = getattr(part, "interpolation", "bilinear")
    names = [interpolation_of(each) for each in given] if isinstance(given, tuple | list) else [interpolation_of(given)]
    filters = _FILTERS | _OF_TENSORS if reader.is_tensor else _FILTERS
    kind = filters.get(names[0]) if len(names) == 1 else None
    reader.resampled(kind or "triangle")
    if type(part).__module__.startswith("torchvision.transforms.v2"):
        reader.mask_filter = "nearest-torch"
    if kind is None:
        reader.note(f"resampled by antialiased bilinear, not by {' or '.join(names)}")
    elif kind in ("triangle", "bicubic") and getattr(part, "antialias", True) in (False, None):
        reader.note("antialiased, as Pillow images are there; tensors would not be")


def fill_of(reader: Reader, fill: Any) -> int | tuple[int, ...]:
    if isinstance(fill, Mapping):
        raise PartError("its fill depends on the type of the value; give one fill")
    if reader.values == "normalized":
        raise PartError("its fill is a normalized value; put it before Normalize")
    values = [0] if fill is None else list(fill) if isinstance(fill, Sequence) else [fill]
    scaled = [reader.on_bytes(float(value)) for value in values]
    if not all(abs(value - round(value)) < 1e-6 and 0 <= value <= 255 for value in scaled):
        raise PartError(f"its fill {fill!r} is no whole number of 0…255")
    whole = tuple(round(value) for value in scaled)
    return whole if len(whole) > 1 else whole[0]


# Geometry of the view.


def _random_resized_crop(reader: Reader, part: Any) -> None:
    view = RandomResizedCrop(crop_size_of(part.size), scale=pair_of(part.scale), ratio=pair_of(part.ratio))
    _resample(reader, part)
    reader.view(view)


def _resize(reader: Reader, part: Any) -> None:
    if part.size is None:
        raise PartError("it has no size, only max_size; give a size")
    view = Resize(size_of(part.size), max_size=getattr(part, "max_size", None))
    _resample(reader, part)
    reader.view(view)


def _center_crop(reader: Reader, part: Any) -> None:
    reader.view(CenterCrop(crop_size_of(part.size)))


def _padding(padding: Any) -> int | tuple[int, int, int, int] | None:
    if padding is None or isinstance(padding, int):
        return padding
    sides = [int(side) for side in padding]
    left, top, right, bottom = sides * (4 // len(sides))
    return (left, top, right, bottom)


def _refuse_mode(part: Any) -> None:
    if getattr(part, "padding_mode", "constant") != "constant":
        raise PartError(f"its padding_mode {part.padding_mode!r} is not here; padding is of one value")


def _random_crop(reader: Reader, part: Any) -> None:
    _refuse_mode(part)
    padding, pads = _padding(part.padding), bool(part.pad_if_needed)
    fill = fill_of(reader, part.fill) if padding or pads else 0
    reader.view(RandomCrop(crop_size_of(part.size), padding=padding, pad_if_needed=pads, fill=fill))


def _pad_and_crop(reader: Reader, pad: Any, part: Any) -> None:
    _refuse_mode(pad)
    if part.padding is not None or part.pad_if_needed:
        raise PartError("both add padding; leave it to one")
    view = RandomCrop(crop_size_of(part.size), padding=_padding(pad.padding), fill=fill_of(reader, pad.fill))
    reader.view(view)


def _horizontal_flip(reader: Reader, part: Any) -> None:
    reader.view(RandomHorizontalFlip(float(part.p)))


def _vertical_flip(reader: Reader, part: Any) -> None:
    reader.view(RandomVerticalFlip(float(part.p)))


def _five_crop(reader: Reader, part: Any) -> None:
    reader.view(FiveCrop(crop_size_of(part.size)))


def _ten_crop(reader: Reader, part: Any) -> None:
    reader.view(TenCrop(crop_size_of(part.size), vertical_flip=bool(part.vertical_flip)))


def _keep_ratio(reader: Reader, part: Any) -> None:
    height, width = part.size
    if part.random_scale_prob or part.random_aspect_prob:
        raise PartError("it draws a scale or an aspect ratio; take RandomResizedCrop")
    if part.longest != 0 or height != width:
        raise PartError("it fits the image into a box; that is Letterbox, where CenterCropOrPad follows")
    _resample(reader, part)
    reader.view(Resize(height), "the long side is cut to whole pixels, not rounded")


def _keep_ratio_and_pad(reader: Reader, part: Any, crop: Any) -> None:
    if part.longest != 1 or part.random_scale_prob or part.random_aspect_prob:
        _keep_ratio(reader, part)
        return _center_crop(reader, crop)
    _refuse_mode(crop)
    box, size = crop_size_of(part.size), crop_size_of(crop.size)
    _resample(reader, part)
    reader.view(Letterbox(box, fill=fill_of(reader, crop.fill)), "sides may differ by a pixel, as they are rounded")
    return reader.view(CenterCrop(size)) if size != box else None


def _classification(reader: Reader, part: Any) -> None:
    _resample(reader, part)
    reader.view(Resize(size_of(part.resize_size)))
    reader.view(CenterCrop(crop_size_of(part.crop_size)))
    reader.floats("float32", scale=True)
    _normalize(reader, part)


# Conversions.


def _nothing(reader: Reader, part: Any) -> None:
    reader.became("nothing")


def _to_uint8_tensor(reader: Reader, part: Any) -> None:
    reader.is_tensor = True
    reader.became("nothing")


def _boxes(reader: Reader, part: Any) -> None:
    reader.became("nothing", "the fields hr.Boxes and hr.Keypoints drop what lies outside, by their own rule")


def _to_tensor(reader: Reader, part: Any) -> None:
    reader.is_tensor = True
    if type(part).__module__.startswith("timm") and type(part).__name__ == "ToTensor":
        return reader.floats(_dtype_name(part.dtype), scale=False)
    return reader.floats("float32", scale=True)


def _to_picture(reader: Reader, part: Any) -> None:
    if reader.values == "normalized":
        raise PartError("it would make a picture of normalized values")
    reader.values, reader.dtype, reader.is_tensor = "bytes", "uint8", False
    reader.became("nothing")


def _dtype_name(dtype: Any) -> str:
    return {"float": "float32", "half": "float16"}.get(str(dtype).removeprefix("torch."), str(dtype)[6:])


def _to_dtype(reader: Reader, part: Any) -> None:
    dtype = part.dtype
    if isinstance(dtype, Mapping):
        named = {getattr(key, "__name__", key): value for key, value in dtype.items()}
        dtype = named.get("Image", named.get("Tensor", named.get("others")))
    if dtype is None:
        return reader.became("nothing")
    scale = bool(getattr(part, "scale", True))  # ConvertImageDtype always scales
    return reader.floats(_dtype_name(dtype), scale=scale)


def _normalize(reader: Reader, part: Any) -> None:
    mean, std = ([_number(value) for value in values] for values in (part.mean, part.std))
    reader.normalize(mean, std)


def _number(value: Any) -> float:
    """Convert to float; round a float32 tensor's value to 7 digits to recover the literal."""
    return float(f"{float(value):.7g}") if hasattr(value, "item") else float(value)


def _grayscale(reader: Reader, part: Any) -> None:
    if part.num_output_channels == 3:
        return reader.augment(RandomGrayscale(1.0))
    return reader.grey()


STEPS: dict[str, Handler] = {
    "RandomResizedCrop": _random_resized_crop,
    "RandomResizedCropAndInterpolation": _random_resized_crop,
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": _horizontal_flip,
    "RandomVerticalFlip": _vertical_flip,
    "FiveCrop": _five_crop,
    "TenCrop": _ten_crop,
    "ResizeKeepRatio": _keep_ratio,
    "ImageClassification": _classification,
    "ToTensor": _to_tensor,
    "MaybeToTensor": _to_tensor,
    "ToPILImage": _to_picture,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "ConvertDtype": _to_dtype,
    **dict.fromkeys(["PILToTensor", "MaybePILToTensor", "ToImage", "ToImageTensor", "ToNumpy"], _to_uint8_tensor),
    **dict.fromkeys(["ToPureTensor", "Identity", "RGB", "MaybeConvertMode", "ClampBoundingBoxes"], _nothing),
    "Normalize": _normalize,
    "Grayscale": _grayscale,
    "SanitizeBoundingBoxes": _boxes,
    "SanitizeKeyPoints": _boxes,
}

PAIRS: dict[tuple[str, ...], PairHandler] = {
    ("Pad", "RandomCrop"): _pad_and_crop,
    ("ResizeKeepRatio", "CenterCropOrPad"): _keep_ratio_and_pad,
}
