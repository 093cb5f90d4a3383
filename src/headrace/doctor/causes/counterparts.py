"""Table of Headrace's counterparts of functions that scripts call for each sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from ..measure import SampleFunction

FLOATS = ("float16", "float32", "float64", "bfloat16")
DEEP_MODES = ("I", "F")
"""Prefixes of Pillow modes with more than eight bits per pixel."""
IN_THE_CORE = "does it in Headrace's core"
COLOURS = (3, 4)
SAME_NAME = (
    *("AugMix", "AutoAugment", "ElasticTransform", "RandAugment", "RandomAdjustSharpness", "RandomAutocontrast"),
    *("RandomChannelPermutation", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomInvert"),
    *("RandomPerspective", "RandomPosterize", "RandomSolarize", "TrivialAugmentWide"),
)
"""Library transforms with a Headrace augmentation of the same name."""


@dataclass(frozen=True)
class Counterpart:
    """Headrace replacement for a set of functions."""

    patterns: str
    """Functions as in `SampleFunction`: `category:name, name; category:name`, with `*` as a wildcard."""
    code: str
    """Code of the replacement, in a script with `import headrace as hr`."""
    does: str = IN_THE_CORE
    """Rest of a sentence that begins with the code."""
    when: Callable[[SampleFunction], bool] = lambda function: True

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Patterns of the form `category:name`."""
        groups = (group.split(":", 1) for group in self.patterns.split("; "))
        return tuple(f"{category}:{name}" for category, names in groups for name in names.split(", "))

    def is_for(self, function: SampleFunction) -> bool:
        """Return True if the replacement does this function's work, given the function's arguments."""
        name = f"{function.category}:{function.name}"
        return any(fnmatchcase(name, one) for one in self.functions) and self.when(function)


def is_float(function: SampleFunction) -> bool:
    """Return True if the function received floating-point numbers."""
    return function.given.get("dtype") in FLOATS


def is_one_channel(function: SampleFunction) -> bool:
    """Return True if the function received data without colours, such as a depth map or its valid-pixel mask."""
    shape = function.given.get("shape")
    return isinstance(shape, list) and not (len(shape) >= 3 and (shape[0] in COLOURS or shape[-1] in COLOURS))


def is_picture(function: SampleFunction) -> bool:
    """Return True if the function received a Pillow image or an array of two or more dimensions."""
    shape = function.given.get("shape")
    return "mode" in function.given or (isinstance(shape, list) and len(shape) >= 2 and math.prod(shape) > 1)


def is_deep(function: SampleFunction) -> bool:
    """Return True if the function decodes more than eight bits per pixel."""
    return str(function.given.get("mode", "")).startswith(DEEP_MODES) or function.given.get("dtype") == "uint16"


def is_blur(function: SampleFunction) -> bool:
    """Return True if the function is a Pillow filter that blurs."""
    return "Blur" in str(function.given.get("filter", ""))


COUNTERPARTS = (
    Counterpart(
        "call:numpy.percentile, numpy.quantile, numpy.nanpercentile, numpy.nanquantile, torch.quantile, "
        "torch.nanquantile, torch.Tensor.quantile, torch.Tensor.nanquantile, torch.kthvalue, torch.Tensor.kthvalue",
        "hr.Depth(normalize=hr.Quantiles(…))",
        when=is_one_channel,
    ),
    Counterpart(
        "decode:Pillow load*, OpenCV im*",
        "hr.Depth(scale=…)",
        "decodes 16-bit images in Headrace's core",
        when=is_deep,
    ),
    Counterpart(
        "call:torch.nn.functional.interpolate, skimage.transform.resize, skimage.transform.rescale, "
        "scipy.ndimage.zoom; transform:torchvision resize, OpenCV resize, Resize",
        "view=hr.Resize(…)",
        "resizes bytes as it decodes, before any of them is a float",
        when=is_float,
    ),
    Counterpart(
        "transform:*RandomResizedCrop*, RandomSizedCrop, torchvision resized_crop",
        "view=hr.RandomResizedCrop(…)",
        "decodes only the window, in Headrace's core",
    ),
    Counterpart(
        "transform:Resize, SmallestMaxSize, LongestMaxSize, ResizeKeepRatio, Pillow resize, Pillow thumbnail, "
        "Pillow reduce, OpenCV resize, OpenCV pyrDown, torchvision resize; call:skimage.transform.resize, "
        "torch.nn.functional.interpolate, PIL.ImageOps.fit",
        "view=hr.Resize(…)",
        "resizes as it decodes, in Headrace's core",
    ),
    Counterpart("transform:RandomScale, ScaleJitter", "view=hr.RandomScale(…)"),
    Counterpart("transform:RandomCrop*, Pillow crop, torchvision crop", "view=hr.RandomCrop(…)"),
    Counterpart("transform:CenterCrop*, torchvision center_crop", "view=hr.CenterCrop(…)"),
    Counterpart(
        "transform:Pad, PadIfNeeded, LetterBox, torchvision pad, OpenCV copyMakeBorder; call:PIL.ImageOps.pad",
        "view=hr.Letterbox(…)",
    ),
    Counterpart(
        "transform:ColorJitter, HueSaturationValue, RandomBrightnessContrast, RGBShift, torchvision adjust_*; "
        "call:PIL.ImageEnhance",
        "augment=hr.ColorJitter(…)",
    ),
    Counterpart("transform:RandomPhotometricDistort", "augment=hr.RandomPhotometricDistort(…)"),
    *(Counterpart(f"transform:{name}", f"augment=hr.{name}(…)") for name in SAME_NAME),
    Counterpart("transform:MixUp, Mixup", "batch=hr.MixUp(…)"),
    Counterpart("transform:CutMix", "batch=hr.CutMix(…)"),
    Counterpart(
        "transform:GaussianBlur, *gaussian_blur, OpenCV GaussianBlur; call:*gaussian_filter",
        "augment=hr.GaussianBlur(…)",
    ),
    Counterpart("transform:Pillow filter", "augment=hr.GaussianBlur(…)", when=is_blur),
    Counterpart(
        "transform:RandomRotation, Rotate, SafeRotate, torchvision rotate, Pillow rotate, OpenCV rotate, "
        "RandomRotate90; call:scipy.ndimage.rotate, skimage.transform.rotate, numpy.rot90, torch.rot90",
        "augment=hr.RandomRotation(…)",
    ),
    Counterpart(
        "transform:RandomAffine, Affine, ShiftScaleRotate, torchvision affine, OpenCV warpAffine; "
        "call:scipy.ndimage.affine_transform, scipy.ndimage.shift",
        "augment=hr.RandomAffine(…)",
    ),
    Counterpart(
        "transform:torchvision perspective, OpenCV warpPerspective, Perspective",
        "augment=hr.RandomPerspective(…)",
    ),
    Counterpart(
        "transform:RandomHorizontalFlip*, HorizontalFlip, torchvision hflip, torchvision horizontal_flip*, Pillow "
        "transpose, OpenCV flip; call:numpy.flip, numpy.fliplr, torch.flip, torch.Tensor.flip, PIL.ImageOps.mirror",
        "hr.RandomHorizontalFlip()",
        "among the views does it in Headrace's core",
    ),
    Counterpart(
        "transform:RandomVerticalFlip, VerticalFlip, torchvision vflip, torchvision vertical_flip*; "
        "call:numpy.flipud, PIL.ImageOps.flip",
        "hr.RandomVerticalFlip()",
        "among the views does it in Headrace's core",
    ),
    Counterpart("call:PIL.ImageOps.autocontrast", "augment=hr.RandomAutocontrast(p=1.0)"),
    Counterpart("call:PIL.ImageOps.equalize; transform:OpenCV equalizeHist", "augment=hr.RandomEqualize(p=1.0)"),
    Counterpart(
        "transform:ToTensor*, MaybeToTensor, MaybePILToTensor, PILToTensor, ToDtype, ToFloat, ToImage, "
        "ConvertImageDtype, Normalize, OpenCV normalize, torchvision to_tensor, torchvision normalize*, torchvision "
        "pil_to_tensor, torchvision to_dtype*, torchvision convert_image_dtype, torchvision to_image",
        'hr.Image(dtype="float32", normalize=hr.Normalize(…))',
        "casts and normalises in Headrace's core",
    ),
    Counterpart(
        "transform:Pillow convert, OpenCV cvtColor",
        'hr.Image(mode="RGB")',
        "decodes into this mode in Headrace's core",
    ),
    Counterpart(
        "call:numpy.array, numpy.asarray, numpy.ascontiguousarray, torch.from_numpy, torch.tensor, torch.as_tensor, "
        "numpy.frombuffer",
        "hr.Image()",
        "decodes into the tensor of the batch",
        when=is_picture,
    ),
    Counterpart("tokenise:*", "hr.Text(tokenizer, max_length=…)"),
    Counterpart(
        "call:json.*, pickle.*, pandas.*",
        "hr.Label(source=…)",
        "reads a column of the dataset, which is parsed once",
    ),
)
"""Counterparts in order of precedence: the first match counts."""


def counterpart_of(function: SampleFunction) -> Counterpart | None:
    """Return Headrace's counterpart of a function; None if there is none."""
    return next((one for one in COUNTERPARTS if one.is_for(function)), None)
