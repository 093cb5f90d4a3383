"""From a data set to what the page shows: the survey's findings, and pictures of the samples themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import PIL.Image

from headrace.data import ByteColumn, Dataset, TextColumn
from headrace.dropins.image_reader import ImageReader
from headrace.errors import HeadraceError
from headrace.fields import Field, Image, Raw
from headrace.loader.loader import Loader
from headrace.peek.duplicates import near_duplicates
from headrace.peek.sheet import contact_sheet
from headrace.tools.peek_page import MOST_ROWS, Group, picture_address
from headrace.tools.peek_survey import Look
from headrace.views.views import Letterbox, View

_PICTURES = 6
_PICTURE_PX = 96


def class_counts(dataset: Dataset) -> Mapping[str, int]:
    """How often each class is named by the column `label`; empty where that holds none."""
    label = dataset.columns.get("label")
    if dataset.classes is None or label is None or isinstance(label, ByteColumn):
        return {}
    ids = np.arange(len(dataset.table)) if dataset.base_ids is None else dataset.base_ids
    named = label.labels if isinstance(label, TextColumn) else label
    assert named is not None, "classes are the labels' own"
    indices = named.take(ids)
    counts = np.bincount(
        np.concatenate(indices) if isinstance(indices, list) else indices, minlength=len(dataset.classes)
    )
    return dict(zip(dataset.classes, counts.tolist(), strict=True))


def augmented_sheet(dataset: Dataset, column: str, view: Sequence[View], *, samples: int, seed: int) -> PIL.Image.Image:
    """The first batch of a shuffled epoch, cut by `view`. Raises HeadraceError where no sample of it can be had."""
    count = min(samples, len(dataset))
    fields: dict[str, Field] = {"image": Image(source=column), "key": Raw(source="__key__")}
    loader = Loader(
        dataset, fields, view=view, batch_size=count, shuffle=True, seed=seed, max_bad=1.0, output="numpy",
        rank=0, world_size=1, prefetch=1,
    )  # fmt: skip
    iterator = iter(loader)
    try:
        batch = next(iterator)
    finally:
        iterator.close()
    return contact_sheet(batch["image"], batch["key"], columns=round(count**0.5))


def duplicate_groups(dataset: Dataset, column: str, looks: Sequence[Look]) -> list[Group]:
    """Near-duplicates among what was looked at, the first groups with pictures."""
    seen = [(look, look.fingerprint) for look in looks if look.fingerprint is not None]
    groups = near_duplicates([fingerprint for _, fingerprint in seen])
    reader = ImageReader(view=Letterbox((_PICTURE_PX, _PICTURE_PX)), output="numpy")
    return [
        Group(
            [seen[member][0].key for member in group],
            [_picture(dataset, column, seen[member][0], reader) for member in group[:_PICTURES]]
            if number < MOST_ROWS
            else [],
        )
        for number, group in enumerate(groups)
    ]


def _picture(dataset: Dataset, column: str, look: Look, reader: ImageReader) -> str:
    return picture_address(PIL.Image.fromarray(reader(dataset.read(column, look.position))))


def sheet_or_reason(
    dataset: Dataset, column: str, view: Sequence[View], *, samples: int, seed: int
) -> tuple[PIL.Image.Image | None, str | None]:
    """The sheet, or why there is none: a data set whose samples all fail still gets its page."""
    try:
        return augmented_sheet(dataset, column, view, samples=samples, seed=seed), None
    except HeadraceError as error:
        return None, f"No sheet: {error}"
