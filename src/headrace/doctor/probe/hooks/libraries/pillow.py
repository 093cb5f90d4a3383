"""Pillow. It opens files lazily: pixels are decoded wherever they are first asked for, a transform or numpy."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...probe import Probe

LOADERS = ["Avif", "Eps", "Gif", "Icns", "Ico", "Jpeg2K", "Tiff", "WebP"]
"""Plugins whose classes decode in a `load` of their own."""
TRANSFORMS = [
    "convert",
    "crop",
    "filter",
    "quantize",
    "reduce",
    "resize",
    "rotate",
    "thumbnail",
    "transform",
    "transpose",
]


def install_image(probe: Probe, image: Any) -> None:
    probe.time_calls(image, "open", "decode", "Pillow open")
    for name in TRANSFORMS:
        probe.time_calls(image.Image, name, "transform", f"Pillow {name}")


def install_file(probe: Probe, image_file: Any) -> None:
    probe.time_calls(image_file.ImageFile, "load", "decode", "Pillow load")


def install_plugin(probe: Probe, plugin: ModuleType) -> None:
    for value in list(vars(plugin).values()):
        if isinstance(value, type) and value.__module__ == plugin.__name__ and "load" in vars(value):
            probe.time_calls(value, "load", "decode", "Pillow load")
