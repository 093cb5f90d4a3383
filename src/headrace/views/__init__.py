"""Views: the window of a source that becomes the output.

A view is a description. `compile_view` turns one view or a list into a `Program`, numbers from which the core draws
each sample's window: one geometry for every field of pixels. Semantics follow torchvision's transforms v2 under the
same names (crop, then resize). Pixels are resampled once, at the end.

Used by `fields` and `loader`. Read `views.py` and `program.py` first.
"""

from __future__ import annotations

from headrace.views.fixed_crops import FiveCrop, TenCrop, Tiles
from headrace.views.program import Program, compile_view
from headrace.views.views import (
    MAX_SIDE_PX,
    CenterCrop,
    Letterbox,
    Pads,
    RandomCrop,
    RandomHorizontalFlip,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomScale,
    RandomVerticalFlip,
    Resize,
    View,
)
