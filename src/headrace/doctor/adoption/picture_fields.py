"""Fields, view and augmentation of a picture: what its steps in the script become.

Steps that a library's transform would do are put as such, so that `headrace.from_torchvision` and its kin translate all
of them together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import headrace as hr

from .random_crops import random_scale, with_paddings
from .recipe import Certainty, RecipePart
from .sample_values import Picture, PictureStep, Quantile, Validity, is_known
from .stand_ins import DtypeStandIn, FunctionStandIn, StandIn, made

_GEOMETRY = ("view", "augment")
_TO_UNIT = ("ToTensor", "MaybeToTensor", "ToDtype", "ConvertImageDtype", "ToFloat", "Normalize")
_CLOSE = 1e-6
_IGNORED = 255
"""What Mask pads with by itself."""


@dataclass
class PictureRecipe:
    """What a picture becomes: arguments of its field, and the view and augmentations that it follows."""

    kind: str
    """`Image`, `Mask` or `Depth`."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Of the field, as Python."""
    view: list[str] = field(default_factory=list)
    augment: list[str] = field(default_factory=list)
    parts: list[RecipePart] = field(default_factory=list)

    def code(self, column: str, name: str) -> str:
        """Return the field as Python. `column` is named where the field is called otherwise."""
        source = {} if column == name else {"source": repr(column)}
        return f"hr.{self.kind}({', '.join(f'{key}={value}' for key, value in (source | self.arguments).items())})"


def picture_recipe(
    picture: Picture, kind: str, dtype: str | None, validity: Validity | None = None, seen: Sequence[int] = ()
) -> PictureRecipe:
    """Return what a picture becomes as a field of `kind`, whose values in the batch are of `dtype`.

    `seen`: short sides of files that were decoded.
    """
    found = PictureRecipe(kind)
    scales = [(step, random_scale(step, seen)) for step in picture.steps if step.kind == "scale"]
    unknown = [step for step, made_of in scales if made_of is None or len(scales) > 1]
    steps = [replace(step, kind="own") if step in unknown else step for step in picture.steps]
    translated = _translated(replace(picture, steps=tuple(steps)), kind)
    for step, part in translated.parts:
        found.parts.append(part_of(step, part))
    image = _arguments(translated.image)
    found.view, found.augment = translated.view, translated.augment
    if scales and not unknown and (scale := scales[0][1]) is not None:
        found.view = [scale[0], *found.view]  # a RandomScale comes first, which is all the same to flips before it
        found.parts.append(scale[1])
    if kind == "Image":
        found.arguments = {
            key: value for key, value in image.items() if key in ("mode", "filter", "dtype", "normalize")
        }
        found.arguments |= _values(picture, dtype, image)
        found.arguments["channels_last"] = "False"
        found.parts += [*_channels(picture), *_unknown_arithmetic(picture)]
        if any(step.kind == "exif" for step in picture.steps):
            found.arguments["exif"] = "True"
    elif kind == "Mask":
        found.augment = []
        found.arguments = {"dtype": repr(dtype)} if dtype in ("int64", "int32") else {}
        fills = [step.operand for step in with_paddings(picture.steps) if step.kind == "crop"]
        if fills and isinstance(fills[0], int) and fills[0] != _IGNORED:
            found.arguments["ignore"] = repr(fills[0])
        note = "pixels of a mask stay as they are stored; do this in map=, or in the loop"
        changes = [step for step in picture.steps if step.kind == "arithmetic"]
        found.parts += [RecipePart(step.text, step.place, "hr.Mask()", "check", note) for step in changes]
    else:
        found.augment = []
        found.arguments, parts = _depth(picture, validity)
        found.parts += parts
    return found


def part_of(step: PictureStep | None, part: Any) -> RecipePart:
    """Return a translated part as one of a recipe."""
    certainty: Certainty = "python" if part.becomes is None else "differs" if part.note else "exact"
    is_object = step is None or _is_object(step)
    text = part.part if step is None or is_object else step.text
    becomes = part.becomes or ""
    argument: Any = "view" if becomes.startswith("view") else "augment" if becomes.startswith("augment") else "fields"
    if not becomes:
        argument = "view"
    note = part.note if becomes or is_object else "the script does it in its own way: write it as a view, or in map="
    return RecipePart(text, "" if step is None else step.place, becomes, certainty, note, argument)


def _is_object(step: PictureStep) -> bool:
    """Tell whether a step is a transform's, and no call or statement of the script's."""
    return step.kind == "transform" and not isinstance(step.value, tuple)


# Translation.


@dataclass
class _Translated:
    image: str
    view: list[str]
    augment: list[str]
    parts: list[tuple[PictureStep | None, Any]]


def _translated(picture: Picture, kind: str) -> _Translated:
    """Translate a picture's steps by the library that most of them are of."""
    flat = [pair for step in with_paddings(picture.steps) for pair in _as_transforms(step, kind)]
    albumentations = any(_library(value) == "albumentations" for _, value in flat)
    values = [_in_albumentations(value) if albumentations else value for _, value in flat]
    # One after another, so that each part is known by its step. A pair of parts is read together.
    call = hr.from_albumentations if albumentations else hr.from_torchvision
    found = call(values, partial=True)
    keywords = {each.arg: each.value for each in _call_of(found.code).keywords}
    fields = keywords["fields"]
    assert isinstance(fields, ast.Dict)
    return _Translated(
        ast.unparse(fields.values[0]),
        _listed(keywords.get("view")),
        _listed(keywords.get("augment")),
        list(_with_steps(flat, found.parts)),
    )


def _with_steps(
    flat: Sequence[tuple[PictureStep, Any]], parts: Sequence[Any]
) -> Iterator[tuple[PictureStep | None, Any]]:
    """Yield each translated part with the step that it is of, as far as their texts tell."""
    steps = [step for step, _ in flat]
    places = {step.place for step in steps}
    for part in parts:
        step = next((one for one, value in flat if not _is_object(one) and repr(value) == part.part), None)
        only = next((one for one in steps if one.kind == "transform"), None) if len(places) else None
        yield step or only, part


def _call_of(arguments: str) -> ast.Call:
    call = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    return call


def _listed(node: ast.expr | None) -> list[str]:
    return [ast.unparse(one) for one in node.elts] if isinstance(node, ast.List) else []


def _arguments(call: str) -> dict[str, str]:
    return {str(each.arg): ast.unparse(each.value) for each in _call_of(call[call.index("(") + 1 : -1]).keywords}


def _library(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def _as_transforms(step: PictureStep, kind: str) -> Iterator[tuple[PictureStep, Any]]:
    """Yield a step as transforms of a library's; nothing for what only changes values or their type."""
    if step.kind == "transform":
        if isinstance(step.value, tuple):
            name, arguments, keywords = step.value
            known = is_known(arguments) and is_known([value for _, value in keywords])
            yield step, (_functional(name, arguments, dict(keywords)) if known else None) or _own(step)
        else:
            yield step, step.value
    elif step.kind == "resize":
        width, height = step.value if isinstance(step.value, list | tuple) else (step.value, step.value)
        yield step, made("torchvision.transforms", "Resize", size=[height, width], interpolation=_filter(step.operand))
    elif step.kind == "flip":
        name = "RandomHorizontalFlip" if step.value == "horizontal" else "RandomVerticalFlip"
        yield step, made("torchvision.transforms", name, p=float(step.operand))
    elif step.kind == "grey" and kind == "Image":
        yield step, made("torchvision.transforms", "Grayscale", num_output_channels=1)
    elif step.kind == "crop":
        size, pads = list(step.value), step.operand is not None
        arguments = {"padding": None, "pad_if_needed": pads, "fill": step.operand or 0, "padding_mode": "constant"}
        yield step, made("torchvision.transforms", "RandomCrop", size=size, **arguments)
    elif step.kind in ("own", "function", "pad"):
        yield step, _own(step)


def _filter(name: Any) -> str:
    opencv = {"inter_linear": "bilinear", "inter_area": "box", "inter_cubic": "bicubic", "inter_nearest": "nearest"}
    text = str(name).lower().rpartition(".")[2]
    return opencv.get(text, text)


def _own(step: PictureStep) -> FunctionStandIn:
    return FunctionStandIn(step.text, None, None)


def _functional(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> StandIn | None:
    """Return the transform that a function of torchvision's or torch's stands for."""
    first = arguments[0] if arguments else keywords.get("size", keywords.get("output_size"))
    kinds = {
        "center_crop": "CenterCrop",
        "to_tensor": "ToTensor",
        "pil_to_tensor": "PILToTensor",
        "to_image": "ToImage",
    }
    if name in kinds:
        return made("torchvision.transforms", kinds[name], **({"size": first} if first is not None else {}))
    if name in ("resize", "interpolate") and first is not None:
        mode = keywords.get("interpolation", keywords.get("mode", "bilinear" if name == "resize" else "nearest"))
        return made("torchvision.transforms", "Resize", size=first, interpolation=mode, max_size=None)
    if name in ("hflip", "horizontal_flip"):
        return made("torchvision.transforms", "RandomHorizontalFlip", p=1.0)
    if name == "normalize":
        mean, std = (*arguments, keywords.get("mean"), keywords.get("std"))[:2]
        return made("torchvision.transforms", "Normalize", mean=mean, std=std)
    if name in ("to_dtype", "convert_image_dtype"):
        dtype = DtypeStandIn("float32")
        return made("torchvision.transforms.v2", "ToDtype", dtype=dtype, scale=keywords.get("scale", True))
    return None


def _in_albumentations(value: Any) -> Any:
    """Return a transform of torchvision's that stands for a plain call as albumentations has it."""
    name = type(value).__name__
    if _library(value) != "torchvision":
        return value
    if name == "Resize":
        height, width = value.size
        return made("albumentations", "Resize", height=height, width=width, interpolation=1, p=1)
    if name == "RandomHorizontalFlip":
        return made("albumentations", "HorizontalFlip", p=value.p)
    return value


def gives_size(step: str) -> bool:
    """Tell whether a view gives pictures of one size."""
    return not step.startswith(("hr.RandomHorizontalFlip", "hr.RandomVerticalFlip")) and (
        not step.startswith("hr.Resize(") or step.startswith("hr.Resize((")
    )


# Values.


def _channels(picture: Picture) -> Iterator[RecipePart]:
    """Yield what is to check of the order and the number of channels."""
    swaps = [step for step in picture.steps if step.kind in ("bgr", "rgb")]
    if swaps and swaps[-1].kind == "bgr":
        note = "channels are blue, green, red in the script, and red, green, blue here: .flip(1), or train on these"
        yield RecipePart(swaps[-1].text, swaps[-1].place, "hr.Image()", "check", note)
    for step in picture.steps:
        if step.kind == "convert" and step.value not in ("RGB", "RGBX"):
            note = "pixels are RGB of 8 bits here; for others see Image(mode=) and Image(channels=)"
            yield RecipePart(step.text, step.place, "hr.Image()", "check", note)


def _unknown_arithmetic(picture: Picture) -> Iterator[RecipePart]:
    """Yield arithmetic with what is no number: drawn ones, or those that the script computes of the sample."""
    for step in picture.steps:
        if step.kind == "arithmetic" and _changed(np.array(1.0), np.array(0.0), step) is None:
            note = "normalize= takes numbers that are the same for all samples; write it in map="
            yield RecipePart(step.text, step.place, "", "python", note)


def _flat_names(value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _flat_names(one)
    elif isinstance(value, StandIn):
        yield type(value).__name__
        yield from _flat_names(vars(value).get("transforms"))


_IMAGENET = (hr.IMAGENET.mean, hr.IMAGENET.std)


def _values(picture: Picture, dtype: str | None, image: dict[str, str]) -> dict[str, str]:
    """Return dtype and normalisation of an image after the script's own arithmetic."""
    steps = 0
    factor: Any = np.array(1.0)
    offset: Any = np.array(0.0)
    cast = None
    for step in picture.steps:
        if step.kind == "transform":
            names = set(_flat_names(step.value)) | (
                {"ToTensor"} if isinstance(step.value, tuple) and step.value[0] == "to_tensor" else set()
            )
            if names & set(_TO_UNIT):
                factor, offset = np.array(1 / 255), np.array(0.0)
        elif step.kind == "arithmetic":
            changed = _changed(factor, offset, step)
            if changed is None:
                return {}
            factor, offset = changed
            steps += 1
        elif step.kind == "cast":
            cast = step.value
    if "normalize" in image:
        last = max(number for number, step in enumerate(picture.steps) if step.kind == "transform")
        return _after_normalize(image["normalize"], picture.steps[last + 1 :])
    if not (steps or ((cast or "").startswith("float") and dtype == "float32")):
        return {}
    if dtype not in (None, "float32", "float16", "bfloat16"):
        return {}
    if steps == 0 and "dtype" in image:
        return {}
    std, mean = 1 / (255 * factor), -offset / (255 * factor)
    given = {"dtype": repr(dtype or "float32")}
    if np.allclose(std, 1, atol=_CLOSE) and np.allclose(mean, 0, atol=_CLOSE):
        return given
    return {**given, "normalize": _normalize(mean, std)}


def _after_normalize(code: str, steps: Sequence[PictureStep]) -> dict[str, str]:
    """Return the normalisation and the arithmetic that the script does behind it as one."""
    factor, offset = np.array(1.0), np.array(0.0)
    arithmetic = [step for step in steps if step.kind == "arithmetic"]
    for step in arithmetic:
        factor, offset = _changed(factor, offset, step) or (np.array(0.0), offset)
    call = ast.parse(code, mode="eval").body
    given = [ast.literal_eval(one) for one in call.args] if isinstance(call, ast.Call) else [*_IMAGENET]
    if not arithmetic or len(given) != 2 or not np.all(factor):
        return {}
    std = np.asarray(given[1]) / factor
    return {"normalize": _normalize(np.asarray(given[0]) - offset * std, std)}


def _changed(factor: Any, offset: Any, step: PictureStep) -> tuple[Any, Any] | None:
    """Return factor and offset after one step of arithmetic with numbers; None of any other."""
    try:
        number = np.asarray(step.operand, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        return None
    number = number[0] if number.size == 1 else number
    if step.value == "+":
        return factor, offset + number
    if step.value == "-":
        return factor, offset - number
    if step.value == "*":
        return factor * number, offset * number
    if step.value == "/" and np.all(number):
        return factor / number, offset / number
    return None


def _normalize(mean: Any, std: Any) -> str:
    means, stds = (np.broadcast_to(np.ravel(values) + 0.0, 3).tolist() for values in (mean, std))  # no -0.0
    if np.allclose(means, hr.IMAGENET.mean, atol=_CLOSE) and np.allclose(stds, hr.IMAGENET.std, atol=_CLOSE):
        return "hr.IMAGENET"
    texts = ["(" + ", ".join(f"{float(f'{value:.7g}')!r}" for value in values) + ")" for values in (means, stds)]
    return f"hr.Normalize({texts[0]}, {texts[1]})"


def _depth(picture: Picture, validity: Validity | None) -> tuple[dict[str, str], list[RecipePart]]:
    """Return the arguments of Depth: scale, bounds of what is valid, and quantiles that normalise it."""
    factor: Any = np.array(1.0)
    offset: Any = np.array(0.0)
    scale = None
    levels: set[float] = set()
    place = ""
    texts: list[str] = []
    for step in picture.steps:
        if step.kind != "arithmetic":
            continue
        if isinstance(step.operand, Quantile):
            if scale is None:
                scale, factor, offset = float(np.ravel(factor)[0]), np.array(1.0), np.array(0.0)
            levels.update(step.operand.levels)
            place, texts = place or step.place, [*texts, step.text]
        elif (changed := _changed(factor, offset, step)) is not None:
            factor, offset = changed
    found = {}
    if scale is None:
        scale = float(np.ravel(factor)[0])
    if scale != 1:
        found["scale"] = f"1 / {round(1 / scale)}" if abs(1 / scale - round(1 / scale)) < _CLOSE else repr(scale)
    if validity is not None and validity.near == 0:
        validity = replace(validity, near=None)  # 0 is what is not measured
    if validity is not None:
        found |= {
            name: repr(value) for name, value in (("near", validity.near), ("far", validity.far)) if value is not None
        }
    if len(levels) < 2:
        return found, []
    low, high = float(np.ravel(offset)[0]), float(np.ravel(factor + offset)[0])
    bounds = "" if (low, high) == (-1, 1) else f", range=({low!r}, {high!r})"
    found["normalize"] = f"hr.Quantiles({min(levels)!r}, {max(levels)!r}{bounds})"
    note = (
        "quantiles are those of the whole map's valid pixels here, before the view; elsewhere the batch holds `invalid`"
    )
    return found, [RecipePart(texts[-1], place, found["normalize"], "check", note)]
