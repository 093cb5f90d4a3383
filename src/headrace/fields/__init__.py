"""Fields, which describe how the bytes of a dataset become the tensors of a batch.

Used by `loader`. Read `image.py` and `dense.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.fields.dense import MOST_FINITE, Depth, Mask, MaskDType, Normals, Quantiles
from headrace.fields.detection import BOX_FORMATS, Boxes, BoxFormat, Geometry, InstanceMasks, Keypoints
from headrace.fields.image import DTYPES, IMAGENET, DType, Filter, Image, ImageDType, Mode, Normalize
from headrace.fields.image_lists import Images
from headrace.fields.values import (
    ARRAY_DTYPES,
    CAPTIONS,
    KEY_KINDS,
    Array,
    ArrayDType,
    Captions,
    Key,
    KeyKind,
    Label,
    Pad,
    Raw,
    Text,
)

if TYPE_CHECKING:
    from headrace.fields.tokens.text_columns import (
        ABSENT,
        ENTRY_FORMAT,
        LongTextError,
        ResolvedText,
        Sequences,
        UnfitTextError,
        decode_text,
        find_column,
        from_entries,
        resolve_texts,
        text_measured,
        to_entries,
    )

Spatial: TypeAlias = Image | Mask | Depth | Normals
"""Pixel fields; one view crops all the pixel fields of a sample."""

Field: TypeAlias = Spatial | Images | Boxes | Keypoints | InstanceMasks | Geometry | Text | Array | Label | Raw | Key


def __getattr__(name: str) -> Any:
    return getattr(import_module(f"{__name__}.tokens.text_columns"), name)  # imported lazily: only text fields need it
