"""Augmented samples side by side in one picture, each with its key under it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

_GAP_PX, _TEXT_PX = 6, 14
_PAPER, _INK = (255, 255, 255), (36, 41, 47)
_CUT = "…"


def contact_sheet(images: npt.NDArray[np.uint8], keys: Sequence[str], *, columns: int) -> PIL.Image.Image:
    """`images` uint8[N, 3, H, W] in rows of `columns`, each with its key; long keys keep their end."""
    height, width = images.shape[2:]
    rows = -(-len(images) // columns)
    cell = (width + _GAP_PX, height + _GAP_PX + _TEXT_PX)
    sheet = PIL.Image.new("RGB", (columns * cell[0] + _GAP_PX, rows * cell[1] + _GAP_PX), _PAPER)
    draw, font = PIL.ImageDraw.Draw(sheet), PIL.ImageFont.load_default(_TEXT_PX - 3)
    for index, (image, key) in enumerate(zip(images, keys, strict=True)):
        left, top = index % columns * cell[0] + _GAP_PX, index // columns * cell[1] + _GAP_PX
        sheet.paste(PIL.Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))), (left, top))
        draw.text((left, top + height + 1), _fitted(key, width, draw, font), fill=_INK, font=font)
    return sheet


def _fitted(
    key: str,
    width: int,
    draw: PIL.ImageDraw.ImageDraw,
    font: PIL.ImageFont.ImageFont | PIL.ImageFont.FreeTypeFont,
) -> str:
    """The key, or as much of its end as `width` pixels hold."""
    # The font has the letters of western Europe; all others would be one and the same box.
    text = key.encode("latin-1", "backslashreplace").decode("latin-1")
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(_CUT + text, font=font) > width:
        text = text[1:]
    return _CUT + text
