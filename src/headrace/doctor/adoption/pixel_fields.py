"""Loader fields, as code, for leaves of pixels: what makes them, and which of them draw together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import headrace as hr
from headrace.doctor.adoption.recipe import UnexplainedError
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.explain import GREY, Box, LeafPlacement, MaskExplanation, PictureExplanation, PlaneExplanation
from headrace.doctor.explain.look import LeafPath, LiveTransform, Look
from headrace.doctor.explain.pictures import MOST_LEVELS
from headrace.doctor.explain.samples import LeafExplanation, files_of
from headrace.doctor.probe.look.held_objects import READ
from headrace.doctor.session.after_run import AdoptedPart

_PICKED: dict[str | None, str | None] = {
    "nearest-pillow": "nearest",
    "nearest-exact": "nearest-exact",
    "nearest-opencv": "nearest-opencv",
    "nearest-torch": "nearest-torch",
}
"""Nearest filters: the value of `filter=`."""
_EXACT: dict[str | None, str | None] = {
    None: None,
    "triangle": None,
    "bicubic": "bicubic",
    "lanczos": "lanczos",
    "linear": "linear",
    **_PICKED,
}
"""Filters of the Loader: the value of `Image(filter=)`."""
_BYTE = 255.0
_HALF_LEVEL = 0.5 / _BYTE
_TOLD = 1e-4
"""Difference of a mean or standard deviation that is invisible in pixels."""
_SMALL = 0.05
"""Size up to which a mean or standard deviation belongs to values of bytes."""
CASTS = {
    "float32": ".float()",
    "float64": ".double()",
    "float16": ".half()",
    "int64": ".long()",
    "int32": ".int()",
    "int16": ".short()",
    "uint8": ".byte()",
    "bool": ".bool()",
}
"""Code that casts a tensor, by dtype."""
_OF_LAYOUT = {"CHW": "", "HWC": ".permute(0, 2, 3, 1)", "HW": "[:, 0]"}
"""Code that converts a batch [N, C, H, W] to the leaf's layout."""
_SAME_PLACE = 0.02
"""Maximum distance between the windows of fields that draw together, as a share of the file's sides."""
_FEW_CHANGED = 2
"""Number of classes that scripts change one by one, such as the void of a label image; more follow a table."""
_TORCH = {"triangle": "bilinear", "bicubic": "bicubic"}
"""Filters of torch, by its names."""
_OWN = ("source=", "filter=")
"""Arguments that may differ between fields of the same image at other sizes."""
Shown = tuple[tuple[float, ...], ...]
"""Positions of random windows, as shares of their files, and whether each is flipped; empty if unknown."""


GEOMETRY = "geometry"
"""Field of the views that were drawn."""
VALID = "_valid"
"""Suffix of the array that marks the valid pixels of a `Depth`."""


@dataclass
class LeafField:
    """Field of the Loader that makes one leaf of pixels."""

    path: LeafPath
    name: str
    kind: str
    """Class of the field: `Image`, `Mask` or `Depth`."""
    arguments: list[str]
    code: str
    """The leaf as an expression of `batch`."""
    size: tuple[int, int]
    parts: list[AdoptedPart] = field(default_factory=list)
    view: str = "None"
    crops: str = ""
    """View of the field's own that gives several crops; empty for a single picture."""
    augment: str | None = None
    placements: tuple[LeafPlacement, ...] = ()
    filter: str | None = None
    """Filter, by its name in explanations."""
    shown: Shown = ()
    also: list[LeafPath] = field(default_factory=list)
    """Other leaves of the same values."""

    def makes_same(self, other: LeafField) -> bool:
        """Return True if two fields show the same windows of one file, as far as they are known."""
        return bool(self.placements) and all(
            getattr(self, name) == getattr(other, name)
            for name in ("kind", "arguments", "view", "augment", "placements")
        )

    @property
    def is_image(self) -> bool:
        """True if it may have its own view."""
        return self.kind == "Image"

    def text(self, more: Sequence[str] = ()) -> str:
        return f"hr.{self.kind}({', '.join([*self.arguments, *more])})"

    def note(self, becomes: str, certainty: str, note: str, place: str = "fields") -> None:
        """Add a remark about a difference from the script."""
        self.parts.append(AdoptedPart(self.name, place, becomes, certainty, note))


def pixel_field(
    name: str, column: str, leaf: LeafExplanation, by: PictureExplanation | MaskExplanation | PlaneExplanation
) -> LeafField:
    """Return the field `name` of a leaf from a column of files, without its view, or raise UnexplainedError."""
    shape = leaf.seen[0].leaf.shape
    made = LeafField(
        leaf.path,
        name,
        "Depth",
        [f"source={column!r}"],
        f"batch[{name!r}]",
        (shape[1], shape[2]) if by.layout == "CHW" else (shape[0], shape[1]),
        placements=by.placements,
        filter=by.filter,
        shown=shown_in(leaf),
    )
    if isinstance(by, MaskExplanation):
        _as_mask(made, leaf, by)
    elif isinstance(by, PlaneExplanation):
        _as_plane(made, by)
    elif by.channels == (0,) and leaf.seen[0].source.dtype != np.uint8:
        _as_depth(made, by)
    else:
        _as_image(made, leaf, by)
    return made


def field_by_class(
    leaf: LeafExplanation, name: str, column: str, transform: LiveTransform, dtype: str, layout: str
) -> LeafField:
    """Return the field of an image by a known library's transform. Raises UnexplainedError for another dtype."""
    image = evaluated(transform.image)
    if image.dtype != dtype:
        raise UnexplainedError(f"its values are {dtype}, where its transform makes {image.dtype}")
    given = transform.image.removeprefix("hr.Image(").removesuffix(")")
    arguments = [f"source={column!r}", *([given] if given else []), "exif=False"]  # as Pillow's `open`
    view, augment = listed(transform.view) or "None", listed(transform.augment)
    code = f"batch[{name!r}]{_OF_LAYOUT[layout]}"
    return LeafField(leaf.path, name, "Image", arguments, code, (0, 0), view=view, augment=augment)


def listed(codes: Sequence[str]) -> str | None:
    """Return steps as one expression; None without any."""
    return None if not codes else codes[0] if len(codes) == 1 else f"[{', '.join(codes)}]"


def _as_image(made: LeafField, leaf: LeafExplanation, by: PictureExplanation) -> None:
    kind = leaf.seen[0].source.dtype
    if kind != np.uint8:
        raise UnexplainedError(f"its file holds {kind}, in {len(by.channels)} channels")
    is_grey = by.channels == (0, 0, 0) and all(each.source.ndim == 2 for each in leaf.seen)  # repeated by the Loader
    if not is_grey and sorted(by.channels) not in ([0, 1, 2], [0], [GREY]):
        raise UnexplainedError(f"it shows the channels {by.channels} of its file")
    made.kind = "Image"
    if by.filter not in _EXACT:
        note = f"the script resamples by {by.filter!r}, the Loader by antialiased bilinear"
        made.note("hr.Image()", "check", note)  # fine detail differs by many levels
    elif _EXACT[by.filter] is not None:
        made.arguments.append(f"filter={_EXACT[by.filter]!r}")
    if leaf.decoding != "exif":
        made.arguments.append("exif=False")
    if len(by.channels) == 1:
        made.arguments.append('mode="L"')
    dtype = leaf.seen[0].leaf.dtype
    is_byte = np.allclose(by.scale, 1, atol=1e-2) and np.allclose(by.shift, 0, atol=1)
    if dtype.kind in "iu":
        if not is_byte:
            raise UnexplainedError("its bytes are scaled")
        if dtype.name not in CASTS:
            raise UnexplainedError(f"its bytes are held as {dtype}")
        made.code += "" if dtype == np.uint8 else CASTS[dtype.name]
    else:
        made.arguments.append('dtype="float32"')
        std = [1 / (_BYTE * scale) for scale in by.scale]
        mean = [-shift / (_BYTE * scale) for scale, shift in zip(by.scale, by.shift, strict=True)]
        if by.channels == (2, 1, 0):
            std, mean = std[::-1], mean[::-1]
        if not np.allclose(std, 1, atol=_HALF_LEVEL) or not np.allclose(mean, 0, atol=_HALF_LEVEL):
            made.arguments.append(f"normalize={_normalize(mean, std)}")
        made.code += ".double()" if dtype == np.float64 else ""
    if by.channels == (2, 1, 0):
        made.code += ".flip(1)"
    made.code += _OF_LAYOUT[by.layout]


def _normalize(mean: Sequence[float], std: Sequence[float]) -> str:
    is_usual = np.allclose(mean, hr.IMAGENET.mean, atol=1e-3) and np.allclose(std, hr.IMAGENET.std, atol=1e-3)
    return "hr.IMAGENET" if is_usual else f"hr.Normalize({_rounded(mean)}, {_rounded(std)})"


def _as_depth(made: LeafField, by: PictureExplanation) -> None:
    if by.filter not in (None, *_PICKED) or not np.allclose(by.shift, 0, atol=1e-3 * by.scale[0]):
        raise UnexplainedError(f"its values are resampled by {by.filter!r}, and shifted by {by.shift[0]:.4g}")
    made.arguments = [repr(float(f"{by.scale[0]:.6g}")), *made.arguments, "valid=False", *_picked(made)]
    made.code += _OF_LAYOUT[by.layout]


def _as_plane(made: LeafField, by: PlaneExplanation) -> None:
    picked = _picked(made)
    normal = by.normalisation
    if normal is not None:
        if normal.is_of_window:
            note = "the script's quantiles are of the window, the Loader's of the whole file"
            made.note("hr.Quantiles()", "differs", note)
        made.arguments.append(f"normalize=hr.Quantiles({normal.low}, {normal.high}, range={normal.range})")
    elif abs(by.shift) > 1e-3 * abs(by.scale) or by.fill not in (None, 0):
        raise UnexplainedError(f"it is shifted by {by.shift:.4g}, and holds {by.fill} where no value is")
    scale = float(f"{by.scale:.6g}")
    near = None if by.near is not None and by.near.least <= 0 else by.near  # 0 is invalid anyway
    bounds = [
        f"{which}={bound.roundest(scale)!r}" for which, bound in (("near", near), ("far", by.far)) if bound is not None
    ]
    if bounds:
        made.note(", ".join(bounds), "check", "the bounds lie between values that were seen")
    made.arguments = [repr(scale), *made.arguments, *bounds, *([] if by.is_validity else ["valid=False"]), *picked]
    made.code = (f"batch[{made.name + VALID!r}]" if by.is_validity else made.code) + _OF_LAYOUT[by.layout]


def is_filled_as_loader(by: PictureExplanation | MaskExplanation | PlaneExplanation) -> bool:
    """Return True if values outside the file equal the Loader's padding: black, or any one class.

    Black of a picture whose colours the script changes may be as far from it as its other pixels.
    """
    if isinstance(by, PictureExplanation):
        levels = 0.5 if by.levels <= MOST_LEVELS else by.levels
        return by.fill is not None and np.allclose(by.fill, by.shift, atol=levels * min(map(abs, by.scale)))
    return isinstance(by, MaskExplanation)


def _as_mask(made: LeafField, leaf: LeafExplanation, by: MaskExplanation) -> None:
    if leaf.decoding == "RGB":
        raise UnexplainedError("its classes are colours, which the Loader does not look up")
    made.kind = "Mask"
    picked = _picked(made)
    dtype = leaf.seen[0].leaf.dtype
    made.arguments.append(f"dtype={'uint8' if dtype == np.uint8 else 'int64'!r}")
    remap = _remap(made, by.table, wraps=dtype == np.uint8)
    made.arguments += [f"remap={remap}"] if remap else []
    made.arguments += picked
    made.arguments += [] if by.fill in (None, 255) else [f"ignore={int(by.fill)}"]
    made.code += {"HW": "", "CHW": "[:, None]", "HWC": "[..., None]"}[by.layout]
    made.code += {"f": ".float()" if dtype == np.float32 else ".double()", "b": ".bool()"}.get(dtype.kind, "")


def _remap(made: LeafField, table: Mapping[int, float], *, wraps: bool) -> str:
    """Return the code of a table for all values, from those seen, modulo 256 if it `wraps`; empty if none changes."""
    changed = {old: int(new) for old, new in table.items() if old != new}
    steps = Counter(new - old for old, new in changed.items())
    step, count = max(steps.items(), key=lambda one: one[1], default=(0, 0))
    if count > 1 and 2 * count > len(table):  # such as without the background
        others = {old: int(new) for old, new in table.items() if new - old != step}
        new = f"(old {step:+d}) % 256" if wraps else f"old {step:+d}"
        return f"{{old: {new} for old in range(256)}}" + (f" | {others}" if others else "")
    if len(changed) > _FEW_CHANGED:
        note = f"the table has the {len(table)} values that were seen; the Loader leaves others as they are"
        made.note("remap=", "check", note)
    return repr(changed) if changed else ""


def _picked(made: LeafField) -> list[str]:
    """Return the argument for a nearest filter other than the default."""
    name = _PICKED.get(made.filter)
    return [] if name in (None, "nearest") else [f"filter={name!r}"]


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers rounded to the digits that are visible in pixels; small ones are multiples of a byte's step."""
    return tuple(
        next((one for one in (round(value, digits) for digits in range(1, 6)) if abs(value - one) < _TOLD), value)
        if abs(value) > _SMALL
        else round(value * _BYTE, 3) / _BYTE
        for value in map(float, values)
    )


def shown_in(leaf: LeafExplanation) -> Shown:
    """Return the window positions of a random leaf; empty if unknown."""
    placements = getattr(leaf.by, "placements", ()) if leaf.is_random else ()
    return tuple(_shown_of(one, each.source.shape) for one, each in zip(placements, leaf.seen, strict=False))


def _shown_of(placement: LeafPlacement, source: tuple[int, ...]) -> tuple[float, ...]:
    window, size = placement.window, placement.size
    top = window.top + placement.at[0] * window.height / size[0]
    left = window.left + placement.at[1] * window.width / size[1]
    return top / source[0], left / source[1], float(placement.is_flipped)


def are_drawn_together(one: Shown, other: Shown) -> bool:
    """Return True if windows are at the same places; a separate view would draw separately."""
    return bool(one) and len(one) == len(other) and bool(np.allclose(one, other, atol=_SAME_PLACE))


def resized_code(one: LeafField, whole: LeafField) -> str | None:
    """Return the code of an image that is another field's image resized, or None."""
    size, mode = one.size, _TORCH.get(one.filter or "")
    is_byte = 'dtype="float32"' not in one.arguments
    is_cut = mode == "bicubic" and any(each.startswith("normalize=") for each in one.arguments)
    kinds = [{each for each in field.arguments if not each.startswith(_OWN)} for field in (one, whole)]
    pairs = list(zip(one.placements, whole.placements, strict=False))
    if mode is None or is_cut or kinds[0] != kinds[1] or not pairs:
        return None
    if any(large.is_resampled or small != replace(large, size=size) for small, large in pairs):
        return None
    resized = f"torch.nn.functional.interpolate(batch[{whole.name!r}], {size}, mode={mode!r}, antialias=True)"
    return resized if is_byte or mode == "bilinear" else f"{resized}.clamp(0, 1)"


def fixed_window(placements: Sequence[LeafPlacement], sources: Sequence[tuple[int, ...]]) -> Box | None:
    """Return the one window that leaves show of pictures of one size, flipped or not; None if they show others."""
    windows, sizes = {one.window for one in placements}, {source[:2] for source in sources}
    plain = {replace(one, is_flipped=False) for one in placements}
    window = next(iter(windows))
    size = (window.height, window.width)
    return window if plain == {LeafPlacement(window, size, (0, 0))} and len(sizes) == 1 else None


def cut_of_whole(made: LeafField, window: Box, source: tuple[int, ...]) -> None:
    """Let a field load pictures of this size whole, and its code cut the window out of each, mirrored where it is."""
    (height, width), batch = source[:2], f"batch[{made.name!r}]"
    rows, right = f"{window.top}:{window.top + window.height}", width - window.left
    shown = f"{batch}[..., {rows}, {window.left}:{window.left + window.width}]"
    if any(one.is_flipped for one in made.placements):
        mirrored = f"{batch}[..., {rows}, {right - window.width}:{right}]"
        shown = f"torch.where(batch[{GEOMETRY!r}]['flip'][:, :1, None, None], {mirrored}, {shown})"
    made.code = made.code.replace(batch, shown)
    whole = LeafPlacement(Box(0, 0, height, width), (height, width), (0, 0))
    made.placements = tuple(replace(whole, is_flipped=one.is_flipped) for one in made.placements)
    made.shown = tuple((0.0, 0.0, flipped) for _, _, flipped in made.shown)


def note_draws(made: LeafField, count: int) -> None:
    """Add remarks about a view that was derived from the windows of a few samples."""
    if "pad_if_needed" in made.view:
        note = "small pictures lie anywhere in their padding, where the script may have its own place for them"
        made.note("hr.RandomCrop", "check", note, "view")
    if "RandomScale" in made.view:
        note = "the Loader draws one scale for a whole batch, the script one for each sample"
        made.note("hr.RandomScale", "differs", f"{note}; its range is that of {count} that were seen", "view")
    elif "RandomResizedCrop" in made.view:
        made.note(
            "hr.RandomResizedCrop", "check", f"the ranges of its windows are those of {count} that were seen", "view"
        )


def note_own_pixels(made: LeafField, leaf: LeafExplanation, by: PictureExplanation) -> None:
    """Add a remark about a picture whose window is known, and whose pixels the script changes in its own way."""
    if leaf.plain < 1:
        note = f"{leaf.plain:.0%} of its samples show a window as it is; the script changes the others in its own way"
        made.note("hr.Image()", "check", note)
        return
    how = f"99 % of its pixels are within {by.levels:.0f} levels of it in half of the samples"
    how = "it is scaled by another factor in each sample" if by.is_scaled_by_sample else how
    made.note("hr.Image()", "check", f"its window is known, and the script filters or colours it in its own way: {how}")


def note_turns(made: LeafField, look: Look, leaf: LeafExplanation) -> None:
    """Add the rotation of the pictures that a leaf shows windows of, and remarks about its differences."""
    degrees = [one.degrees for each in look.samples for one in each.turned if one.degrees is not None]
    made.augment = f"hr.RandomRotation({max(map(abs, degrees)):.2g})"
    note = f"{len(degrees)} turns were seen, from {min(degrees):.2g} to {max(degrees):.2g} degrees"
    where = "the Loader turns the window, the script the picture around it"
    made.note(made.augment, "check", f"{note}; {where}", "augment")
    files = [file.shape[:2] for file in files_of(leaf.input or 0, look.samples)]
    shapes = [each.source.shape[:2] for each in leaf.seen]
    if shapes != files:
        height, width = shapes[0]
        made.note("hr.RandomCrop", "check", f"the script first cuts {height} x {width} pixels out of each file", "view")


def parts_of(transform: LiveTransform, place: str) -> Iterator[AdoptedPart]:
    """Yield the parts of a transform, each with its certainty."""
    for part, becomes, note in transform.parts:
        is_read = note == READ or note.startswith("resampled")
        yield AdoptedPart(part, place, becomes or "", "check" if is_read else "differs" if note else "exact", note)
