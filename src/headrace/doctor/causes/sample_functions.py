"""Costly functions in `__getitem__` and collate, each with its line and cost, and the table of their counterparts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from ..measure import BOUND, Finding, LoaderProduction, RankView, SampleFunction, TrainerView
from ..quantities import duration, percent
from ..session.after_run import AdoptedPart
from ..session.model import Session
from ..simulate import RecordedRun, StageChange, predicted, recorded
from .case import name_of

SAMPLE_FUNCTION = "sample-function"
LEAST = 0.08
"""Reporting threshold: share of making a batch that a function takes."""
LEAST_OWN = 0.12
"""Reporting threshold for the script's own Python, which is the time of its lines minus measured calls."""
MOST = 4
"""Maximum number of findings."""
MOST_LINES = 3
"""Maximum number of a function's lines in a finding."""
OF_A_BATCH = " of making a batch"
IN_MAP = (
    "No field, view or augmentation of Headrace does this: headrace.Loader takes it as map= (map_workers= for Python "
    "that holds the GIL), and leaves the rest to its core."
)
IN_NUMPY = "Look at whether numpy or torch does it for a whole array at once."
ADOPTED = ("exact", "differs", "check")
"""Certainties of parts that the Loader takes over itself."""

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


def function_findings(session: Session, view: TrainerView, ranks: Sequence[RankView]) -> Iterator[Finding]:
    """Yield the costly functions of the loader that steps wait for most, heaviest first.

    The weight is the share of a step that is saved without the function, from a simulation of the recorded work: 5 %
    or more.
    """
    if (view.wait_share or 0.0) < BOUND:
        return
    making = next((one for one in view.batch_production if one.loader in view.training.fed), None)
    found = [] if making is None else [one for one in making.functions if _is_costly(one)][:MOST]
    if making is None or not found:
        return
    run = None if making.threads else recorded(session, view, ranks)
    for function in found:
        counterpart = counterpart_of(function)
        weight, evidence = _price(view, run, making, function)
        if weight < BOUND:
            continue
        yield Finding(
            code=SAMPLE_FUNCTION,
            weight=weight,
            text=f"{_said(function)} {percent(function.share)}{OF_A_BATCH}"
            f"{f'; {counterpart.code} {counterpart.does}' if counterpart else ''}.",
            evidence=evidence,
            advice=_advice(session, function, counterpart),
        )


def in_short(finding: Finding) -> str:
    """Return the sentence on a function and its share, without the replacement."""
    return f"{finding.text.partition(OF_A_BATCH)[0]}{OF_A_BATCH}."


def _is_costly(function: SampleFunction) -> bool:
    """Return True if a function is worth a finding. Decoding and collation have their own findings."""
    if function.category == "decode":
        return function.share >= LEAST and counterpart_of(function) is not None
    if function.category in ("getitem", "collate"):
        return function.share >= LEAST_OWN and bool(function.places)
    return function.share >= LEAST


def _said(function: SampleFunction) -> str:
    """Return the start of a sentence: the function, its lines and the verb."""
    library = f" ({function.library})" if function.library else ""
    where = at_lines(function.places)
    if function.category == "getitem":
        return (
            f"The script's own Python in {function.name}{', most of it' if len(function.places) > 1 else ''}{where} is"
        )
    if function.category == "decode":
        return f"Decoding 16-bit images ({function.name}){where} is"
    return f"{function.name}{library}{where} is"


def at_lines(places: Sequence[str]) -> str:
    """Return text such as ` at train.py:48 and 49` for the lines of one file; empty without lines."""
    parts = [place.rsplit(":", 2) for place in places[:MOST_LINES]]
    if not parts:
        return ""
    lines = sorted({int(line) for file, line, _ in parts if file == parts[0][0] and line.isdigit()})
    return f" at {os.path.basename(parts[0][0])}:{' and '.join(map(str, lines))}"


def _without(making: LoaderProduction, function: SampleFunction) -> dict[str, StageChange]:
    """Return the changes to the stages of making a batch that remove a function."""
    wholes = {name_of(stage): stage.share for stage in making.stages}
    return {
        name: StageChange().scaled(max(1 - share / wholes[name], 0.0))
        for name, share in function.inside.items()
        if wholes.get(name)
    }


def _step_without_us(run: RecordedRun, making: LoaderProduction, function: SampleFunction) -> float:
    return predicted(run, replace(run.setup, stages={**run.setup.stages, **_without(making, function)})).step_us


def _price(
    view: TrainerView, run: RecordedRun | None, making: LoaderProduction, function: SampleFunction
) -> tuple[float, str]:
    """Return the share of a step that is saved without a function, and the evidence."""
    said = f"{duration(function.wall_us)} a sample"
    if run is None:
        return function.share * (view.wait_share or 0.0), said
    step_us = _step_without_us(run, making, function)
    said += (
        f"; without it a {view.training.unit} would take {duration(step_us)} in place of {duration(run.observed_us)}"
    )
    return max(1 - step_us / run.observed_us, 0.0), said


def _advice(session: Session, function: SampleFunction, counterpart: Counterpart | None) -> str:
    """Return the function's replacement: the remedy `loader` if it has one, else the counterpart."""
    trial = session.loader_trial
    part = None if trial is None else _part_of(trial.parts, function)
    if part is not None and part.becomes:
        return f"The remedy `loader` has {part.becomes} in its place."
    own = f" {IN_NUMPY}" if function.category in ("getitem", "collate") else ""
    if counterpart is None or (part is not None and part.certainty == "python"):
        return f"{IN_MAP}{own}"
    return f"hr.Loader (import headrace as hr) has {counterpart.code} in its place."


def _part_of(parts: Sequence[AdoptedPart], function: SampleFunction) -> AdoptedPart | None:
    """Return the Loader part that replaces a function: same class name, else a part on its line with its name."""
    named = [one for one in parts if one.part.partition("(")[0] == function.name and one.certainty in ADOPTED]
    lines = ["/" + ":".join(place.rsplit(":", 2)[:2]) for place in function.places]
    word = function.name.split()[-1].rpartition(".")[2]
    there = [one for one in parts if one.place and any(line.endswith(f"/{one.place}") for line in lines)]
    return next(iter([*named, *(one for one in there if word in one.part)]), None)
