"""`Recipe`, the full description of a pass, and the dataset's columns that each field reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from headrace._core import Limits
from headrace.augment import AugmentProgram
from headrace.data import ByteColumn, Dataset, HeldColumn, TextColumn, label_column
from headrace.errors import UsageError
from headrace.fields import (
    Array,
    Boxes,
    Field,
    Geometry,
    Image,
    InstanceMasks,
    Key,
    Keypoints,
    Label,
    Raw,
    ResolvedText,
    Spatial,
    Text,
    find_column,
)
from headrace.loader.bad_samples import Quarantine
from headrace.loader.batch_mixing import BatchMixing
from headrace.loader.batch_values import part_name
from headrace.loader.cache import EpochCache
from headrace.loader.decoding.arrays import ArrayContent, FieldContent, KeyContent, check_held
from headrace.loader.decoding.detection import GEOMETRY_PARTS, PointFields, beside_name, resolve_points
from headrace.loader.decoding.pixels import PixelPart, parts_of
from headrace.loader.decoding.texts import IDS, MASK, PackedTextContent, RawTextContent, TextContent, TextMeter
from headrace.loader.decoding.texts import PARTS as PACKED_PARTS
from headrace.loader.device_augment import DeviceAugment
from headrace.plan import EpochPlan
from headrace.views import Program

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


Sample: TypeAlias = dict[str, Any]
Batch: TypeAlias = dict[str, Any]
SampleMap: TypeAlias = Callable[[Sample, np.random.Generator], Sample]
BatchMap: TypeAlias = Callable[[Batch, np.random.Generator], Batch]
OnError: TypeAlias = Literal["replace", "raise", "skip"]
Output: TypeAlias = Literal["torch", "numpy"]


@dataclass(frozen=True)
class FieldColumns:
    """Fields grouped by the way they are made, with their columns."""

    images: tuple[tuple[str, Spatial, str], ...]
    """Fields of pixels as (name, field, column), in the order in which the core works on them.

    Views are drawn from the size of the first field. Fields with their own views come last."""
    raws: tuple[tuple[str, Field, str], ...]
    """Fields made from a column's undecoded bytes."""
    values: tuple[tuple[str, HeldColumn], ...]
    """Fields that the dataset holds, as (name, column)."""
    points: PointFields
    """Fields of places in the images, which follow the views."""

    @property
    def followers(self) -> tuple[tuple[str, Spatial, str], ...]:
        """Fields of pixels that follow the Loader's view."""
        return tuple(image for image in self.images if not _draws_view(image[1]))


@dataclass(frozen=True, kw_only=True)
class Recipe(FieldColumns):
    """Full description of a pass, frozen and resolved against the dataset."""

    dataset: Dataset
    plan: EpochPlan
    program: Program
    augment: AugmentProgram | None
    """Augmentations of the sample, with one draw for all its fields."""
    colours: DeviceAugment | None
    """Augmentations of samples and fields that the device runs instead of the core."""
    fields: Mapping[str, Field]
    texts: tuple[ResolvedText, ...]
    packed: str | None
    """Name of the text field that the plan packs into shared rows."""
    measured: str | None
    """Name of the text field with the lengths that decide which samples share a batch."""
    threads: int
    """Maximum threads at a time; a pass's setting is the number at work."""
    prefetch: int
    """Maximum batches in flight or ready."""
    on_error: OnError
    max_bad: float
    quarantine: Quarantine | None
    output: Output
    map: SampleMap | None
    map_workers: int
    """Processes for `map`; 0 for threads."""
    multiprocessing_context: str | BaseContext | None
    batch_map: BatchMap | None
    mixing: BatchMixing | None
    level: str
    limits: Limits
    cache: EpochCache | None = None
    pass_samples: int | None = None
    """Number of different samples that this rank takes in a pass; None for its part of the plan's epoch."""

    @property
    def parts(self) -> list[PixelPart]:
        """Arrays that the core writes for `images`, in their order."""
        return [part for name, field, _ in self.images for part in parts_of(name, field)]

    @property
    def read_columns(self) -> list[str]:
        """Columns of bytes that the core reads, each once."""
        return list(dict.fromkeys(column for _, _, column in (*self.images, *self.raws)))

    @property
    def names(self) -> list[str]:
        """Flat names of the batch, in order."""
        return names_of(self.fields, self.packed)


def names_of(fields: Mapping[str, Field], packed: str | None = None) -> list[str]:
    """Return the flat names of a batch of these fields, in order. Raises UsageError if two parts share a name."""
    names: list[str] = []
    for name, field in fields.items():
        if isinstance(field, Spatial):
            names += [part.name for part in parts_of(name, field)]
        elif isinstance(field, Text):
            names += [part_name(name, part) for part in (PACKED_PARTS if name == packed else (IDS, MASK))]
        elif isinstance(field, Geometry):
            names += [part_name(name, part) for part in GEOMETRY_PARTS]
        else:
            names += [name, *(beside_name(name, column) for column in getattr(field, "beside", ()))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"field {twice[0]!r}: expected a name of its own, got that of what comes alongside another field; rename "
            "it, or leave the other out, with Depth(valid=False) or without beside="
        )
    return names


_FOLLOWING = Boxes | Keypoints | InstanceMasks | Geometry
"""Fields that follow the views of the images."""


def resolve_columns(dataset: Dataset, fields: Mapping[str, Field], view_from: str | None) -> FieldColumns:
    """Find each field's column. Raises UsageError for a missing column, or one of another kind."""
    images: list[tuple[str, Spatial, str]] = []
    raws: list[tuple[str, Field, str]] = []
    values: list[tuple[str, HeldColumn]] = []
    for name, field in fields.items():
        if isinstance(field, _FOLLOWING | Key):
            continue
        if not isinstance(field, Spatial | Text | Array | Label | Raw):
            raise UsageError(
                f"field {name!r}: expected Image, Mask, Depth, Normals, Boxes, Keypoints, InstanceMasks, Geometry, "
                f"Text, Array, Label, Raw or Key, got {type(field).__name__}"
            )
        column_name = field.source if field.source is not None else name
        column = find_column(dataset, column_name, f"field {name!r}")
        if isinstance(field, Spatial):
            if not dataset.has_bytes(column_name):
                raise UsageError(
                    f"field {name!r}: expected a column of bytes or of paths, got the {column.kind}s of {column_name!r}"
                )
            dataset.expect_files(column_name)
            images.append((name, field, column_name))
        elif isinstance(column, ByteColumn) or (isinstance(field, Array) and dataset.has_bytes(column_name)):
            dataset.expect_files(column_name)
            raws.append((name, field, column_name))
        elif isinstance(field, Array):
            assert not isinstance(column, ByteColumn), "those come before"
            check_held(name, column_name, column)
        elif not isinstance(field, Text):  # `resolve_texts` finds the columns of texts
            if isinstance(field, Label):
                column = label_column(column, f"field {name!r}", advice="; use Raw()")
            elif field.text and not isinstance(column, TextColumn):
                raise UsageError(
                    f"field {name!r}: expected a column of texts or of bytes, got the {column.kind}s of "
                    f"{column_name!r}; leave out text=True"
                )
            values.append((name, column))
    points = resolve_points(dataset, fields)
    if points and not images:
        names = ", ".join(repr(name) for name, field in fields.items() if isinstance(field, _FOLLOWING))
        raise UsageError(f"field {names}: expected an image field with it, whose view it follows, got none")
    if points and all(_draws_view(field) for _, field, _ in images):
        names = ", ".join(repr(name) for name, field in fields.items() if isinstance(field, _FOLLOWING))
        raise UsageError(
            f"field {names}: expected a field of pixels with it that follows the Loader's view, got views of their own "
            "for all; add one without view= and copies="
        )
    names_of(fields)
    images.sort(key=lambda image: _draws_view(image[1]))
    pixel_names = [name for name, field, _ in images if not _draws_view(field)]
    if view_from is not None and view_from not in pixel_names:
        raise UsageError(
            f"view_from: expected the name of an image field that follows the Loader's view, one of {pixel_names}, got "
            f"{view_from!r}"
        )
    if view_from is not None:
        images.sort(key=lambda image: image[0] != view_from)
    for name, field in fields.items():
        if isinstance(field, Key) and field.what == "path":
            dataset.expect_paths(_column_of_paths(name, field, images), f"field {name!r}")
    return FieldColumns(tuple(images), tuple(raws), tuple(values), points)


def _column_of_paths(name: str, field: Key, images: Sequence[tuple[str, Spatial, str]]) -> str:
    """Return the column of the requested files; by default the images' column."""
    if field.source is None and not images:
        raise UsageError(f"field {name!r}: expected a field of pixels, whose files are meant, got none; give source=")
    return images[0][2] if field.source is None else field.source


def _draws_view(field: Spatial) -> bool:
    return isinstance(field, Image) and field.draws_view


def obvious_fields(dataset: Dataset) -> dict[str, Field]:
    """Return the default fields of a Loader: the image, the label, and the bytes of the rest.

    Aliases win over the extensions that they stand for.
    """
    fields: dict[str, Field] = {}
    if "image" in dataset.columns:
        fields["image"] = Image()
    if "label" in dataset.columns:
        fields["label"] = Label()
    for name in ("text", "json"):
        if name in dataset.columns:
            fields[name] = Raw()
    if not fields:
        have = ", ".join(dataset.columns)
        raise UsageError(f"expected a column called image, label, text or json, got {have}; name the fields you want")
    return fields


def contents_of(recipe: Recipe, meter: TextMeter) -> tuple[FieldContent, ...]:
    """Return the recipe's fields that Python makes, for one pass. `meter` counts the cost of encoding texts."""
    raws = {name: number for number, (name, _, _) in enumerate(recipe.raws)}
    texts = [
        (PackedTextContent if text.name == recipe.packed else TextContent)(
            text, raws.get(text.name), meter, None if recipe.cache is None else recipe.cache.tokens(text)
        )
        for text in recipe.texts
    ]
    arrays = [
        ArrayContent(
            dataset=recipe.dataset,
            name=name,
            field=field,
            column=name if field.source is None else field.source,
            raw=raws.get(name),
            limits=recipe.limits,
        )
        for name, field in recipe.fields.items()
        if isinstance(field, Array)
    ]
    keys = [
        KeyContent(
            dataset=recipe.dataset,
            name=name,
            what=field.what,
            column=_column_of_paths(name, field, recipe.images) if field.what == "path" else None,
        )
        for name, field in recipe.fields.items()
        if isinstance(field, Key)
    ]
    strings = [
        RawTextContent(dataset=recipe.dataset, name=name, column=column, raw=raws[name])
        for name, field, column in recipe.raws
        if isinstance(field, Raw) and field.text
    ]
    return (*texts, *arrays, *keys, *strings)
