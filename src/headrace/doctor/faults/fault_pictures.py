"""Pictures of faults: small contact sheets with what the files hold next to what the loader makes of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from headrace.doctor.explain import PictureExplanation
from headrace.doctor.explain.look import LeafPath, Look, path_text
from headrace.doctor.explain.pictures import Array, layouts, sided
from headrace.doctor.explain.samples import LeafExplanation, is_coloured, spread
from headrace.doctor.faults.fault_kinds import Explained
from headrace.doctor.faults.geometry_faults import differences, ignored_turns, shown_parts
from headrace.doctor.faults.label_faults import invented_pixels, label_values
from headrace.doctor.session.after_run import DataFault

SIDE = 160
"""Maximum sides of one picture in pixels."""
_MOST_SAMPLES = 6
_MOST_BYTES = 200_000
_GAP = 4
_FIRST, _SECOND, _INVENTED = (255, 200, 0), (0, 220, 255), (255, 0, 0)
"""Colours of the windows of a fault's two leaves, and of invented labels."""
_MOST_CLASSES = 64
"""Maximum number of distinct values that are shown by colours of their own."""
Row = list[Image.Image]
"""Pictures of one sample, left to right."""


class FaultPicture(NamedTuple):
    """Contact sheet of one fault: a row for each sample."""

    png: bytes
    text: str
    """Caption: the content of its columns."""


def fault_pictures(faults: Sequence[DataFault], look: Look | None, explained: Explained) -> dict[int, FaultPicture]:
    """Return the pictures of faults by their place in `faults`; faults that no picture helps have none."""
    found = {}
    for place, fault in enumerate(faults):
        if look is None or fault.code not in _DRAWINGS:
            continue
        text, draw = _DRAWINGS[fault.code]
        if png := _sheet(list(islice(draw(fault, look, explained), _MOST_SAMPLES))):
            found[place] = FaultPicture(png, text.format(*fault.leaves))
    return found


def _sheet(rows: Sequence[Row]) -> bytes:
    """Return rows of pictures as one PNG, of fewer rows if it would be too large; empty without rows."""
    step = SIDE + _GAP
    tops = [0, *accumulate(max(one.height for one in row) + _GAP for row in rows)]
    for count in range(len(rows), 0, -1):
        sheet = Image.new("RGB", (max(map(len, rows)) * step - _GAP, tops[count] - _GAP), "white")
        for top, pictures in zip(tops, rows[:count], strict=False):
            for column, picture in enumerate(pictures):
                sheet.paste(picture, (column * step, top))
        file = io.BytesIO()
        sheet.quantize(128).save(file, "PNG", optimize=True)
        if file.tell() <= _MOST_BYTES:
            return file.getvalue()
    return b""


def _misaligned(fault: DataFault, look: Look, explained: Explained) -> Iterator[Row]:
    """Yield the file with the windows of both leaves, the image, and the map over it; samples that differ first."""
    paths = sorted(_paths(fault, explained), key=lambda path: not is_coloured(look.samples[0].leaves[path]))
    both = [explained[path] for path in paths]
    parts = [[part for _, part in shown_parts(one)] for one in both]
    unlike = [place for place, how in enumerate(differences(*both)) if how]
    for place in dict.fromkeys((*unlike, *range(len(both[0].seen or both[1].seen)))):
        source = next(one.seen[place].source for one in both if one.seen)
        framed = _small(_pixels(source))
        for its, colour in zip(parts, (_FIRST, _SECOND), strict=True):
            for top, left, bottom, right in its[place : place + 1]:
                wide, high = framed.width - 1, framed.height - 1
                ends = [round(left * wide), round(top * high), round(right * wide), round(bottom * high)]
                ImageDraw.Draw(framed).rectangle(ends, outline=colour, width=2)
        leaves = [spread(look.samples)[place].leaves[path].value for path in paths]
        shown, over = (_small(_as_read(leaf, one)) for leaf, one in zip(leaves, both, strict=True))
        yield [framed, shown, Image.blend(shown, over.resize(shown.size, Image.Resampling.NEAREST), 0.5)]


def _invented(fault: DataFault, look: Look, explained: Explained) -> Iterator[Row]:
    """Yield the label image, and the leaf with invented values in red."""
    (path,) = _paths(fault, explained)
    one = explained[path]
    values = sorted(label_values(one))
    for place, seen in enumerate(one.seen):
        pixels = _pixels(sided(seen.leaf, next(layouts(seen.leaf)))[..., 0], values)
        pixels[invented_pixels(one, place)] = _INVENTED
        how = Image.Resampling.NEAREST
        yield [_small(_pixels(seen.source, values), how), _small(pixels, how)]


def _turned(fault: DataFault, look: Look, explained: Explained) -> Iterator[Row]:
    """Yield the image, and its file as its orientation says."""
    (path,) = _paths(fault, explained)
    one = explained[path]
    ignored = ignored_turns(look, one)
    for each in (each for each in spread(look.samples) if each.index in ignored):
        with Image.open(io.BytesIO(each.inputs[one.input or 0])) as picture:
            yield [_small(_as_read(each.leaves[path].value, one)), _small(ImageOps.exif_transpose(picture))]


def _as_seen(fault: DataFault, look: Look, explained: Explained) -> Iterator[Row]:
    """Yield the file, and the image with the red, green and blue that its means assume."""
    (path,) = _paths(fault, explained)
    for seen in explained[path].seen:
        yield [_small(_pixels(seen.source)), _small(_as_read(seen.leaf, explained[path]))]


_DRAWINGS: dict[str, tuple[str, Callable[[DataFault, Look, Explained], Iterator[Row]]]] = {
    "misaligned": (
        "the file, with the known windows of the image (yellow) and the map (blue); the image; the map over it",
        _misaligned,
    ),
    "invented-labels": ("the label image; {0}, with labels in red that no pixel around has", _invented),
    "ignored-orientation": ("{0}; its file as its EXIF orientation says", _turned),
    "channel-order": ("the file; {0} in the order of its means", _as_seen),
}


def _paths(fault: DataFault, explained: Explained) -> list[LeafPath]:
    by_text = {path_text(path): path for path in explained}
    return [by_text[text] for text in fault.leaves]


def _as_read(leaf: Array, one: LeafExplanation) -> Array:
    """Return a leaf as pixels, with its own order of channels and without its normalisation."""
    leaf = sided(leaf, next(layouts(leaf)))
    if isinstance(one.by, PictureExplanation) and leaf.shape[2] == len(one.by.scale):
        return _pixels(np.clip((leaf - np.array(one.by.shift)) / np.array(one.by.scale), 0, 255).astype(np.uint8))
    return _pixels(leaf)


def _pixels(values: Array, labels: Sequence[float] = ()) -> Array:
    """Return an array as red, green and blue. Classes have colours of their own; `labels` names all of them."""
    values = values if values.ndim == 3 else values[..., None]
    if values.shape[2] == 1 and values.dtype.kind in "iub":
        classes = np.unique(values) if not len(labels) else np.asarray(labels)
        if len(classes) <= _MOST_CLASSES:
            hues = (np.arange(len(classes)) * 0.618 % 1 * 255).astype(np.uint8)
            table = Image.fromarray(np.stack([hues, np.full_like(hues, 150), hues // 2 + 120], 1)[None], "HSV")
            at = np.searchsorted(classes, values[..., 0]).clip(0, len(classes) - 1)
            coloured: Array = np.asarray(table.convert("RGB"))[0][at]
            return coloured
    if values.dtype != np.uint8:
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        values = (np.nan_to_num(values.astype(float), nan=low).clip(low, high) - low) * (255 / (high - low or 1))
    shown: Array = np.broadcast_to(values[..., :3], (*values.shape[:2], 3)).astype(np.uint8)
    return shown


def _small(shown: Array | Image.Image, how: Image.Resampling = Image.Resampling.BOX) -> Image.Image:
    """Return a picture of at most `SIDE` pixels on each side."""
    if not isinstance(shown, Image.Image):
        shown = Image.fromarray(np.ascontiguousarray(shown))
    small = shown.convert("RGB") if shown.mode != "I;16" else Image.fromarray(_pixels(np.asarray(shown)))
    return ImageOps.contain(small, (SIDE, SIDE), how)
