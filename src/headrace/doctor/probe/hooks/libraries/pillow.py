"""Pillow. It opens files lazily: pixels are decoded wherever they are first asked for, a transform or numpy."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ...probe import Probe

BILINEAR = 2
NATIVE_DECODE = "native_decode"
"""Key of the remedy."""
FROM_UNREAD = "_headrace_unread"
"""Attribute of an image: it was converted from one of which no pixel had been read."""
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
    watch = _WouldTake(probe)
    probe.patches.replace(image.Image, "convert", watch.convert)
    probe.patches.replace(image.Image, "resize", watch.resize)


def install_file(probe: Probe, image_file: Any) -> None:
    probe.time_calls(image_file.ImageFile, "load", "decode", "Pillow load")
    probe.patches.replace(image_file.ImageFile, "load", _WouldTake(probe).load)


class _WouldTake:
    """Sees in samples that are looked at closely whether the native decoder could stand for Pillow's: for a PNG, or a
    bilinear resize of an image of which no pixel was read, converted to RGB or not."""

    def __init__(self, probe: Probe) -> None:
        self._look = probe.stages.look
        guard = probe.batches.guard
        self._see_load, self._see_resize = guard(self._at_load), guard(self._at_resize)
        self._is_unread, self._follow = guard(_is_unread), guard(_follow)

    def load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(image: Any, *args: Any, **kwargs: Any) -> Any:
            if self._look() is not None:
                self._see_load(image)
            return original(image, *args, **kwargs)

        return load

    def convert(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(image: Any, *args: Any, **kwargs: Any) -> Any:
            if self._look() is None or not self._is_unread(image):
                return original(image, *args, **kwargs)
            converted = original(image, *args, **kwargs)
            self._follow(converted)
            return converted

        return convert

    def resize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def resize(image: Any, size: Any, resample: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._look() is not None and resample == BILINEAR and not args and not kwargs:
                self._see_resize(image)
            return original(image, size, resample, *args, **kwargs)

        return resize

    def _at_load(self, image: Any) -> None:
        look = self._look()
        if look is not None and image.format == "PNG" and _is_unread(image):
            look.takes.add(NATIVE_DECODE)

    def _at_resize(self, image: Any) -> None:
        look = self._look()
        if look is not None and (FROM_UNREAD in vars(image) or _is_unread(image)):
            look.takes.add(NATIVE_DECODE)


def _is_unread(image: Any) -> bool:
    from ...remedies.images_old import is_unread  # which few processes need

    return is_unread(image)


def _follow(converted: Any) -> None:
    if converted.mode == "RGB":
        setattr(converted, FROM_UNREAD, True)


def install_plugin(probe: Probe, plugin: ModuleType) -> None:
    for value in list(vars(plugin).values()):
        if isinstance(value, type) and value.__module__ == plugin.__name__ and "load" in vars(value):
            probe.time_calls(value, "load", "decode", "Pillow load")
