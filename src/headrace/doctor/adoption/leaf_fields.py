"""Loader fields, as code, for the explained leaves of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import headrace as hr
from headrace.doctor.adoption.recipe import RecipePart
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.explain import GREY, MaskExplanation, PictureExplanation, PlaneExplanation, ValueExplanation
from headrace.doctor.explain.look import LiveTransform
from headrace.doctor.explain.samples import LeafExplanation

_EXACT = {
    None: None,
    "triangle": None,
    "nearest-exact": "nearest",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
    "linear": "linear",
}
"""Filters of the Loader: the value of `Image(filter=)`."""
_BYTE = 255.0
_HALF_LEVEL = 0.5 / _BYTE
_TOLD = 1e-4
"""Difference of a mean or standard deviation that is invisible in pixels."""
_OF_LAYOUT = {"CHW": "", "HWC": ".permute(0, 2, 3, 1)", "HW": "[:, 0]"}
"""Code that converts a batch [N, C, H, W] to the leaf's layout."""


class UnexplainedError(Exception):
    """Reason in words why the Loader cannot make a leaf."""


@dataclass(frozen=True)
class MadeField:
    """Field that makes a leaf of pixels."""

    kind: str
    """Class of the field: `Image`, `Mask` or `Depth`."""
    arguments: tuple[str, ...]
    code: str
    """The leaf as an expression of `batch`."""
    size: tuple[int, int]
    """Height and width of the leaf."""
    parts: list[RecipePart] = field(default_factory=list)

    @property
    def is_image(self) -> bool:
        """True if it may have its own view."""
        return self.kind == "Image"

    def field(self, more: Sequence[str] = ()) -> str:
        return f"hr.{self.kind}({', '.join([*self.arguments, *more])})"


def values_of(by: ValueExplanation, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return the values of all samples by the explanation of some.

    Raises:
        UnexplainedError: No field makes values of this kind.
    """
    if by.kind == "index":
        return list(range(max(map(len, columns.values()), default=0)))
    if by.column is None or by.kind not in ("equal", "affixed", "class", "affine"):
        raise UnexplainedError(f"the Loader has no field for what is {by.kind}")
    its = [getattr(each, "item", lambda each=each: each)() for each in columns[by.column]]
    if by.kind == "affixed":
        return [f"{by.prefix}{each}{by.suffix}" for each in its]
    if by.kind == "class":
        ranks = {each: rank for rank, each in enumerate(sorted(set(its)))}
        return [ranks[each] for each in its]
    return [by.scale * each + by.shift for each in its] if by.kind == "affine" else its


def pixel_field(
    name: str, column: str, leaf: LeafExplanation, by: PictureExplanation | MaskExplanation | PlaneExplanation
) -> MadeField:
    """Return the field `name` of a leaf from a column of files.

    Raises:
        UnexplainedError: No field makes it.
    """
    shape = leaf.seen[0].leaf.shape
    size = (shape[1], shape[2]) if by.layout == "CHW" else (shape[0], shape[1])
    if isinstance(by, MaskExplanation):
        return _mask(name, column, leaf, by, size)
    if isinstance(by, PlaneExplanation):
        return _plane(name, column, by, size)
    return _image(name, column, leaf, by, size)


def image_by_class(name: str, column: str, transform: LiveTransform, dtype: str, layout: str) -> MadeField:
    """Return the field of an image made by a known library's transform, with the dtype of the batch.

    Raises:
        UnexplainedError: The transform has another dtype.
    """
    image = evaluated(transform.image)
    if image.dtype != dtype:
        raise UnexplainedError(f"its values are {dtype}, where its transform makes {image.dtype}")
    given = transform.image.removeprefix("hr.Image(").removesuffix(")")
    arguments = (f"source={column!r}", *([given] if given else []), "exif=False")  # as Pillow's `open`
    return MadeField("Image", arguments, f"batch[{name!r}]" + _OF_LAYOUT[layout], (0, 0))


def _image(name: str, column: str, leaf: LeafExplanation, by: PictureExplanation, size: tuple[int, int]) -> MadeField:
    kind = leaf.seen[0].source.dtype
    if by.channels == (0,) and kind != np.uint8:
        return _depth(name, column, by, size)
    if kind != np.uint8:
        raise UnexplainedError(f"its file holds {kind}, in {len(by.channels)} channels")
    if sorted(by.channels) not in ([0, 1, 2], [0], [GREY]):
        raise UnexplainedError(f"it shows the channels {by.channels} of its file")
    arguments = [f"source={column!r}"]
    parts = []
    if by.filter in _EXACT:
        arguments += [] if _EXACT[by.filter] is None else [f"filter={_EXACT[by.filter]!r}"]
    else:
        parts.append(_other_filter(name, by.filter, "Image", "antialiased bilinear"))
    if leaf.decoding != "exif":
        arguments.append("exif=False")
    if len(by.channels) == 1:
        arguments.append('mode="L"')
    code = f"batch[{name!r}]"
    if leaf.seen[0].leaf.dtype != np.uint8:
        arguments.append('dtype="float32"')
        std = [1 / (_BYTE * scale) for scale in by.scale]
        mean = [-shift / (_BYTE * scale) for scale, shift in zip(by.scale, by.shift, strict=True)]
        if by.channels == (2, 1, 0):
            std, mean = std[::-1], mean[::-1]
        if not np.allclose(std, 1, atol=_HALF_LEVEL) or not np.allclose(mean, 0, atol=_HALF_LEVEL):
            arguments.append(f"normalize={_normalize(mean, std)}")
        code += ".double()" if leaf.seen[0].leaf.dtype == np.float64 else ""
    elif not np.allclose(by.scale, 1, atol=1e-2) or not np.allclose(by.shift, 0, atol=1):
        raise UnexplainedError("its bytes are scaled")
    if by.channels == (2, 1, 0):
        code += ".flip(1)"
    return MadeField("Image", tuple(arguments), code + _OF_LAYOUT[by.layout], size, parts)


def _normalize(mean: Sequence[float], std: Sequence[float]) -> str:
    is_usual = np.allclose(mean, hr.IMAGENET.mean, atol=1e-3) and np.allclose(std, hr.IMAGENET.std, atol=1e-3)
    return "hr.IMAGENET" if is_usual else f"hr.Normalize({_rounded(mean)}, {_rounded(std)})"


def _depth(name: str, column: str, by: PictureExplanation, size: tuple[int, int]) -> MadeField:
    if by.filter not in (None, "nearest-exact") or not np.allclose(by.shift, 0, atol=1e-3 * by.scale[0]):
        raise UnexplainedError(f"its values are resampled by {by.filter!r}, and shifted by {by.shift[0]:.4g}")
    arguments = (repr(float(f"{by.scale[0]:.6g}")), f"source={column!r}", "valid=False")
    return MadeField("Depth", arguments, f"batch[{name!r}]" + _OF_LAYOUT[by.layout], size)


def _plane(name: str, column: str, by: PlaneExplanation, size: tuple[int, int]) -> MadeField:
    parts = []
    if by.filter not in (None, "nearest-exact"):
        parts.append(_other_filter(name, by.filter, "Depth", "nearest-exact"))
    arguments = [f"source={column!r}"]
    normal = by.normalisation
    if normal is not None:
        if normal.is_of_window:
            note = "the script's quantiles are of the window, the Loader's of the whole file"
            parts.append(RecipePart(name, "hr.Quantiles()", "differs", note))
        arguments.append(f"normalize=hr.Quantiles({normal.low}, {normal.high}, range={normal.range})")
    elif abs(by.shift) > 1e-3 * abs(by.scale) or by.fill not in (None, 0):
        raise UnexplainedError(f"it is shifted by {by.shift:.4g}, and holds {by.fill} where no value is")
    scale = float(f"{by.scale:.6g}")
    near = None if by.near is not None and by.near.least <= 0 else by.near  # 0 is invalid anyway
    bounds = {which: bound.roundest(scale) for which, bound in (("near", near), ("far", by.far)) if bound is not None}
    if bounds:
        seen = ", ".join(f"{which}={value}" for which, value in bounds.items())
        parts.append(RecipePart(name, seen, "check", "the bounds lie between values that were seen"))
    arguments += [f"{which}={value!r}" for which, value in bounds.items()]
    arguments += [] if by.is_validity else ["valid=False"]
    code = f"batch[{name + '_valid'!r}]" if by.is_validity else f"batch[{name!r}]"
    return MadeField("Depth", (repr(scale), *arguments), code + _OF_LAYOUT[by.layout], size, parts)


def is_filled_as_loader(by: PictureExplanation | MaskExplanation | PlaneExplanation) -> bool:
    """Return True if values outside the file equal the Loader's padding: black, or any one class."""
    if isinstance(by, PictureExplanation):
        return by.fill is not None and np.allclose(by.fill, by.shift, atol=0.5 * min(map(abs, by.scale)))
    return isinstance(by, MaskExplanation)


def _mask(name: str, column: str, leaf: LeafExplanation, by: MaskExplanation, size: tuple[int, int]) -> MadeField:
    if leaf.decoding == "RGB":
        raise UnexplainedError("its classes are colours, which the Loader does not look up")
    parts = []
    if by.filter not in (None, "nearest-exact"):
        parts.append(_other_filter(name, by.filter, "Mask", "nearest-exact"))
    changed = {old: int(new) for old, new in by.table.items() if old != new}
    dtype = leaf.seen[0].leaf.dtype
    arguments = [f"source={column!r}", f"dtype={'uint8' if dtype == np.uint8 else 'int64'!r}"]
    arguments += [f"remap={changed!r}"] if changed else []
    arguments += [] if by.fill in (None, 255) else [f"ignore={int(by.fill)}"]
    code = f"batch[{name!r}]" + {"HW": "", "CHW": "[:, None]", "HWC": "[..., None]"}[by.layout]
    code += {"f": ".float()" if dtype == np.float32 else ".double()", "b": ".bool()"}.get(dtype.kind, "")
    return MadeField("Mask", tuple(arguments), code, size, parts)


def _other_filter(name: str, filter: str | None, kind: str, ours: str) -> RecipePart:
    """Return a part about a filter that the Loader lacks. In images, fine detail then differs by many levels."""
    note = f"the script resamples by {filter!r}, the Loader by {ours}"
    return RecipePart(name, f"hr.{kind}()", "check" if kind == "Image" else "differs", note)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers rounded to the digits that are visible in pixels."""
    return tuple(
        next((one for one in (round(value, digits) for digits in range(1, 6)) if abs(value - one) < _TOLD), value)
        for value in map(float, values)
    )
