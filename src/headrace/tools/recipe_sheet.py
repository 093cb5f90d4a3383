"""Contact sheet with the first batch of a recipe, a Python file with a function `make_loader(path, …)`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageDraw

from headrace.data import contact_sheet
from headrace.errors import HeadraceError, UsageError
from headrace.fields import Field, Image
from headrace.loader import Loader
from headrace.tools.bench.against import accepted_arguments
from headrace.tools.peek_page import write_file

FACTORY = "make_loader"
_PAPER, _BOX = 255, (214, 39, 40)
_BOX_PX = 2
_COLOURS = 256
"""Colours in the PNG's palette, which reduces the file to a third of its size."""

Picture = npt.NDArray[np.uint8]
"""uint8 [H, W, 3]."""


@dataclass(frozen=True)
class _Column:
    """Pictures of one field, or of one of its copies, one per sample, with their caption."""

    name: str
    pictures: list[Picture]


def write_recipe_sheet(recipe: Path, path: str, out: Path, *, samples: int, size: int, seed: int) -> tuple[int, int]:
    """Write the first batch of `recipe` on the dataset at `path` as a PNG; return (samples, pictures per sample).

    A sample's pictures are next to each other: fields, copies, coloured masks, and boxes on the first picture. The
    largest side has `size` pixels. Raises UsageError for a file without a loader, HeadraceError without images.
    """
    loader = _make_loader(recipe, path=path, batch_size=samples, seed=seed)
    iterator = iter(loader)
    try:
        batch = next(iterator, None)
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
    fields = loader._feed.recipe.fields if isinstance(loader, Loader) else {}
    if not isinstance(batch, Mapping):
        raise HeadraceError(f"--recipe {recipe}: expected a dict as its first batch, got a {type(batch).__name__}")
    columns = list(_columns(batch, fields))
    if not columns:
        raise HeadraceError(f"--recipe {recipe}: expected images in its first batch, got {', '.join(map(str, batch))}")
    count = len(columns[0].pictures)
    labels = _labels(batch, getattr(getattr(loader, "dataset", None), "classes", None), count)
    largest = max(max(picture.shape[:2]) for column in columns for picture in column.pictures)
    cells = [_cell(column.pictures[row], size / largest, size) for row in range(count) for column in columns]
    names = [
        labels[row] if number == 0 and labels else column.name
        for row in range(count)
        for number, column in enumerate(columns)
    ]
    each = len(columns)
    across = each * max(1, round((1.5 * count * each) ** 0.5 / each))  # whole samples per row, a sheet wider than high
    sheet = contact_sheet(np.stack(cells).transpose(0, 3, 1, 2), names, columns=across)
    write_file(out, lambda file: sheet.quantize(_COLOURS).save(file, "PNG", optimize=True), "--out")
    return count, each


def _make_loader(recipe: Path, **given: object) -> Iterable[Any]:
    """Run the file and call its function with the given arguments that it accepts."""
    spec = importlib.util.spec_from_file_location(recipe.stem, recipe)
    if not recipe.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"--recipe: expected a Python file with a function {FACTORY}, got {recipe}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(recipe.parent.absolute()))  # for imports of neighbouring files
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(recipe.parent.absolute()))
    factory: Callable[..., Any] | None = getattr(module, FACTORY, None)
    if not callable(factory):
        raise UsageError(
            f"--recipe {recipe}: expected a function {FACTORY}(path, …) that returns a loader, and there is none"
        )
    loader = factory(**accepted_arguments(factory, given))
    if not isinstance(loader, Iterable):
        raise UsageError(f"--recipe {recipe}: expected {FACTORY} to return a loader, got a {type(loader).__name__}")
    return loader


def _columns(batch: Mapping[str, Any], fields: Mapping[str, Field]) -> Iterator[_Column]:
    """Yield the pictures of a batch in its order, with boxes on the first pictures."""
    boxes = next((found for value in batch.values() if (found := _boxes(value)) is not None), None)
    for name, value in batch.items():
        array = _array(value)
        if array is None or array.dtype == np.bool_:
            continue
        if array.ndim in (4, 5) and array.shape[-3] == 3:
            several = array if array.ndim == 5 else array[:, None]
            for copy in range(several.shape[1]):
                pictures = [_picture(image, fields.get(name)) for image in several[:, copy]]
                if boxes is not None:
                    pictures = [_with_boxes(*pair) for pair in zip(pictures, boxes, strict=True)]
                    boxes = None
                yield _Column(name if array.ndim == 4 else f"{name} {copy}", pictures)
        elif array.ndim == 3 and array.dtype.kind in "iu":
            yield _Column(name, [_coloured(mask) for mask in array])


def _array(value: Any) -> npt.NDArray[Any] | None:
    """Return a tensor on any device, or an array, as an array; None for anything else."""
    if isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "detach"):
        return None
    found = value.detach().cpu()
    return np.asarray(found.float() if found.is_floating_point() else found)


def _boxes(value: Any) -> list[npt.NDArray[Any]] | None:
    """Return a list of float [k, 4] as arrays; None for anything else."""
    arrays = [_array(each) for each in value] if isinstance(value, list) else []
    boxes = [each for each in arrays if each is not None and each.ndim == 2 and each.shape[1] == 4]
    return boxes if boxes and len(boxes) == len(arrays) and boxes[0].dtype.kind == "f" else None


def _picture(image: npt.NDArray[Any], field: Field | None) -> Picture:
    """Convert [3, H, W] to uint8 [H, W, 3]; undo the field's normalization of floats."""
    if image.dtype == np.uint8:
        return np.ascontiguousarray(image.transpose(1, 2, 0))
    values = image.astype(np.float64)
    if isinstance(field, Image) and field.normalize is not None:
        mean, std = (np.reshape(part, (-1, 1, 1)) for part in (field.normalize.mean, field.normalize.std))
        values = values * std + mean
    return np.ascontiguousarray(np.clip(np.rint(values * 255), 0, 255).astype(np.uint8).transpose(1, 2, 0))


def _coloured(mask: npt.NDArray[Any]) -> Picture:
    """Give each class the same colour in every picture; ignored values (below 0, or 255) are white."""
    classes = mask.astype(np.int64)
    colours = np.stack([(classes * step + 60) % 200 for step in (67, 113, 29)], axis=-1)
    colours[(classes < 0) | (classes == 255)] = _PAPER
    return colours.astype(np.uint8)


def _with_boxes(picture: Picture, boxes: npt.NDArray[Any]) -> Picture:
    image = PIL.Image.fromarray(picture)
    draw = PIL.ImageDraw.Draw(image)
    width = max(_BOX_PX, max(picture.shape) // 100)
    for box in boxes.tolist():
        draw.rectangle(box, outline=_BOX, width=width)
    return np.asarray(image)


def _labels(batch: Mapping[str, Any], classes: Iterable[str] | None, count: int) -> list[str]:
    """Return a caption per sample: its class, or the weights of a mixed label. Empty if the batch has no label."""
    label = _array(batch.get("label"))
    if label is None or len(label) != count or label.ndim > 2:
        return []
    names = None if classes is None else list(classes)
    if label.ndim == 1:
        return [str(each) if names is None else names[int(each)] for each in label.tolist()]
    lines = []
    for shares in label:
        largest = [int(at) for at in np.argsort(-shares)[:2] if shares[at] >= 0.05]
        lines.append(" ".join(f"{shares[at]:.0%} {at if names is None else names[at]}" for at in largest))
    return lines


def _cell(picture: Picture, scale: float, size: int) -> Picture:
    """Scale a picture and centre it on a white square."""
    height, width = (max(1, round(side * scale)) for side in picture.shape[:2])
    cell = PIL.Image.new("RGB", (size, size), (_PAPER,) * 3)
    small = PIL.Image.fromarray(picture).resize((width, height), PIL.Image.Resampling.LANCZOS)
    cell.paste(small, ((size - width) // 2, (size - height) // 2))
    return np.asarray(cell)
