"""Remedies for images: Headrace's decoder in place of Pillow's, and a cache of decoded images."""

from __future__ import annotations

import copy
import hashlib
import io
import os
from typing import TYPE_CHECKING, Any, Callable

from .loaders import change

if TYPE_CHECKING:
    from ..patches import Function
    from . import InjectedRemedy

OTHER_FILTER = "images are resized with another filter than BILINEAR, the one that the native decoder has"
_BILINEAR = 2
_STARTS = {"JPEG": b"\xff\xd8", "PNG": b"\x89PNG"}
_BYTES = {"L": 1, "RGB": 4}
"""Bytes of a pixel in Pillow's memory, by mode."""


# Which Pillow images can be replaced, and where their bytes come from.


def is_unread(image: Any) -> bool:
    """Return True for an opened file of a common format with one frame, of which no pixel has been decoded."""
    return bool(
        getattr(image, "tile", None)
        and getattr(image, "format", None) in _STARTS
        and image.mode in ("L", "RGB")
        and "transparency" not in image.info
        and getattr(image, "n_frames", 1) == 1
        and not image.decoderconfig  # a JPEG to be decoded at a smaller size
        and (image.format == "JPEG" or image.tile[0][3] in ("L", "RGB"))  # 8 bits per channel
    )


def whole_bytes(image: Any) -> bytes | None:
    """Read an image's whole file, preserving its position; None if it does not begin with the image."""
    file = image.fp
    at = file.tell()
    file.seek(0)
    data: bytes = file.read()
    file.seek(at)
    return data if data.startswith(_STARTS[image.format]) else None


def source_key(image: Any) -> tuple[Any, ...] | None:
    """Return a key of an image's source: its path, its position in a tar, or a digest of its content."""
    raw = getattr(image.fp, "raw", None)
    if type(raw).__module__ == "tarfile":
        member: Any = raw
        archive = getattr(getattr(member, "fileobj", None), "name", None)
        return (archive, member.offset, member.size) if isinstance(archive, str) else None
    if image.filename:
        return (os.fsdecode(image.filename), os.fstat(image.fp.fileno()).st_mtime_ns)
    if hasattr(image.fp, "getbuffer"):
        return (hashlib.blake2b(image.fp.getbuffer(), digest_size=16).digest(),)
    return None


def finish(image: Any) -> None:
    """Do what Pillow's own `load` does once the pixels are set."""
    image.tile = []
    if image._exclusive_fp and image._close_exclusive_fp_after_loading and image.fp is not None:
        image.fp.close()
    if getattr(image, "png", None) is not None:
        image.png.close()
        image.png = None
    image.fp = None


def install_native_decode(remedy: InjectedRemedy, _: bool) -> None:
    """Decode with headrace if an image is only opened, converted to RGB and resized.

    A PNG's pixels are identical to Pillow's. The bilinear resize of an undecoded image uses the core, within one level
    of Pillow's result. Everything else stays with Pillow, including what the decoder declines.
    """

    def install(image: Any) -> None:
        decoder = _Decoder(image, remedy)
        remedy.around("PIL.ImageFile", "ImageFile.load", decoder.load)
        remedy.patches.around(image.Image, "convert", decoder.convert)
        remedy.patches.around(image.Image, "resize", decoder.resize)

    remedy.when_imported("PIL.Image", install)


class _Decoder:
    """Headrace's decoder in place of Pillow's methods."""

    def __init__(self, image: Any, remedy: InjectedRemedy) -> None:
        self._image = image
        self._remedy = remedy
        self._deferred = _deferred_class(image.Image, self._pixels)
        self._load, self._defer = remedy.guarded(self._load_png), remedy.guarded(self._defer_rgb)
        self._cut, self._decline = remedy.guarded(self._resized), remedy.guarded(self._declined)

    def load(self, original: Function, image: Any) -> Any:
        self._load(image)  # then nothing is left to decode
        return original(image)

    def convert(self, original: Function, image: Any, *args: Any, **kwargs: Any) -> Any:
        is_rgb = (args == ("RGB",) and not kwargs) or (not args and kwargs == {"mode": "RGB"})
        deferred = self._defer(image) if is_rgb else None
        return original(image, *args, **kwargs) if deferred is None else deferred

    def resize(self, original: Function, image: Any, size: Any, resample: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_usual = resample == _BILINEAR and not args and not kwargs
        cut = self._cut(image, size) if is_usual else self._decline(image)
        return original(image, size, resample, *args, **kwargs) if cut is None else cut

    def _is_undecoded(self, image: Any) -> bool:
        return (type(image) is self._deferred and not image.is_loaded) or is_unread(image)

    def _load_png(self, image: Any) -> None:
        if image.format != "PNG" or not is_unread(image):
            return
        data = whole_bytes(image)
        pixels = None if data is None else self._decoded(data, image.mode)
        if pixels is not None:
            image.im = self._image.fromarray(pixels).im
            finish(image)

    def _defer_rgb(self, image: Any) -> Any:
        """Read the bytes now, since the file may be closed before the pixels are used."""
        if not is_unread(image):
            return None
        data = whole_bytes(image)
        if data is None or self._remedy.headrace is None:
            return None
        if image._exclusive_fp:
            image.fp.close()
        # Later reads come from memory, since the owner of the file may assume that it has been read.
        image.fp, image._exclusive_fp = io.BytesIO(data), True
        return self._deferred(image, data)

    def _resized(self, image: Any, size: Any) -> Any:
        if not self._is_undecoded(image) or tuple(size) == image.size:
            return None
        data = image.data if type(image) is self._deferred else whole_bytes(image)
        width, height = size
        pixels = None if data is None else self._decoded(data, image.mode, (height, width))
        if pixels is None:
            return None
        new = self._image.fromarray(pixels)
        new.info = image.info.copy()
        return new

    def _declined(self, image: Any) -> None:
        """Report a resize that needs the whole image decoded, which the core does no faster for a JPEG."""
        if self._is_undecoded(image):
            self._remedy.refused(OTHER_FILTER)

    def _pixels(self, deferred: Any) -> Any:
        """Decode an image for use of its unchanged pixels."""
        pixels = self._decoded(deferred.data, "RGB") if deferred.data.startswith(b"\x89PNG") else None
        if pixels is not None:
            return self._image.fromarray(pixels).im
        with self._image.open(io.BytesIO(deferred.data)) as image:
            image.load()
            return image.im if image.mode == "RGB" else image.im.convert("RGB", 0)

    def _decoded(self, data: bytes, mode: str, size: tuple[int, int] | None = None) -> Any:
        """Return an array [H, W] or [H, W, 3], or None if the decoder declines."""
        core = self._remedy.headrace
        if core is None:
            return None
        view = None if size is None else core.Resize(size)
        try:
            pixels = core.decode_image(data, view=view, mode=mode, dct_scaling=False, exif=False, output="numpy")
        except core.HeadraceError:
            return None
        self._remedy.took()
        return pixels[:, :, 0] if mode == "L" else pixels


def _deferred_class(base: Any, pixels_of: Callable[[Any], Any]) -> Any:
    """Return a class of RGB images with pixels decoded on first use.

    All of Pillow's methods call `load` first, as they must for a file.
    """

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
            return copy.copy, (self.copy(),)  # pickle cannot find this class by name

    return RGBImage


def install_image_cache(remedy: InjectedRemedy, limits: dict[str, int]) -> None:
    """Cache decoded images in the memory of each worker; `limits` has the maximum `bytes` per process."""

    @remedy.guarded
    def keep_workers(loader: Any) -> None:
        """Make workers persistent: their cache would be lost at the end of an epoch."""
        is_ours = remedy.training.thread.is_its_thread()
        if is_ours and loader.num_workers and not loader.persistent_workers:
            change(loader, {"persistent_workers": True})

    def begin(original: Function, loader: Any) -> Any:
        keep_workers(loader)
        return original(loader)

    remedy.around("PIL.ImageFile", "ImageFile.load", _ImageCache(limits["bytes"], remedy).load)
    remedy.around("torch.utils.data.dataloader", "DataLoader.__iter__", begin)


class _ImageCache:
    """Cache of the results of `load`, by the image's source. Images that no longer fit are not cached."""

    def __init__(self, most_bytes: int, remedy: InjectedRemedy) -> None:
        self._free = most_bytes
        self._images: dict[tuple[Any, ...], tuple[Any, dict[Any, Any]]] = {}
        self._remedy = remedy
        self._key = remedy.guarded(lambda image: source_key(image) if is_unread(image) else None)
        self._give, self._keep = remedy.guarded(self._give_cached), remedy.guarded(self._keep_loaded)

    def load(self, original: Function, image: Any) -> Any:
        key = self._key(image)
        if key is None:
            return original(image)
        self._give(image, key)  # then nothing is left to decode
        result = original(image)
        self._keep(image, key)
        return result

    def _give_cached(self, image: Any, key: tuple[Any, ...]) -> None:
        cached = self._images.get(key)
        if cached is not None:
            pixels, info = cached
            image.im = pixels.copy()
            image.info.update(info)
            finish(image)
            self._remedy.took()

    def _keep_loaded(self, image: Any, key: tuple[Any, ...]) -> None:
        if key in self._images or image.mode not in _BYTES:
            return
        size = image.size[0] * image.size[1] * _BYTES[image.mode]
        if size <= self._free:
            self._free -= size
            self._images[key] = (image.im.copy(), dict(image.info))
