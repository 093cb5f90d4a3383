"""Which names are images, and which column stands for them."""

from __future__ import annotations

IMAGE_EXTENSIONS = (
    "jpg", "jpeg", "jpe", "jfif", "png", "webp", "avif", "bmp", "gif", "tif", "tiff",
    "ppm", "pgm", "pbm", "pnm", "jp2", "j2k",
)  # fmt: skip
"""Lower-case, in the order in which a tar sample's `image` is looked for; Pillow opens each."""

_SUFFIXES = tuple(f".{extension}".encode() for extension in IMAGE_EXTENSIONS)


def is_image_name(name: bytes) -> bool:
    return name.lower().endswith(_SUFFIXES)
