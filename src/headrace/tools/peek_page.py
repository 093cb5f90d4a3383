"""Self-contained HTML page about a dataset, without scripts or external resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import PIL.Image

from headrace.data import (
    ByteColumn,
    BytesListColumn,
    Dataset,
    TextColumn,
    UnwritableError,
    contact_sheet,
    finish_partial_file,
    partial_file,
    picture_address,
)
from headrace.dropins import ImageReader
from headrace.errors import HeadraceError
from headrace.fields import Field, Image, Raw
from headrace.loader import Loader
from headrace.tools.peek_survey import PeekedSample, near_duplicates
from headrace.views import Letterbox, View

MOST_ROWS = 50
"""Maximum rows of each list (classes, failures, near-duplicates). The page states the number of omitted rows."""
_GROUP_PICTURES, _GROUP_PICTURE_PX = 6, 96
_BARS = 24
_WIDE = 16.0
"""Minimum ratio of the largest to the smallest value for logarithmic bars."""


@dataclass(frozen=True)
class DuplicateGroup:
    """Samples with nearly identical images."""

    keys: Sequence[str]
    pictures: Sequence[str]
    """`data:` URLs of the first samples' pictures."""


@dataclass(frozen=True)
class PeekContent:
    """Content of the page."""

    title: str
    samples: int
    """Number of samples in the dataset; `looks` may have fewer."""
    looks: Sequence[PeekedSample]
    """Surveyed samples, in the dataset's order."""
    classes: Mapping[str, int]
    """Number of samples by class in the whole dataset; empty without classes."""
    groups: Sequence[DuplicateGroup]
    sheet: str | None
    """`data:` URL of the contact sheet."""
    sheet_view: str
    """View of the samples on the sheet."""
    note: str | None = None
    """Reason for a missing sheet."""

    @property
    def failures(self) -> list[PeekedSample]:
        return [look for look in self.looks if look.error is not None]


def peeked(
    dataset: Dataset, column: str, looks: Sequence[PeekedSample], view: Sequence[View], *, samples: int, seed: int
) -> tuple[PeekContent, PIL.Image.Image | None]:
    """Return the page's content and the contact sheet, which is None if no sample can be loaded."""
    sheet, note = None, None
    try:
        sheet = augmented_sheet(dataset, column, view, samples=samples, seed=seed)
    except HeadraceError as error:
        note = f"No sheet: {error}"
    content = PeekContent(
        title=repr(dataset),
        samples=len(dataset),
        looks=looks,
        classes=class_counts(dataset),
        groups=duplicate_groups(dataset, column, looks),
        sheet=None if sheet is None else picture_address(sheet),
        sheet_view=" then ".join(map(repr, view)),
        note=note,
    )
    return content, sheet


def write_files(content: PeekContent, sheet: PIL.Image.Image | None, folder: Path) -> None:
    """Write peek.html, and peek.png if there is a sheet. Raises HeadraceError."""
    if sheet is not None:
        write_file(folder / "peek.png", lambda file: sheet.save(file, "PNG"), "--to")
    page = render(content).encode()
    write_file(folder / "peek.html", lambda file: file.write(page), "--to")


def write_file(path: Path, write: Callable[[BinaryIO], Any], option: str) -> None:
    """Write a file atomically. Raises HeadraceError, which names the option."""
    place = str(path.absolute())
    try:
        with partial_file(place) as partial:
            finish_partial_file(partial, place, write)
    except UnwritableError as error:
        raise HeadraceError(f"{option}: expected a folder to write, got {path.parent} ({error})") from error


def class_counts(dataset: Dataset) -> Mapping[str, int]:
    """Count the samples of each class in the column `label`; return an empty dict without classes."""
    label = dataset.columns.get("label")
    if dataset.classes is None or label is None or isinstance(label, ByteColumn | BytesListColumn):
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
    """Draw the first batch of a shuffled epoch with `view`. Raises HeadraceError if no sample can be loaded."""
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


def duplicate_groups(dataset: Dataset, column: str, looks: Sequence[PeekedSample]) -> list[DuplicateGroup]:
    """Group near-duplicates among the surveyed samples; the first groups have pictures."""
    seen = [(look, look.fingerprint) for look in looks if look.fingerprint is not None]
    reader = ImageReader(view=Letterbox((_GROUP_PICTURE_PX, _GROUP_PICTURE_PX)), output="numpy")

    def picture(look: PeekedSample) -> str:
        return picture_address(PIL.Image.fromarray(reader(dataset.read(column, look.position))))

    found = []
    for number, members in enumerate(near_duplicates([fingerprint for _, fingerprint in seen])):
        group = [seen[member][0] for member in members]
        shown = group[:_GROUP_PICTURES] if number < MOST_ROWS else []
        found.append(DuplicateGroup([look.key for look in group], [picture(look) for look in shown]))
    return found


@dataclass(frozen=True)
class Histogram:
    """Histogram: `counts[i]` values in [`edges[i]`, `edges[i + 1]`). The last bar includes its upper edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    smallest: float
    median: float
    largest: float
    is_logarithmic: bool
    """True if bar widths grow by a constant factor."""


def histogram(values: npt.ArrayLike) -> Histogram | None:
    """Bin numbers; return None without numbers. Integers get bars of integer width, at most one per value."""
    numbers = np.asarray(values)
    if not len(numbers):
        return None
    low, middle, high = np.quantile(numbers, (0, 0.5, 1)).tolist()
    is_whole, is_logarithmic = numbers.dtype.kind in "iu", low > 0 and high / low >= _WIDE
    if high == low:
        edges = np.array([low, low + 1])
    elif is_logarithmic:
        edges = np.geomspace(low, high, _BARS + 1)
        edges = np.unique(np.round(edges)) if is_whole else edges
    elif is_whole:
        step = max(1.0, np.ceil((high - low + 1) / _BARS))
        edges = np.arange(low, high + step + 1, step)
    else:
        edges = np.linspace(low, high, _BARS + 1)
    edges[-1] = max(edges[-1], high)
    counts, _ = np.histogram(numbers, edges)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), low, middle, high, is_logarithmic)


def render(content: PeekContent) -> str:
    """Render the page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("headrace.tools"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(figure=figure, printable=printable)
    looks = content.looks
    return environment.get_template("page.html").render(
        content=content,
        charts=[chart for chart in _charts(looks) if chart[2] is not None],
        formats=Counter(look.format or "not recognised" for look in looks if look.bytes is not None).most_common(),
        classes=sorted(content.classes.items(), key=lambda item: -item[1]),
        most=MOST_ROWS,
    )


def document(content: PeekContent) -> dict[str, Any]:
    """Return the content as a JSON document."""
    looks = content.looks
    return {
        "samples": content.samples,
        "looked": len(looks),
        "formats": dict(Counter(look.format for look in looks if look.format is not None)),
        "classes": dict(content.classes),
        "failures": [{"key": printable(look.key), "error": look.error} for look in content.failures],
        "near_duplicates": [[printable(key) for key in group.keys] for group in content.groups],
        **{
            title.lower().replace(" ", "_"): None
            if bars is None
            else {"smallest": bars.smallest, "median": bars.median, "largest": bars.largest}
            for title, _, bars in _charts(looks)
        },
    }


def _charts(looks: Sequence[PeekedSample]) -> list[tuple[str, str, Histogram | None]]:
    """Return the title, unit and histogram of each chart."""
    sizes = [look.size for look in looks if look.size is not None]
    return [
        ("Width", "px", histogram([width for width, _ in sizes])),
        ("Height", "px", histogram([height for _, height in sizes])),
        ("Aspect ratio", "width / height", histogram([width / height for width, height in sizes if height])),
        ("File size", "bytes", histogram([look.bytes for look in looks if look.bytes is not None])),
    ]


def figure(number: float) -> str:
    """Format a number with the digits that a reader needs: 1,234 and 0.75."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def printable(text: str) -> str:
    """Escape invalid UTF-8 in a name."""
    return text.encode("utf-8", "backslashreplace").decode()
