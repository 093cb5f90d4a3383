"""Recipe of a Loader from what a look at the dataset's samples explains: fields, view, batch structure and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..explain import (
    GREY,
    Box,
    LeafPlacement,
    MaskExplanation,
    PictureExplanation,
    PlaneExplanation,
    ValueExplanation,
    explain_value,
)
from ..explain.samples import LeafExplanation, LeafPath, Look, LookedSample
from .recipe import RecipePart

Columns = Mapping[str, Sequence[Any]]
_EXACT = {None: None, "triangle": None, "nearest-exact": "nearest"}
"""Filters that the Loader has: the value of `Image(filter=)`."""
_BYTE = 255.0
_OF_LAYOUT = {"CHW": "", "HWC": ".permute(0, 2, 3, 1)", "HW": "[:, 0]"}
"""What turns a batch [N, C, H, W] into the leaf's layout."""


@dataclass
class ExplainedRecipe:
    """Arguments of a Loader as code, and the manifest that its dataset is opened by."""

    root: str | None = None
    """Archive that the manifest's paths lead into; None where they are absolute."""
    manifest: dict[str, list[Any]] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    view: str | None = None
    output: str = "batch"
    parts: list[RecipePart] = field(default_factory=list)
    left: list[LeafPath] = field(default_factory=list)
    """Leaves that stay the script's own Python."""


class UnexplainedError(Exception):
    """What keeps a leaf from being made by the Loader, in words."""


def explained_recipe(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> ExplainedRecipe:
    """Return the recipe of the leaves that the Loader makes. Others are in `left`, each with a part that says why."""
    samples, columns = look.samples, look.columns
    recipe, codes = ExplainedRecipe(), dict[LeafPath, str]()
    for path, leaf in explained.items():
        name = _field_name(path, leaf, recipe.fields)
        try:
            if isinstance(leaf.by, ValueExplanation):
                codes[path] = _value(recipe, name, leaf.by, columns)
            elif leaf.by is None:
                raise UnexplainedError("no file and no column that was seen makes these values")
            else:
                codes[path] = _pixels(recipe, name, leaf, leaf.by, samples, columns)
        except UnexplainedError as why:
            recipe.left.append(path)
            recipe.parts.append(RecipePart(_shown(path), "", "", "python", str(why), "output"))
    recipe.output = _structure(codes)
    return recipe


def _shown(path: LeafPath) -> str:
    return "batch" + "".join(f"[{part!r}]" for part in path)


def _field_name(path: LeafPath, leaf: LeafExplanation, taken: Mapping[str, str]) -> str:
    named = [part for part in path if isinstance(part, str) and part.isidentifier()]
    kinds = {"PictureExplanation": "image", "MaskExplanation": "mask", "PlaneExplanation": "depth"}
    kind = kinds.get(type(leaf.by).__name__, "value")
    name = named[-1] if named else kind
    return name if name not in taken else f"{name}_{len(taken)}"


def _structure(codes: Mapping[LeafPath, str]) -> str:
    """Return the expression of a batch whose leaves lie at these paths: dicts by texts, lists by numbers."""
    if () in codes:
        return codes[()]
    inner: dict[str | int, dict[LeafPath, str]] = {}
    for path, code in codes.items():
        inner.setdefault(path[0], {})[path[1:]] = code
    made = {key: _structure(each) for key, each in inner.items()}
    if all(isinstance(key, int) for key in made):
        return f"[{', '.join(made.values())}]"
    return "{" + ", ".join(f"{key!r}: {code}" for key, code in made.items()) + "}"


# Numbers and texts.


def _value(recipe: ExplainedRecipe, name: str, by: ValueExplanation, columns: Columns) -> str:
    if by.kind == "constant":
        return f"[{by.value!r}] * len(next(iter(batch.values())))"
    if by.kind == "index":
        values: list[Any] = list(range(max(map(len, columns.values()), default=0)))
    elif by.column is None or by.kind not in ("equal", "affixed", "class", "affine"):
        raise UnexplainedError(f"the Loader has no field for what is {by.kind}")
    else:
        values = _values_of(by, columns[by.column])
    recipe.manifest[name] = values
    is_number = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    recipe.fields[name] = "hr.Label()" if is_number else "hr.Raw()"
    return f"batch[{name!r}]"


def _values_of(by: ValueExplanation, column: Sequence[Any]) -> list[Any]:
    """Return the values of all samples that an explanation of some gives."""
    its = [getattr(each, "item", lambda each=each: each)() for each in column]
    if by.kind == "affixed":
        return [f"{by.prefix}{each}{by.suffix}" for each in its]
    if by.kind == "class":
        ranks = {each: rank for rank, each in enumerate(sorted(set(its)))}
        return [ranks[each] for each in its]
    return [by.scale * each + by.shift for each in its] if by.kind == "affine" else its


# Arrays of pixels.


def _pixels(
    recipe: ExplainedRecipe,
    name: str,
    leaf: LeafExplanation,
    by: PictureExplanation | MaskExplanation | PlaneExplanation,
    samples: Sequence[LookedSample],
    columns: Columns,
) -> str:
    if leaf.decoding == "RGB" and isinstance(by, MaskExplanation):
        raise UnexplainedError("its classes are colours, which the Loader does not look up")
    seen = leaf.seen
    view = view_code(
        by.placements,
        [each.leaf.shape for each in seen],
        [each.source.shape for each in seen],
        by.layout,
        is_random=leaf.is_random,
    )
    if view is None:
        raise UnexplainedError("its windows follow no view that the Loader has")
    if recipe.view not in (None, view):
        raise UnexplainedError(f"its view is {view}, that of the other fields {recipe.view}")
    root, names = _input_names(leaf.input or 0, samples, columns)
    if recipe.manifest and recipe.root != root and any("__path" in key for key in recipe.manifest):
        raise UnexplainedError(f"its files lie in {root or 'folders'}, those of the other fields in {recipe.root}")
    if isinstance(by, MaskExplanation):
        code, shown = _mask(recipe, name, leaf, by)
    elif isinstance(by, PlaneExplanation):
        code, shown = _plane(recipe, name, leaf, by)
    else:
        code, shown = _image(recipe, name, leaf, by)
    recipe.view, recipe.root = view, root
    recipe.manifest[f"{name}__path"] = names
    recipe.fields[name] = code
    return shown


def _input_names(number: int, samples: Sequence[LookedSample], columns: Columns) -> tuple[str | None, list[str]]:
    """Return the archive that an input of the samples lies in, or None, and its path or member for all samples."""
    places = [each.places[number] for each in samples]
    archives = {path for path, member in places if member is not None}
    if len(archives) > 1 or (archives and any(member is None for _, member in places)):
        raise UnexplainedError("its files lie in several archives")
    texts = [member if archives else path for path, member in places]
    if any(text is None for text in texts):
        raise UnexplainedError("it was decoded from bytes in memory, whose origin was not seen")
    found = explain_value(texts, [each.index for each in samples], columns)
    if found is None or found.kind not in ("equal", "affixed") or found.column is None:
        raise UnexplainedError(f"no sequence of the dataset names its files, such as {texts[0]!r}")
    return next(iter(archives), None), [str(each) for each in _values_of(found, columns[found.column])]


def _image(recipe: ExplainedRecipe, name: str, leaf: LeafExplanation, by: PictureExplanation) -> tuple[str, str]:
    """Return the code of the field, and of the leaf as the batch has it."""
    if by.is_scaled_by_sample:
        raise UnexplainedError("its scale differs from sample to sample")
    kind = leaf.seen[0].source.dtype
    if by.channels == (0,) and kind != np.uint8:
        return _depth(leaf, by, name)
    if kind != np.uint8:
        raise UnexplainedError(f"its file holds {kind}, in {len(by.channels)} channels")
    if sorted(by.channels) not in ([0, 1, 2], [0], [GREY]):
        raise UnexplainedError(f"it shows the channels {by.channels} of its file")
    arguments = []
    if by.filter in _EXACT:
        arguments += [] if _EXACT[by.filter] is None else [f"filter={_EXACT[by.filter]!r}"]
    else:
        note = f"the script resamples by {by.filter!r}, the Loader by antialiased bilinear"
        recipe.parts.append(RecipePart(name, "", "hr.Image()", "differs", note))
    if leaf.decoding == "exif":
        arguments.append("exif=True")
    if len(by.channels) == 1:
        arguments.append('mode="L"')
    shown = f"batch[{name!r}]"
    if leaf.seen[0].leaf.dtype != np.uint8:
        arguments.append('dtype="float32"')
        std = [1 / (_BYTE * scale) for scale in by.scale]
        mean = [-shift / (_BYTE * scale) for scale, shift in zip(by.scale, by.shift, strict=True)]
        if by.channels == (2, 1, 0):
            std, mean = std[::-1], mean[::-1]
        if not np.allclose(std, 1, atol=1e-3) or not np.allclose(mean, 0, atol=1e-3):
            arguments.append(f"normalize=hr.Normalize({_rounded(mean)}, {_rounded(std)})")
    elif not np.allclose(by.scale, 1, atol=1e-2) or not np.allclose(by.shift, 0, atol=1):
        raise UnexplainedError("its bytes are scaled")
    if by.channels == (2, 1, 0):
        shown += ".flip(1)"
    shown += _OF_LAYOUT[by.layout]
    source = f"source={name + '__path'!r}"
    return f"hr.Image({', '.join([source, *arguments])})", shown


def _depth(leaf: LeafExplanation, by: PictureExplanation, name: str) -> tuple[str, str]:
    if by.filter not in (None, "nearest-exact") or not np.allclose(by.shift, 0, atol=1e-3 * by.scale[0]):
        raise UnexplainedError(f"its values are resampled by {by.filter!r}, and shifted by {by.shift[0]:.4g}")
    shown = f"batch[{name!r}]" + _OF_LAYOUT[by.layout]
    return f"hr.Depth({float(f'{by.scale[0]:.6g}')!r}, source={name + '__path'!r}, valid=False)", shown


def _plane(recipe: ExplainedRecipe, name: str, leaf: LeafExplanation, by: PlaneExplanation) -> tuple[str, str]:
    if by.filter not in (None, "nearest-exact"):
        note = f"the script resamples by {by.filter!r}, the Loader by nearest-exact"
        recipe.parts.append(RecipePart(name, "", "hr.Depth()", "differs", note))
    arguments = [f"source={name + '__path'!r}"]
    normal = by.normalisation
    if normal is not None:
        if normal.is_of_window:
            note = "the script's quantiles are of the window, the Loader's of the whole file"
            recipe.parts.append(RecipePart(name, "", "hr.Quantiles()", "differs", note))
        arguments.append(f"normalize=hr.Quantiles({normal.low}, {normal.high}, range={normal.range})")
    elif abs(by.shift) > 1e-3 * abs(by.scale) or by.fill not in (None, 0):
        raise UnexplainedError(f"it is shifted by {by.shift:.4g}, and holds {by.fill} where no value is")
    scale = float(f"{by.scale:.6g}")
    bounds = {
        which: bound.roundest(scale) for which, bound in (("near", by.near), ("far", by.far)) if bound is not None
    }
    if bounds:
        seen = ", ".join(f"{which}={value}" for which, value in bounds.items())
        recipe.parts.append(RecipePart(name, "", seen, "check", "the bounds lie between values that were seen"))
    arguments += [f"{which}={value!r}" for which, value in bounds.items()]
    shape = _OF_LAYOUT[by.layout]
    shown = f"batch[{name + '_valid'!r}]" if by.is_validity else f"batch[{name!r}]"
    arguments += [] if by.is_validity else ["valid=False"]
    return f"hr.Depth({', '.join([repr(scale), *arguments])})", shown + shape


def _mask(recipe: ExplainedRecipe, name: str, leaf: LeafExplanation, by: MaskExplanation) -> tuple[str, str]:
    if by.filter not in (None, "nearest-exact"):
        note = f"the script resamples by {by.filter!r}, the Loader by nearest-exact"
        recipe.parts.append(RecipePart(name, "", "hr.Mask()", "differs", note))
    changed = {old: int(new) for old, new in by.table.items() if old != new}
    remap = f", remap={changed!r}" if changed else ""
    shown = f"batch[{name!r}]" + {"HW": "", "CHW": "[:, None]", "HWC": "[..., None]"}[by.layout]
    dtype = "uint8" if leaf.seen[0].leaf.dtype == np.uint8 else "int64"
    return f"hr.Mask(source={name + '__path'!r}, dtype={dtype!r}{remap})", shown


def _rounded(values: Sequence[float]) -> str:
    """Return numbers as a recipe writes them: three digits where that is within what a byte tells."""
    return repr(
        tuple(float(round(value, 3)) if abs(value - round(value, 3)) < 1e-3 else float(value) for value in values)
    )


# Views.


def view_code(
    placements: Sequence[LeafPlacement],
    shapes: Sequence[tuple[int, ...]],
    sources: Sequence[tuple[int, ...]],
    layout: str,
    *,
    is_random: bool,
) -> str | None:
    """Return the view that gives these placements, as code; None where none of the Loader's does.

    `is_random`: whether a sample's makings differ, without which no view is drawn.
    """
    heights = {(shape[0], shape[1]) if layout != "CHW" else (shape[1], shape[2]) for shape in shapes}
    if len(heights) > 1:
        return None
    (size,) = heights
    flips = [one.is_flipped for one in placements]
    if all(flips) or (any(flips) and not is_random):
        return None
    flip = ", flip=0.5" if any(flips) else ""
    wholes = [Box(0, 0, *source[:2]) for source in sources]
    for find in (_of_wholes, _of_windows):
        found = find(placements, wholes, size, flip)
        if found is not None:
            return found if is_random or "Random" not in found else None
    return None


def _of_wholes(
    placements: Sequence[LeafPlacement], wholes: Sequence[Box], size: tuple[int, int], flip: str
) -> str | None:
    if any(one.window != whole for one, whole in zip(placements, wholes, strict=True)):
        return None
    if all(one.size == size for one in placements):
        return f"hr.Resize({size}{flip})"
    shorts = {min(one.size) for one in placements}
    if len(shorts) > 1:
        return None
    over = [(one.size[0] - size[0], one.size[1] - size[1]) for one in placements]
    is_centred = all(one.at == (round(by[0] / 2), round(by[1] / 2)) for one, by in zip(placements, over, strict=True))
    return f"[hr.Resize({shorts.pop()}), hr.{'CenterCrop' if is_centred else 'RandomCrop'}({size}{flip})]"


def _of_windows(
    placements: Sequence[LeafPlacement], wholes: Sequence[Box], size: tuple[int, int], flip: str
) -> str | None:
    cuts = {(one.window.height, one.window.width) for one in placements}
    pairs = list(zip((one.window for one in placements), wholes, strict=True))
    if len(cuts) == 1:
        (cut,) = cuts
        is_centred = all(_is_centre(window, whole) for window, whole in pairs)
        crop = "CenterCrop" if is_centred else "RandomCrop"
        if all(one.size == cut for one in placements):
            return f"hr.{crop}({cut}{flip})"
        return f"[hr.{crop}({cut}), hr.Resize({size}{flip})]"
    if any(one.size != size for one in placements):
        return None
    shares = [window.height * window.width / (whole.height * whole.width) for window, whole in pairs]
    ratios = [window.width / window.height for window, _ in pairs]
    scale, ratio = ((round(min(each), 2), round(max(each), 2)) for each in (shares, ratios))
    return f"hr.RandomResizedCrop({size}, scale={scale}, ratio={ratio}{flip})"


def _is_centre(window: Box, whole: Box) -> bool:
    over = whole.height - window.height, whole.width - window.width
    return abs(window.top - over[0] / 2) <= 0.5 and abs(window.left - over[1] / 2) <= 0.5
