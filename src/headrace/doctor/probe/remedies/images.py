"""Remedies for images: Headrace's decoder in place of Pillow's, and a cache of decoded images."""

from __future__ import annotations

import copy
import functools
import hashlib
import io
import os
from typing import TYPE_CHECKING, Any, Callable

from .loaders import AppliedRemedy, change

if TYPE_CHECKING:
    from ..probe import Probe


# -- from doctor/probe/remedies/images.py: What remedies for images share: which image of Pillow's may be answered
# for, and where its bytes come from.


_STARTS = {"JPEG": b"\xff\xd8", "PNG": b"\x89PNG"}


def is_unread(image: Any) -> bool:
    """Whether it is a file that was opened and of which no pixel has been decoded: one frame of a usual kind."""
    return bool(
        getattr(image, "tile", None)
        and getattr(image, "format", None) in _STARTS
        and image.mode in ("L", "RGB")
        and "transparency" not in image.info
        and getattr(image, "n_frames", 1) == 1
        and not image.decoderconfig  # a JPEG that is to be decoded at a smaller size
        and (image.format == "JPEG" or image.tile[0][3] in ("L", "RGB"))  # 8 bits a channel
    )


def whole_bytes(image: Any) -> bytes | None:
    """The file that it was opened from, whose position stays; None where it does not begin with the image."""
    file = image.fp
    at = file.tell()
    file.seek(0)
    data: bytes = file.read()
    file.seek(at)
    return data if data.startswith(_STARTS[image.format]) else None


def source_key(image: Any) -> tuple[Any, ...] | None:
    """What tells the file that it was opened from: its path, its place in a tar, or what it holds."""
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
    """Its pixels are there: what Pillow's own `load` does when it is done."""
    image.tile = []
    if image._exclusive_fp and image._close_exclusive_fp_after_loading and image.fp is not None:
        image.fp.close()
    if getattr(image, "png", None) is not None:
        image.png.close()
        image.png = None
    image.fp = None


# -- from doctor/probe/remedies/native_decode.py: Headrace's decoder in place of Pillow's, where an image is only
# opened, converted to RGB and resized.
#
# A PNG's pixels are those that Pillow gives. A bilinear resize of an image that was not decoded yet is the core's, to
# within one level of what Pillow gives. All else is Pillow's, as ever; so is what the decoder declines.


_BILINEAR = 2
OTHER_FILTER = "images are resized with another filter than BILINEAR, the one that the native decoder has"


def install_native_decode(probe: Probe, _: bool, applied: AppliedRemedy) -> None:
    probe.when_imported("PIL.Image", functools.partial(_watch, applied))


def _watch(applied: AppliedRemedy, probe: Probe, image: Any) -> None:
    decoder = _Decoder(image, applied)
    probe.when_imported("PIL.ImageFile", decoder.watch)
    probe.patches.replace(image.Image, "convert", decoder.convert)
    probe.patches.replace(image.Image, "resize", decoder.resize)


class _Decoder:
    def __init__(self, image: Any, applied: AppliedRemedy) -> None:
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


# -- from doctor/probe/remedies/cache.py: Decoded images, kept in the memory of each worker within a budget of bytes.


_BYTES = {"L": 1, "RGB": 4}
"""Of a pixel in Pillow's memory."""


def install_image_cache(probe: Probe, limits: dict[str, int], applied: AppliedRemedy) -> None:
    """`limits` has the `bytes` that each process may hold."""
    cache = _Cache(limits["bytes"], applied)
    probe.when_imported("PIL.ImageFile", cache.watch)
    probe.when_imported("torch.utils.data.dataloader", cache.watch_loaders)


def _keep_workers(probe: Probe, loader: Any) -> None:
    if probe.training.is_its_thread() and loader.num_workers and not loader.persistent_workers:
        change(loader, {"persistent_workers": True})


class _Cache:
    """What `load` gave, by where the image came from. What does not fit any more is not kept."""

    def __init__(self, most_bytes: int, applied: AppliedRemedy) -> None:
        self._free = most_bytes
        self._images: dict[tuple[Any, ...], tuple[Any, dict[Any, Any]]] = {}
        self._applied = applied
        self._key = applied.guarded(lambda image: source_key(image) if is_unread(image) else None)
        self._give, self._keep = applied.guarded(self._give_kept), applied.guarded(self._keep_loaded)

    def watch(self, probe: Probe, image_file: Any) -> None:
        probe.patches.replace(image_file.ImageFile, "load", self.load)

    def watch_loaders(self, probe: Probe, dataloader: Any) -> None:
        """Workers live on from one epoch to the next: what they hold would go with them."""
        keep = self._applied.guarded(lambda loader: _keep_workers(probe, loader))

        def make(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(original)
            def __iter__(loader: Any) -> Any:  # noqa: N807
                keep(loader)
                return original(loader)

            return __iter__

        probe.patches.replace(dataloader.DataLoader, "__iter__", make)

    def load(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def load(image: Any) -> Any:
            key = self._key(image)
            if key is None:
                return original(image)
            self._give(image, key)  # then there is nothing left to decode
            result = original(image)
            self._keep(image, key)
            return result

        return load

    def _give_kept(self, image: Any, key: tuple[Any, ...]) -> None:
        kept = self._images.get(key)
        if kept is not None:
            pixels, info = kept
            image.im = pixels.copy()
            image.info.update(info)
            finish(image)
            self._applied.took()

    def _keep_loaded(self, image: Any, key: tuple[Any, ...]) -> None:
        if key in self._images or image.mode not in _BYTES:
            return
        size = image.size[0] * image.size[1] * _BYTES[image.mode]
        if size <= self._free:
            self._free -= size
            self._images[key] = (image.im.copy(), dict(image.info))
