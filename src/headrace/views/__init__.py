"""Views: which window of a source becomes the output."""

from __future__ import annotations

from headrace.views.views import (
    MAX_SIDE_PX,
    CenterCrop,
    Letterbox,
    Program,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomScale,
    RandomVerticalFlip,
    Resize,
    View,
    compile_view,
)

__all__ = [
    "MAX_SIDE_PX",
    "CenterCrop",
    "Letterbox",
    "Program",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomScale",
    "RandomVerticalFlip",
    "Resize",
    "View",
    "compile_view",
]
