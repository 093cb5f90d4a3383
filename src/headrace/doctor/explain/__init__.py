"""Explanation of a batch by its values: the recipe that makes each of its leaves from the samples' inputs.

Pure functions over arrays, without torch or I/O.
"""

from __future__ import annotations

from headrace.doctor.explain.masks import MaskExplanation, explain_mask
from headrace.doctor.explain.pictures import GREY, PictureExplanation, explain_picture
from headrace.doctor.explain.placements import Box, LeafPlacement, Sighting
from headrace.doctor.explain.planes import Normalisation, PlaneExplanation, explain_plane
from headrace.doctor.explain.resampling import FILTERS, resample
from headrace.doctor.explain.values import (
    CallExplanation,
    TokensExplanation,
    ValueExplanation,
    explain_tokens,
    explain_value,
)

__all__ = [
    "FILTERS",
    "GREY",
    "Box",
    "CallExplanation",
    "LeafPlacement",
    "MaskExplanation",
    "Normalisation",
    "PictureExplanation",
    "PlaneExplanation",
    "Sighting",
    "TokensExplanation",
    "ValueExplanation",
    "explain_mask",
    "explain_picture",
    "explain_plane",
    "explain_tokens",
    "explain_value",
    "resample",
]
