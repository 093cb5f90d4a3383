"""Explanation of a batch by its values: the recipe of each leaf from the samples' inputs, by pure functions."""

from __future__ import annotations

from headrace.doctor.explain.derived_pictures import with_clear_scale
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
