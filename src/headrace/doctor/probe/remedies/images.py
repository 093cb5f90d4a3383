"""Headrace's decoder in place of Pillow's, where an image is only opened, converted to RGB and resized.

A PNG's pixels are those that Pillow gives. A bilinear resize of an image that was not decoded yet is the core's, to
within one level of what Pillow gives. All else is Pillow's, as ever; so is what the decoder declines.
"""

from __future__ import annotations

import copy
import functools
import io
from typing import TYPE_CHECKING, Any, Callable

from .applied import Applied
from .images_old import finish, is_unread, whole_bytes

if TYPE_CHECKING:
    from ..probe import Probe

_BILINEAR = 2
OTHER_FILTER = "images are resized with another filter than BILINEAR, the one that the native decoder has"


def install(probe: Probe, _: bool, applied: Applied) -> None:
    probe.when_imported("PIL.Image", functools.partial(_watch, applied))


def _watch(applied: Applied, probe: Probe, image: Any) -> None:
    decoder = _Decoder(image, applied)
    probe.when_imported("PIL.ImageFile", decoder.watch)
    probe.patches.replace(image.Image, "convert", decoder.convert)
    probe.patches.replace(image.Image, "resize", decoder.resize)


class _Decoder:
    def __init__(self, image: Any, applied: Applied) -> None:
        self._image = image
        self._applied = applied
        self._core: Any = None
        self._deferred = _deferred_class(image.Image, self._pixels)
        self._load, self._defer = applied.guarded(self._load_png), applied.guarded(self._defer_rgb)
        self._cut, self._decline = applied.guarded(self._resized), applied.guarded(self._declined)

    def watch(self, probe: Probe, image_file: Any) -> None:
        probe.patches.replace(image_file.ImageFile, "load", self.load)

    def load(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def load(image: Any) -> Any:
            self._load(image)  # then there is nothing left to decode
            return original(image)

        return load

    def convert(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(image: Any, *args: Any, **kwargs: Any) -> Any:
            is_rgb = (args == ("RGB",) and not kwargs) or (not args and kwargs == {"mode": "RGB"})
            deferred = self._defer(image) if is_rgb else None
            return original(image, *args, **kwargs) if deferred is None else deferred

        return convert

    def resize(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def resize(image: Any, size: Any, resample: Any = None, *args: Any, **kwargs: Any) -> Any:
            is_usual = resample == _BILINEAR and not args and not kwargs
            cut = self._cut(image, size) if is_usual else self._decline(image)
            return original(image, size, resample, *args, **kwargs) if cut is None else cut

        return resize

    def _load_png(self, image: Any) -> None:
        if image.format != "PNG" or not is_unread(image):
            return
        data = whole_bytes(image)
        pixels = None if data is None else self._decoded(data, image.mode)
        if pixels is not None:
            image.im = self._image.fromarray(pixels).im
            finish(image)

    def _defer_rgb(self, image: Any) -> Any:
        """The bytes are read now, since the file may be closed by the time somebody wants pixels."""
        if not is_unread(image):
            return None
        data = whole_bytes(image)
        if data is None or not self._is_there():
            return None
        _read_from(image, data)
        return self._deferred(image, data)

    def _resized(self, image: Any, size: Any) -> Any:
        if not _is_size(size):
            return None  # Pillow says what is wrong with it
        is_deferred = type(image) is self._deferred and not image.is_loaded
        if not (is_deferred or is_unread(image)) or tuple(size) == image.size:
            return None
        data = image.data if is_deferred else whole_bytes(image)
        width, height = size
        pixels = None if data is None else self._decoded(data, image.mode, (height, width))
        if pixels is None:
            return None
        new = self._image.fromarray(pixels)
        new.info = image.info.copy()
        return new

    def _declined(self, image: Any) -> None:
        """Says so where the whole image must then be decoded, which a JPEG is no faster."""
        if (type(image) is self._deferred and not image.is_loaded) or is_unread(image):
            self._applied.refused(OTHER_FILTER)

    def _pixels(self, deferred: Any) -> Any:
        """Of an image of which somebody wants them as they are."""
        pixels = self._decoded(deferred.data, "RGB") if deferred.data.startswith(b"\x89PNG") else None
        if pixels is not None:
            return self._image.fromarray(pixels).im
        with self._image.open(io.BytesIO(deferred.data)) as image:
            image.load()
            return image.im if image.mode == "RGB" else image.im.convert("RGB", 0)

    def _decoded(self, data: bytes, mode: str, size: tuple[int, int] | None = None) -> Any:
        """An array [H, W] or [H, W, 3]; None where the decoder declines."""
        if not self._is_there():
            return None
        core = self._core
        view = None if size is None else core.Resize(size)
        try:
            pixels = core.decode_image(data, view=view, mode=mode, dct_scaling=False, output="numpy")
        except core.HeadraceError:
            return None
        self._applied.took()
        return pixels[:, :, 0] if mode == "L" else pixels

    def _is_there(self) -> bool:
        if self._core is None:
            try:
                import headrace
            except ImportError as error:
                self._applied.refused(f"headrace is not installed in the environment of the command ({error})")
                self._core = False
            else:
                self._core = headrace
        return self._core is not False


def _is_size(size: Any) -> bool:
    return isinstance(size, (tuple, list)) and len(size) == 2 and all(type(one) is int and one > 0 for one in size)


def _read_from(image: Any, data: bytes) -> None:
    """What was to be read from its file is from now on read from memory, as its owner may think that it has been."""
    if image._exclusive_fp:
        image.fp.close()
    image.fp = io.BytesIO(data)
    image._exclusive_fp = True


def _deferred_class(base: Any, pixels_of: Callable[[Any], Any]) -> Any:
    """An image of mode RGB whose pixels are decoded when they are first asked for. All of Pillow's methods call `load`
    first, as they must for a file."""

    class RGBImage(base):  # type: ignore[misc]  # of the user's own Pillow
        def __init__(self, image: Any, data: bytes) -> None:
            super().__init__()
            self.data = data
            self.is_loaded = False
            self._size = image.size
            self._mode = "RGB"
            self.info = image.info.copy()

        def load(self) -> Any:
            if not self.is_loaded:
                self.is_loaded = True
                self.im = pixels_of(self)
            return super().load()

        def __reduce_ex__(self, protocol: Any) -> Any:
            return copy.copy, (self.copy(),)  # this class has no name that a pickle could find it by

    return RGBImage
