"""Parts of torchvision (v1 and v2) and timm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from headrace.augment import (
    Augmentation,
    AugMix,
    AutoAugment,
    ColorJitter,
    ElasticTransform,
    GaussianBlur,
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

_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def from_torchvision(transform: Any, *, partial: bool = False) -> Translated:
    """Return what a torchvision transform is here: a Compose of v1 or v2, one part, or a list of them.

    Raises UsageError that names each part that cannot be taken, and why. With `partial=True` these are left out instead
    and stand in `unknown`.
    """
    return finish("from_torchvision", Reader(_VOCABULARY).read(transform), partial)


def from_timm(transform: Any, *, partial: bool = False) -> Translated:
    """Return what a transform of timm's create_transform is here; with `separate=True` it is a tuple, also taken.

    Raises UsageError as `from_torchvision` does. Images for timm's prefetcher stay uint8, as timm leaves them; what the
    prefetcher does (normalization, erasing) is not in the transform.
    """
    return finish("from_timm", Reader(_VOCABULARY).read(transform), partial)


def interpolation_of(value: Any) -> str:
    """Return the name of an interpolation given as an enum, a str or Pillow's number."""
    value = getattr(value, "value", value)
    return _PILLOW.get(value, str(value)) if isinstance(value, int) else str(value)


def size_of(value: Any) -> int | tuple[int, int]:
    """Return an int, or (height, width); a sequence of one is that one."""
    if isinstance(value, Sequence):
        return int(value[0]) if len(value) == 1 else (int(value[0]), int(value[1]))
    return int(value)


def crop_size_of(value: Any) -> int | tuple[int, int]:
    """Return the size of a crop: an int stands for a square."""
    size = size_of(value)
    return size[0] if isinstance(size, tuple) and size[0] == size[1] else size


def _pair(value: Any) -> tuple[float, float]:
    low, high = value
    return float(low), float(high)


def _resample(reader: Reader, part: Any) -> None:
    """Take how a part resamples."""
    given = getattr(part, "interpolation", "bilinear")
    names = [interpolation_of(each) for each in given] if isinstance(given, tuple | list) else [interpolation_of(given)]
    reader.resampled("nearest" if names == ["nearest"] or names == ["nearest-exact"] else "triangle")
    if names == ["nearest"]:
        reader.note('pixels are those of "nearest-exact"')
    elif names != ["bilinear"] and names != ["nearest-exact"]:
        reader.note(f"resampled by antialiased bilinear, not by {' or '.join(names)}")
    elif names == ["bilinear"] and getattr(part, "antialias", True) in (False, None):
        reader.note("antialiased, as Pillow images are there; tensors would not be")


def _sampling(reader: Reader, part: Any, name: str | None = None) -> dict[str, Any]:
    """Return the interpolation and the fill of an operation that moves pixels."""
    given = interpolation_of(part.interpolation) if name is None else name
    kind: Literal["nearest", "bilinear"] = "nearest" if given.startswith("nearest") else "bilinear"
    if given not in ("nearest", "nearest-exact", "bilinear"):
        reader.note(f"resampled bilinearly, not by {given}")
    return {"interpolation": kind, "fill": _fill(reader, getattr(part, "fill", 0))}


def _fill(reader: Reader, fill: Any) -> int | tuple[int, ...]:
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
    view = RandomResizedCrop(crop_size_of(part.size), scale=_pair(part.scale), ratio=_pair(part.ratio))
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
    fill = _fill(reader, part.fill) if padding or pads else 0
    reader.view(RandomCrop(crop_size_of(part.size), padding=padding, pad_if_needed=pads, fill=fill))


def _pad_and_crop(reader: Reader, pad: Any, part: Any) -> None:
    _refuse_mode(pad)
    if part.padding is not None or part.pad_if_needed:
        raise PartError("both add padding; leave it to one")
    view = RandomCrop(crop_size_of(part.size), padding=_padding(pad.padding), fill=_fill(reader, pad.fill))
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
    reader.view(Letterbox(box, fill=_fill(reader, crop.fill)), "sides may differ by a pixel, as they are rounded")
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


def _boxes(reader: Reader, part: Any) -> None:
    reader.became("nothing", "the fields hr.Boxes and hr.Keypoints drop what lies outside, by their own rule")


def _to_tensor(reader: Reader, part: Any) -> None:
    if type(part).__module__.startswith("timm") and type(part).__name__ == "ToTensor":
        return reader.floats(_dtype_name(part.dtype), scale=False)
    return reader.floats("float32", scale=True)


def _to_picture(reader: Reader, part: Any) -> None:
    if reader.values == "normalized":
        raise PartError("it would make a picture of normalized values")
    reader.values, reader.dtype = "bytes", "uint8"
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
    """Return a float; of a tensor in float32 the number that was written."""
    return float(f"{float(value):.7g}") if hasattr(value, "item") else float(value)


def _grayscale(reader: Reader, part: Any) -> None:
    if part.num_output_channels == 3:
        return reader.augment(RandomGrayscale(1.0))
    return reader.grey()


def _erasing(reader: Reader, part: Any) -> None:
    if hasattr(part, "probability"):
        return _timm_erasing(reader, part)
    value = getattr(part, "value", 0)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = tuple(float(each) for each in value)
        value = value[0] if len(value) == 1 else value
    value = "random" if value is None else value
    return reader.erase(RandomErasing(float(part.p), _pair(part.scale), _pair(part.ratio), value))


def _timm_erasing(reader: Reader, part: Any) -> None:
    if part.min_count != 1 or part.max_count != 1:
        raise PartError(f"it erases up to {part.max_count} rectangles; here it is one")
    if part.mode not in ("", "const", "pixel"):
        raise PartError(f'its mode {part.mode!r} fills with one random colour; here it is 0 or, with "pixel", noise')
    ratio = tuple(math.exp(value) for value in part.log_aspect_ratio)
    value: float | str = "random" if part.mode == "pixel" else 0.0
    reader.erase(RandomErasing(float(part.probability), (part.min_area, part.max_area), _pair(ratio), value))


# Augmentations.


def _range(value: Any) -> float | tuple[float, float]:
    return 0.0 if value is None else float(value) if isinstance(value, int | float) else _pair(value)


def _color_jitter(reader: Reader, part: Any) -> Augmentation | None:
    found = ColorJitter(*map(_range, (part.brightness, part.contrast, part.saturation, part.hue)))
    return found if found.nodes() else None


def _photometric(reader: Reader, part: Any) -> Augmentation:
    return RandomPhotometricDistort(
        _pair(part.brightness), _pair(part.contrast), _pair(part.saturation), _pair(part.hue), p=float(part.p)
    )


def _blur(reader: Reader, part: Any) -> Augmentation:
    width, height = part.kernel_size
    return GaussianBlur((int(width), int(height)), _pair(part.sigma))


def _solarize(reader: Reader, part: Any) -> Augmentation:
    return RandomSolarize(reader.on_bytes(float(part.threshold)), float(part.p))


def _refuse_centre(part: Any) -> None:
    if getattr(part, "center", None) is not None:
        raise PartError("its center is a place; here it is the middle of the image")


def _rotation(reader: Reader, part: Any) -> Augmentation:
    _refuse_centre(part)
    if part.expand:
        raise PartError("expand=True gives images of different sizes")
    return RandomRotation(_pair(part.degrees), **_sampling(reader, part))


def _affine(reader: Reader, part: Any) -> Augmentation:
    _refuse_centre(part)
    translate = None if part.translate is None else _pair(part.translate)
    scale = None if part.scale is None else _pair(part.scale)
    shear = None if part.shear is None else tuple(map(float, part.shear))
    return RandomAffine(_pair(part.degrees), translate, scale, shear, **_sampling(reader, part))


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


def _random_order(reader: Reader, part: Any) -> Augmentation:
    return RandomOrder(reader.augmentations(part.transforms))


def _probable(kind: Any, *names: str) -> Any:
    """Return the maker of an augmentation with arguments of the same names and a probability."""
    return lambda reader, part: kind(*(getattr(part, name) for name in names), p=float(part.p))


def children_of(part: Any) -> Iterable[Any] | None:
    """Return the parts of a Compose, a Sequential, a list or a tuple."""
    if isinstance(part, list | tuple):
        return part
    name, module = type(part).__name__, type(part).__module__
    if name == "Compose" and module.startswith(("torchvision", "timm")):
        return part.transforms  # type: ignore[no-any-return]
    return list(part) if name == "Sequential" and module.startswith("torch") else None


_SIZES = "it gives images of different sizes in a batch; see hr.RandomScale and Buckets"
_BATCH = "it is of the batch: Loader(batch=hr.MixUp(…)) or hr.CutMix(…)"

_VOCABULARY = Vocabulary(
    modules=("torchvision", "timm", "torch"),
    steps={
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
        **dict.fromkeys(["PILToTensor", "MaybePILToTensor", "ToImage", "ToImageTensor", "ToNumpy"], _nothing),
        **dict.fromkeys(["ToPureTensor", "Identity", "RGB", "ClampBoundingBoxes"], _nothing),
        "Normalize": _normalize,
        "Grayscale": _grayscale,
        "RandomErasing": _erasing,
        "SanitizeBoundingBoxes": _boxes,
        "SanitizeKeyPoints": _boxes,
    },
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
    pairs={("Pad", "RandomCrop"): _pad_and_crop, ("ResizeKeepRatio", "CenterCropOrPad"): _keep_ratio_and_pad},
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
        "MixUp": _BATCH,
        "CutMix": _BATCH,
        "RandomZoomOut": "it pads to a drawn size; do it in map=",
        "RandomIoUCrop": "its crop depends on the boxes; do it in map=",
        "LinearTransformation": "it mixes all pixels of an image; do it in batch_map=",
        "GaussianNoise": "noise on all pixels is not in the core; do it on the device or in map=",
        "JPEG": "compressing anew is not in the core; do it in map=",
    },
    children=children_of,
)
