"""Fields: how bytes of a dataset become tensors of a batch."""

from __future__ import annotations

from typing import TypeAlias

from headrace.fields.dense import Depth, Mask, MaskDType, Normals, Quantiles
from headrace.fields.detection import BOX_FORMATS, Boxes, BoxFormat, Geometry, InstanceMasks, Keypoints
from headrace.fields.image import DTYPES, IMAGENET, DType, Filter, Image, ImageDType, Mode, Normalize
from headrace.fields.values import ARRAY_DTYPES, CAPTIONS, Array, ArrayDType, Captions, Label, Pad, Raw, Text

Spatial: TypeAlias = Image | Mask | Depth | Normals
"""Fields of pixels: all of a sample's are cut by its one view."""

Field: TypeAlias = Spatial | Boxes | Keypoints | InstanceMasks | Geometry | Text | Array | Label | Raw

__all__ = [
    "ARRAY_DTYPES",
    "BOX_FORMATS",
    "CAPTIONS",
    "DTYPES",
    "IMAGENET",
    "Array",
    "ArrayDType",
    "BoxFormat",
    "Boxes",
    "Captions",
    "DType",
    "Depth",
    "Field",
    "Filter",
    "Geometry",
    "Image",
    "ImageDType",
    "InstanceMasks",
    "Keypoints",
    "Label",
    "Mask",
    "MaskDType",
    "Mode",
    "Normalize",
    "Normals",
    "Pad",
    "Quantiles",
    "Raw",
    "Spatial",
    "Text",
]
