"""Headrace's counterparts of functions that scripts call for each sample, as one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..measure import SampleFunction

FLOATS = ("float16", "float32", "float64", "bfloat16")
DEEP_MODES = ("I", "F")
"""How modes of Pillow begin that hold more than eight bits a pixel."""
IN_THE_CORE = "does it in Headrace's core"
COLOURS = (3, 4)
SAME_NAME = (
    *("AugMix", "AutoAugment", "ElasticTransform", "RandAugment", "RandomAdjustSharpness", "RandomAutocontrast"),
    *("RandomChannelPermutation", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomInvert"),
    *("RandomPerspective", "RandomPosterize", "RandomSolarize", "TrivialAugmentWide"),
)
"""Transforms of libraries that an augmentation of Headrace has the name of."""


@dataclass(frozen=True)
class Counterpart:
    """What takes the place of functions."""

    functions: tuple[str, ...]
    """Patterns of `category:name`, as in `SampleFunction`."""
    code: str
    """In the words of a script that has `import headrace as hr`."""
    does: str = IN_THE_CORE
    """The rest of a sentence that begins with the code."""
    when: Callable[[SampleFunction], bool] = lambda function: True

    def is_for(self, function: SampleFunction) -> bool:
        """Return whether it does this function's work, for what the function was given."""
        name = f"{function.category}:{function.name}"
        return any(fnmatchcase(name, one) for one in self.functions) and self.when(function)


def is_float(function: SampleFunction) -> bool:
    """Return whether it was given floating-point numbers."""
    return function.given.get("dtype") in FLOATS


def is_one_channel(function: SampleFunction) -> bool:
    """Return whether it was given numbers without colours, such as a depth map or its valid pixels."""
    shape = function.given.get("shape")
    return isinstance(shape, list) and not (len(shape) >= 3 and (shape[0] in COLOURS or shape[-1] in COLOURS))


def is_picture(function: SampleFunction) -> bool:
    """Return whether it was given a picture: one of Pillow's, or an array of two dimensions and more."""
    shape = function.given.get("shape")
    return "mode" in function.given or (isinstance(shape, list) and len(shape) >= 2 and math.prod(shape) > 1)


def is_deep(function: SampleFunction) -> bool:
    """Return whether what it decodes has more than eight bits a pixel."""
    return str(function.given.get("mode", "")).startswith(DEEP_MODES) or function.given.get("dtype") == "uint16"


def is_blur(function: SampleFunction) -> bool:
    """Return whether it is a filter of Pillow's that blurs."""
    return "Blur" in str(function.given.get("filter", ""))


COUNTERPARTS = (
    Counterpart(
        (
            *("call:numpy.percentile", "call:numpy.quantile", "call:numpy.nanpercentile", "call:numpy.nanquantile"),
            *("call:torch.quantile", "call:torch.nanquantile", "call:torch.Tensor.quantile"),
            *("call:torch.Tensor.nanquantile", "call:torch.kthvalue", "call:torch.Tensor.kthvalue"),
        ),
        "hr.Depth(normalize=hr.Quantiles(…))",
        when=is_one_channel,
    ),
    Counterpart(
        ("decode:Pillow load*", "decode:OpenCV im*"),
        "hr.Depth(scale=…)",
        "decodes 16-bit images in Headrace's core",
        when=is_deep,
    ),
    Counterpart(
        (
            *(
                "call:torch.nn.functional.interpolate",
                "call:skimage.transform.resize",
                "call:skimage.transform.rescale",
            ),
            *("call:scipy.ndimage.zoom", "transform:torchvision resize", "transform:OpenCV resize", "transform:Resize"),
        ),
        "view=hr.Resize(…)",
        "resizes bytes as it decodes, before any of them is a float",
        when=is_float,
    ),
    Counterpart(
        ("transform:*RandomResizedCrop*", "transform:RandomSizedCrop", "transform:torchvision resized_crop"),
        "view=hr.RandomResizedCrop(…)",
        "decodes only the window, in Headrace's core",
    ),
    Counterpart(
        (
            *("transform:Resize", "transform:SmallestMaxSize", "transform:LongestMaxSize", "transform:ResizeKeepRatio"),
            *("transform:Pillow resize", "transform:Pillow thumbnail", "transform:Pillow reduce"),
            *("transform:OpenCV resize", "transform:OpenCV pyrDown", "transform:torchvision resize"),
            *("call:skimage.transform.resize", "call:torch.nn.functional.interpolate", "call:PIL.ImageOps.fit"),
        ),
        "view=hr.Resize(…)",
        "resizes as it decodes, in Headrace's core",
    ),
    Counterpart(("transform:RandomScale", "transform:ScaleJitter"), "view=hr.RandomScale(…)"),
    Counterpart(
        ("transform:RandomCrop*", "transform:Pillow crop", "transform:torchvision crop"), "view=hr.RandomCrop(…)"
    ),
    Counterpart(("transform:CenterCrop*", "transform:torchvision center_crop"), "view=hr.CenterCrop(…)"),
    Counterpart(
        (
            *("transform:Pad", "transform:PadIfNeeded", "transform:LetterBox", "transform:torchvision pad"),
            *("transform:OpenCV copyMakeBorder", "call:PIL.ImageOps.pad"),
        ),
        "view=hr.Letterbox(…)",
    ),
    Counterpart(
        (
            *("transform:ColorJitter", "transform:HueSaturationValue", "transform:RandomBrightnessContrast"),
            *("transform:RGBShift", "transform:torchvision adjust_*", "call:PIL.ImageEnhance"),
        ),
        "augment=hr.ColorJitter(…)",
    ),
    Counterpart(("transform:RandomPhotometricDistort",), "augment=hr.RandomPhotometricDistort(…)"),
    *(Counterpart((f"transform:{name}",), f"augment=hr.{name}(…)") for name in SAME_NAME),
    Counterpart(("transform:MixUp", "transform:Mixup"), "batch=hr.MixUp(…)"),
    Counterpart(("transform:CutMix",), "batch=hr.CutMix(…)"),
    Counterpart(
        (
            "transform:GaussianBlur",
            "transform:*gaussian_blur",
            "transform:OpenCV GaussianBlur",
            "call:*gaussian_filter",
        ),
        "augment=hr.GaussianBlur(…)",
    ),
    Counterpart(("transform:Pillow filter",), "augment=hr.GaussianBlur(…)", when=is_blur),
    Counterpart(
        (
            *("transform:RandomRotation", "transform:Rotate", "transform:SafeRotate", "transform:torchvision rotate"),
            *("transform:Pillow rotate", "transform:OpenCV rotate", "call:scipy.ndimage.rotate"),
            *("call:skimage.transform.rotate", "call:numpy.rot90", "call:torch.rot90", "transform:RandomRotate90"),
        ),
        "augment=hr.RandomRotation(…)",
    ),
    Counterpart(
        (
            *(
                "transform:RandomAffine",
                "transform:Affine",
                "transform:ShiftScaleRotate",
                "transform:torchvision affine",
            ),
            *("transform:OpenCV warpAffine", "call:scipy.ndimage.affine_transform", "call:scipy.ndimage.shift"),
        ),
        "augment=hr.RandomAffine(…)",
    ),
    Counterpart(
        ("transform:torchvision perspective", "transform:OpenCV warpPerspective", "transform:Perspective"),
        "augment=hr.RandomPerspective(…)",
    ),
    Counterpart(
        (
            *("transform:RandomHorizontalFlip*", "transform:HorizontalFlip", "transform:torchvision hflip"),
            *("transform:torchvision horizontal_flip*", "transform:Pillow transpose", "transform:OpenCV flip"),
            *("call:numpy.flip", "call:numpy.fliplr", "call:torch.flip", "call:torch.Tensor.flip"),
            "call:PIL.ImageOps.mirror",
        ),
        "hr.RandomHorizontalFlip()",
        "among the views does it in Headrace's core",
    ),
    Counterpart(
        (
            *("transform:RandomVerticalFlip", "transform:VerticalFlip", "transform:torchvision vflip"),
            *("transform:torchvision vertical_flip*", "call:numpy.flipud", "call:PIL.ImageOps.flip"),
        ),
        "hr.RandomVerticalFlip()",
        "among the views does it in Headrace's core",
    ),
    Counterpart(("call:PIL.ImageOps.autocontrast",), "augment=hr.RandomAutocontrast(p=1.0)"),
    Counterpart(
        ("call:PIL.ImageOps.equalize", "transform:OpenCV equalizeHist"),
        "augment=hr.RandomEqualize(p=1.0)",
    ),
    Counterpart(
        (
            *("transform:ToTensor*", "transform:MaybeToTensor", "transform:MaybePILToTensor", "transform:PILToTensor"),
            *("transform:ToDtype", "transform:ToFloat", "transform:ToImage", "transform:ConvertImageDtype"),
            *("transform:Normalize", "transform:OpenCV normalize", "transform:torchvision to_tensor"),
            *(
                "transform:torchvision normalize*",
                "transform:torchvision pil_to_tensor",
                "transform:torchvision to_dtype*",
            ),
            *("transform:torchvision convert_image_dtype", "transform:torchvision to_image"),
        ),
        'hr.Image(dtype="float32", normalize=hr.Normalize(…))',
        "casts and normalises in Headrace's core",
    ),
    Counterpart(
        ("transform:Pillow convert", "transform:OpenCV cvtColor"),
        'hr.Image(mode="RGB")',
        "decodes into this mode in Headrace's core",
    ),
    Counterpart(
        (
            *("call:numpy.array", "call:numpy.asarray", "call:numpy.ascontiguousarray", "call:torch.from_numpy"),
            *("call:torch.tensor", "call:torch.as_tensor", "call:numpy.frombuffer"),
        ),
        "hr.Image()",
        "decodes into the tensor of the batch",
        when=is_picture,
    ),
    Counterpart(("tokenise:*",), "hr.Text(tokenizer, max_length=…)"),
    Counterpart(
        ("call:json.*", "call:pickle.*", "call:pandas.*"),
        "hr.Label(source=…)",
        "reads a column of the dataset, which is parsed once",
    ),
)
"""The first that is for a function counts."""


def counterpart_of(function: SampleFunction) -> Counterpart | None:
    """Return what in Headrace does a function's work; None where nothing does."""
    return next((one for one in COUNTERPARTS if one.is_for(function)), None)
