"""Resolution of a Loader's fields against its dataset: columns, names of the batch, and the device's part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.data import (
    ITEM,
    ArrayColumn,
    ByteColumn,
    BytesListColumn,
    Dataset,
    HeldColumn,
    ListItems,
    TextColumn,
    items_of_lists,
    label_column,
)
from headrace.errors import UsageError
from headrace.fields import (
    Array,
    Boxes,
    Field,
    Geometry,
    Image,
    Images,
    InstanceMasks,
    Key,
    Keypoints,
    Label,
    Raw,
    Spatial,
    Text,
    find_column,
)
from headrace.foreign_arguments import belongs
from headrace.loader.batch_values import part_name
from headrace.loader.decoding.arrays import check_held
from headrace.loader.decoding.detection import GEOMETRY_PARTS, beside_name, resolve_points
from headrace.loader.decoding.image_lists import COUNTS
from headrace.loader.decoding.pixels import expect_pixels, parts_of
from headrace.loader.decoding.texts import IDS, MASK
from headrace.loader.decoding.texts import PARTS as PACKED_PARTS
from headrace.loader.recipe import FieldColumns, draws_view, scale_of


def names_of(fields: Mapping[str, Field], packed: str | None = None) -> list[str]:
    """Return the flat names of a batch of these fields, in order. Raises UsageError if two parts share a name."""
    names: list[str] = []
    for name, field in fields.items():
        if isinstance(field, Spatial):
            names += [part.name for part in parts_of(name, field)]
        elif isinstance(field, Images):
            names += [name] if field.count is not None else [name, name + COUNTS]
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
    lists: list[tuple[str, Images, ListItems]] = []
    raws: list[tuple[str, Field, str]] = []
    values: list[tuple[str, HeldColumn]] = []
    for name, field in fields.items():
        if isinstance(field, _FOLLOWING | Key):
            continue
        if isinstance(field, Images):
            lists.append((name, field, _items_of(dataset, name, field)))
            continue
        if not isinstance(field, Spatial | Text | Array | Label | Raw):
            kind = field if isinstance(field, type) else type(field)
            raise UsageError(
                f"field {name!r}: expected Image, Images, Mask, Depth, Normals, Boxes, Keypoints, InstanceMasks, "
                f"Geometry, Text, Array, Label, Raw or Key, got {kind.__name__}{belongs(field)}"
            )
        column_name = field.source if field.source is not None else name
        column = find_column(dataset, column_name, f"field {name!r}")
        if isinstance(column, BytesListColumn):
            raise UsageError(
                f"field {name!r}: expected one value a sample, got lists of images in {column_name!r}; use hr.Images()"
            )
        if isinstance(field, Spatial):
            if not dataset.has_bytes(column_name):
                raise UsageError(
                    f"field {name!r}: expected a column of bytes or of paths, got the {column.kind}s of {column_name!r}"
                )
            if isinstance(column, ArrayColumn):
                expect_pixels(name, field, column)
            dataset.expect_files(column_name)
            images.append((name, field, column_name))
        elif isinstance(column, ByteColumn) or (
            isinstance(field, Array) and isinstance(column, TextColumn) and dataset.has_bytes(column_name)
        ):
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
    if points and all(draws_view(field) for _, field, _ in images):
        names = ", ".join(repr(name) for name, field in fields.items() if isinstance(field, _FOLLOWING))
        raise UsageError(
            f"field {names}: expected a field of pixels with it that follows the Loader's view, got views of their own "
            "for all; add one without view= and copies="
        )
    names_of(fields)
    images.sort(key=lambda image: (draws_view(image[1]), scale_of(image[1]) > 1))
    pixel_names = [name for name, field, _ in images if not draws_view(field) and scale_of(field) == 1]
    if images and scale_of(images[0][1]) > 1:
        raise UsageError(
            f"field {images[0][0]!r}: expected another field of pixels of scale 1, from whose size the view is drawn, "
            "got none; add the field of the lower resolution"
        )
    if view_from is not None and view_from not in pixel_names:
        raise UsageError(
            f"view_from: expected the name of an image field of scale 1 that follows the Loader's view, one of "
            f"{pixel_names}, got {view_from!r}"
        )
    if view_from is not None:
        images.sort(key=lambda image: image[0] != view_from)
    for name, field in fields.items():
        if isinstance(field, Key) and field.what == "path":
            dataset.expect_paths(column_of_paths(name, field, images), f"field {name!r}")
    return FieldColumns(tuple(images), tuple(raws), tuple(values), tuple(lists), bool(points))


def _items_of(dataset: Dataset, name: str, field: Images) -> ListItems:
    """Return the images of a field's lists. Raises UsageError for another column, and NotFoundError for no file."""
    items = items_of_lists(dataset.table, name if field.source is None else field.source, f"field {name!r}")
    if not len(items.dataset):
        raise UsageError(f"field {name!r}: expected images in the lists of {dataset!r}, got none in any")
    items.dataset.expect_files(ITEM)
    return items


def column_of_paths(name: str, field: Key, images: Sequence[tuple[str, Spatial, str]]) -> str:
    """Return the column of the requested files; by default the images' column."""
    if field.source is None and not images:
        raise UsageError(f"field {name!r}: expected a field of pixels, whose files are meant, got none; give source=")
    return images[0][2] if field.source is None else field.source


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
