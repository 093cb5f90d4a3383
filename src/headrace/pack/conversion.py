"""Conversion of one picture for a pack, from bytes to bytes and an extension.

Each form is a public format: JPEG (ITU-T T.81), binary PPM and PGM (netpbm), YUV4MPEG2 (mjpegtools), PNG.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace import _core
from headrace.data import open_picture
from headrace.dropins import ImageReader
from headrace.errors import UsageError
from headrace.views import Resize

if TYPE_CHECKING:
    import PIL.Image
    from numpy.typing import NDArray

DENSE = ("mask", "depth", "segmentation")
"""Columns that are resized with the nearest filter and stored without loss, unless `dense` names others."""


class Form(StrEnum):
    """Format of the images in a pack."""

    lossless = "lossless"
    """The images' own format; JPEGs get a restart grid if their windows then decode faster."""
    jpeg = "jpeg"
    """JPEG, encoded anew at `quality` after the resize."""
    yuv420 = "yuv420"
    """Planes of the JPEG, in YUV4MPEG2: the same pixels without entropy decoding."""
    raw = "raw"
    """Pixels, in PPM or PGM."""


@dataclass(frozen=True)
class PackOptions:
    """Content of a pack. Two runs with equal options write equal bytes."""

    form: Form = Form.lossless
    short_side: int | None = None
    """Length of the short side in pixels, which larger images are reduced to; None: no resize."""
    quality: int = 90
    """JPEG quality of images that are encoded anew, 1 to 100."""
    dense: tuple[str, ...] = DENSE
    shuffle: int | None = None
    """Seed of the samples' order; None: the dataset's order."""
    max_shard_bytes: int = 1_000_000_000
    drop_bad: bool = False
    """True if samples that cannot be converted are left out and reported; else the first one is an error."""

    def __post_init__(self) -> None:
        if self.short_side is not None and self.short_side < 1:
            raise UsageError(f"short_side: expected at least 1 pixel, got {self.short_side}")
        if not 1 <= self.quality <= 100:
            raise UsageError(f"quality: expected 1 to 100, got {self.quality}")
        if self.max_shard_bytes < 1:
            raise UsageError(f"max_shard: expected at least 1 byte, got {self.max_shard_bytes}")
        if self.form is Form.lossless and self.short_side is not None:
            raise UsageError("short_side: expected form 'jpeg', 'yuv420' or 'raw' with it, got 'lossless'")
        if self.form is Form.jpeg and self.short_side is None:
            raise UsageError(
                "expected short_side with form 'jpeg': encoding anew alone loses quality and gains nothing"
            )


class Encoded(NamedTuple):
    """Content of a member, and its extension without a dot."""

    data: bytes
    extension: str


_NETPBM = rb"\s+(?:#[^\n]*\n\s*)*\d+\s+\d+\s+\d+\s"
_KINDS = {
    rb"\xff\xd8\xff": "jpg", rb"\x89PNG": "png", rb"GIF8[79]a": "gif", rb"(?s)BM.{4}\0{4}": "bmp",
    rb"(?s)RIFF.{4}WEBP": "webp", rb"P6" + _NETPBM: "ppm", rb"P5" + _NETPBM: "pgm", rb"YUV4MPEG2 ": "y4m",
    rb"II\*\0": "tif", rb"MM\0\*": "tif",
}  # fmt: skip
"""Expressions for the first bytes of formats. Texts may begin with BM or P6, so these ask for more."""


def extension_of(data: bytes) -> str | None:
    """Return the usual extension of a picture's format, by its first bytes; None if it is none of the known ones."""
    return next((name for magic, name in _KINDS.items() if re.match(magic, data)), None)


@dataclass(frozen=True)
class ImageConverter:
    """Conversion of single members. Thread-safe; the core's part runs without the GIL."""

    options: PackOptions
    _whole: ImageReader = field(init=False)
    _reduced: ImageReader = field(init=False)

    def __post_init__(self) -> None:
        side = self.options.short_side
        object.__setattr__(self, "_whole", ImageReader(output="numpy", exif=True))
        object.__setattr__(
            self, "_reduced", ImageReader(view=None if side is None else Resize(side), output="numpy", exif=True)
        )

    def convert(self, data: bytes, *, dense: bool) -> Encoded | None:
        """Return the content for the pack; None if `data` is not a picture, and stays as it is.

        `dense`: True for labels or depth. Pictures with more than 8 bits, or with a palette, count as dense.

        Raises SampleError, or ValueError, for a damaged picture.
        """
        kind = extension_of(data)
        if kind is None:
            return None
        if dense or (self.options.form is not Form.lossless and kind != "jpg" and _opened(data).mode not in _PHOTOS):
            return self._dense(data, kind)
        if self.options.form is Form.raw:
            return Encoded(netpbm(self.target(data)), "ppm")
        if self._is_larger(data):
            data, kind = _core.encode_jpeg(self._reduced(data), quality=self.options.quality), "jpg"
        elif kind == "jpg":
            data = self._transcoded(data)
        planes = _planes(data) if self.options.form is Form.yuv420 and kind == "jpg" else None
        return Encoded(data, kind) if planes is None else Encoded(planes, "y4m")

    def _transcoded(self, data: bytes) -> bytes:
        """Return a JPEG with a restart grid, or as it is. Raises SampleError, or ValueError, if nothing decodes it."""
        found = _core.transcode_jpeg(data)
        if found is None:
            self._whole(data)
            return data
        return found

    def target(self, data: bytes) -> NDArray[np.uint8]:
        """Return the pixels [H, W, 3] that a photograph has in the pack if its encoding loses nothing."""
        pixels: NDArray[np.uint8] = (self._reduced if self._is_larger(data) else self._whole)(data)
        return pixels

    def _is_larger(self, data: bytes) -> bool:
        side = self.options.short_side
        return side is not None and min(_opened(data).size) > side

    def _dense(self, data: bytes, kind: str) -> Encoded:
        """Reduce labels or depth with the nearest filter. Their values, and a palette, stay exact."""
        from PIL import Image

        side = self.options.short_side
        if side is None:
            return Encoded(data, kind)
        picture = _opened(data)
        if min(picture.size) <= side:
            return Encoded(data, kind)
        target = io.BytesIO()
        wide = picture.mode in ("I", "F")  # 32 bits, which PNG lacks
        picture.resize(_scaled(*picture.size, side), Image.Resampling.NEAREST).save(target, "TIFF" if wide else "PNG")
        return Encoded(target.getvalue(), "tif" if wide else "png")


_PHOTOS = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes of pictures with 8 bits a channel; others hold labels, depth or measurements, which stay exact."""


def _opened(data: bytes) -> PIL.Image.Image:
    return open_picture(data, _core.Limits())


def _planes(data: bytes) -> bytes | None:
    """Return a JPEG in YUV4MPEG2; None for one that has no such form, or that its EXIF turns or mirrors."""
    if _core.exif_orientation(data, _core.Limits()) not in (None, 1):
        return None
    try:
        return _core.jpeg_planes(data)
    except ValueError as error:
        if str(error).startswith("declined"):
            return None
        raise


def _scaled(width: int, height: int, short_side: int) -> tuple[int, int]:
    """Return width and height of a picture whose short side becomes `short_side`, as torchvision's Resize rounds."""
    if height <= width:
        return int(short_side * width / height), short_side
    return short_side, int(short_side * height / width)


def png_of(data: bytes) -> bytes:
    """Return the pixels of an `.npy` of uint8 or uint16, which `ArrayColumn.holds_pictures` has found, as a PNG."""
    from PIL import Image

    pixels = np.load(io.BytesIO(data))
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    target = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else np.ascontiguousarray(pixels)).save(target, "PNG")
    return target.getvalue()


def netpbm(pixels: NDArray[np.uint8]) -> bytes:
    """Return a binary PPM of uint8 pixels [H, W, 3]."""
    height, width, _ = pixels.shape
    return b"P6\n%d %d\n255\n" % (width, height) + np.ascontiguousarray(pixels).tobytes()
