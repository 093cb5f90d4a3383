"""COCO annotation files: images, with captions, boxes and outlines for each."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.data.columns import Column, ListColumn, TextColumn, ValueColumn
from headrace.data.storage.open_file import FilePath, file_name, read_path
from headrace.data.storage.strings import Ints, StringColumn
from headrace.data.table import PathRoot, SampleTable, table_digest
from headrace.errors import DatasetError, EmptyDatasetError

# Limits of the arrays' types; values beyond them are refused with their position in the file.
_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_MOST = float(np.finfo(np.float32).max)
_Float = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]

_ABSENT = (None, msgspec.Raw())


class _Image(msgspec.Struct, gc=False):
    id: _Int
    file_name: str = ""
    width: _Int | None = None
    height: _Int | None = None
    coco_url: str = ""
    """Image URL; its last two parts are the file name in LVIS, which has none: train2017/000000391895.jpg."""

    def __post_init__(self) -> None:
        self.file_name = self.file_name or "/".join(self.coco_url.split("/")[-2:])
        if not self.file_name:
            raise ValueError("Object missing required field `file_name`")


class _Annotation(msgspec.Struct, gc=False):
    """Fields of an annotation that become columns. `segmentation` and `keypoints` stay JSON."""

    image_id: _Int
    id: _Int | None = None
    category_id: _Int | None = None
    bbox: tuple[_Float, _Float, _Float, _Float] | None = None
    area: _Float | None = None
    iscrowd: _Int | None = None
    segmentation: msgspec.Raw = msgspec.Raw()
    keypoints: msgspec.Raw = msgspec.Raw()
    caption: str | None = None


class _Category(msgspec.Struct, gc=False):
    id: _Int
    name: str


class _File(msgspec.Struct, gc=False):
    images: list[_Image]
    annotations: list[_Annotation] = []
    """Annotations; empty in COCO's test files."""
    categories: list[_Category] = []


_COLUMNS = (
    ("captions", "caption", None),
    ("bbox", "bbox", np.float32),
    ("label", "category_id", np.int64),
    ("area", "area", np.float32),
    ("iscrowd", "iscrowd", np.int64),
    ("segmentation", "segmentation", None),
    ("keypoints", "keypoints", None),
)
"""List columns: name, attribute of annotations, and type; None: texts."""


def open_coco(path: FilePath, root: PathRoot) -> SampleTable:
    """Return the samples of an annotation file, one per image, in order; their paths lead into `root`.

    Columns: `image` (the path), `image_id`, `width`, `height` (pixels), and a list per sample for each annotation
    field: `captions`; `bbox` float32[m, 4] as x, y, width, height in pixels; `label`, the index of the category in the
    file's categories by id, and `category_id`, the id itself; `annotation_id`; `area`, `iscrowd`; `segmentation` and
    `keypoints` as JSON texts.

    Raises ReadError, DatasetError or EmptyDatasetError.
    """
    file = _read(path)
    if not file.images:
        raise EmptyDatasetError(f"{path}: expected images, got an empty list of them. Check the file")
    owner, skipped = _owners(path, file)
    order = np.argsort(owner, kind="stable")[np.count_nonzero(owner < 0) :]
    annotations = [file.annotations[at] for at in order.tolist()]
    offsets = np.searchsorted(owner[order], np.arange(len(file.images) + 1)).astype(np.uint64)
    names = StringColumn.from_list(image.file_name for image in file.images)
    columns: dict[str, Column] = {"image": TextColumn(names)}
    columns["image_id"] = ValueColumn(np.array([image.id for image in file.images], np.int64))
    for name in ("width", "height"):
        numbers = [getattr(image, name) for image in file.images]
        if None not in numbers:
            columns[name] = ValueColumn(np.array(numbers, np.int64))
    lists = _Lists(path, annotations, offsets)
    columns |= lists.columns(file.categories)
    # The digest leaves out COCO's own ids: they add nothing to a sample's identity, and older states stay valid.
    known = table_digest(names, columns)
    source = f"annotations {file_name(path)}"
    return SampleTable(source, names, columns | lists.ids(), skipped, root, known_digest=known)


def _read(path: FilePath) -> _File:
    try:
        return msgspec.json.decode(read_path(path).removeprefix(codecs.BOM_UTF8), type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(
            f"{path}: expected COCO's annotations, an object with images and annotations, got otherwise: {error}. "
            f"Check the file; give one with an object a line the ending .jsonl"
        ) from error


def _owners(path: FilePath, file: _File) -> tuple[Ints, dict[str, int]]:
    """Return the index of each annotation's image (-1: none), and the number of annotations without an image."""
    position_of = {image.id: position for position, image in enumerate(file.images)}
    if len(position_of) < len(file.images):
        raise DatasetError(f"{path}: expected an id of its own for each image, got some twice. Check the file")
    owner = np.array([position_of.get(each.image_id, -1) for each in file.annotations], np.int64)
    strays = int(np.count_nonzero(owner < 0))
    return owner, {"annotations without an image": strays} if strays else {}


@dataclass(frozen=True)
class _Lists:
    """Annotations in the order of their images, and the offsets of each image's annotations."""

    path: FilePath
    annotations: list[_Annotation]
    offsets: npt.NDArray[np.uint64]

    def columns(self, categories: Iterable[_Category]) -> dict[str, Column]:
        """Return a column for each attribute that any annotation has, except ids."""
        columns: dict[str, Column] = {}
        for name, attribute, dtype in _COLUMNS:
            if not any(getattr(each, attribute) not in _ABSENT for each in self.annotations):
                continue
            if name == "label":
                columns[name] = self._labels(categories)
            elif dtype is None:
                texts = StringColumn.from_list(_bytes(each) for each in self._all(attribute))
                columns[name] = ListColumn(self.offsets, texts)
            else:
                columns[name] = ListColumn(self.offsets, np.array(self._all(attribute), dtype))
        return columns

    def ids(self) -> dict[str, Column]:
        """Return the ids that COCO's evaluation compares, if every annotation has one."""
        columns: dict[str, Column] = {}
        for name, attribute in (("category_id", "category_id"), ("annotation_id", "id")):
            numbers = [getattr(each, attribute) for each in self.annotations]
            if numbers and None not in numbers:
                columns[name] = ListColumn(self.offsets, np.array(numbers, np.int64))
        return columns

    def _all(self, attribute: str) -> list[Any]:
        """Return an attribute of all annotations. Raises DatasetError if some lack it."""
        found = [getattr(each, attribute) for each in self.annotations]
        lacking = next((at for at, value in enumerate(found) if value in _ABSENT), None)
        if lacking is not None:
            raise DatasetError(
                f"{self.path}: expected {attribute!r} in every annotation, since some have it, got none in one of "
                f"image {self.annotations[lacking].image_id}. Check the file"
            )
        return found

    def _labels(self, categories: Iterable[_Category]) -> ListColumn:
        """Number categories in the order of their ids, which have gaps."""
        known = sorted(categories, key=lambda category: category.id)
        index_of = {category.id: index for index, category in enumerate(known)}
        if len(index_of) < len(known):
            raise DatasetError(
                f"{self.path}: expected an id of its own for each category, got some twice. Check the file"
            )
        ids = self._all("category_id")
        strange = next((each for each in ids if each not in index_of), None)
        if strange is not None:
            raise DatasetError(
                f"{self.path}: expected the ids of categories ({len(known)} of them), got {strange} in an annotation. "
                f"Check the file"
            )
        labels = np.array([index_of[each] for each in ids], np.int64)
        return ListColumn(self.offsets, labels, tuple(category.name for category in known))


def _bytes(text: str | msgspec.Raw) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
