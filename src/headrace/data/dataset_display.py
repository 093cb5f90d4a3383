"""Display of a dataset: one line of text, and in notebooks a contact sheet of its first images."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data.columns import ByteColumn, Column, TextColumn
from headrace.data.pillow_images import apart_formats, open_picture
from headrace.data.table import SampleTable

if TYPE_CHECKING:
    import PIL.Image

_GAP_PX, _TEXT_PX = 6, 14
_PAPER, _BLANK, _INK = (255, 255, 255), (208, 215, 222), (36, 41, 47)
_CUT = "…"

SHOWN = 12
"""Images shown in a notebook; few, since every display reads them again."""
_ACROSS, _CELL_PX = 6, 112
_MOST_PIXELS = 1 << 25


def dataset_line(table: SampleTable, chosen: int | None, classes: Sequence[str] | None) -> str:
    """Describe a dataset in one line. `chosen`: number of selected samples; None for all."""
    count = f"{len(table):,}" if chosen is None else f"{chosen:,} of {len(table):,}"
    held = "" if classes is None else f" in {len(classes):,} classes"
    columns = ", ".join(f"{name} ({_kind_text(name, each, len(table))})" for name, each in table.columns.items())
    skipped = ", ".join(f"{what} ({count:,})" for what, count in table.skipped.items())
    parts = [f"{count} samples{held}", f"columns {columns}", table.source]
    return "Dataset: " + ", ".join(parts) + (f"; skipped: {skipped}" if skipped else "")


def _kind_text(name: str, column: Column, samples: int) -> str:
    classes = None if isinstance(column, ByteColumn) else column.classes
    # Label texts are classes, not captions or paths, unless all differ; other texts if each occurs twice on average.
    most = samples - 1 if name == "label" else samples // 2
    if classes is None or (isinstance(column, TextColumn) and len(classes) > most):
        return column.kind
    return f"{column.kind}: {len(classes):,} classes"


def dataset_html(line: str, keys: Sequence[str], read: Callable[[int], bytes | None]) -> str:
    """Return a dataset's line and a contact sheet of its images; `read(index)` returns the file of each key.

    A blank cell marks an image that cannot be read, exceeds 33 million pixels, or needs a separate process to decode.
    """
    # File names may contain bytes that are not UTF-8.
    text = f"<pre>{html.escape(line.encode('utf-8', 'backslashreplace').decode())}</pre>"
    if not keys:
        return text
    cells = np.stack([_cell(read, index) for index in range(len(keys))])
    sheet = contact_sheet(cells, keys, columns=min(_ACROSS, len(keys)))
    return f'{text}<img alt="The first images" src="{picture_address(sheet)}">'


def _cell(read: Callable[[int], bytes | None], index: int) -> npt.NDArray[np.uint8]:
    """Return uint8 [3, H, W]: the image on white, or plain grey."""
    import PIL.Image
    import PIL.ImageOps

    size, limits = (_CELL_PX, _CELL_PX), Limits(max_pixels=_MOST_PIXELS)
    try:
        data = read(index)
        if data is None or apart_formats(data, limits):
            raise ValueError("no image, or one that is decoded in a process of its own")
        with open_picture(data, limits) as picture:
            picture.draft("RGB", size)
            cell = PIL.ImageOps.pad(picture.convert("RGB"), size, color=_PAPER)
    except MemoryError:
        raise
    except Exception:  # any error of reading or of Pillow's plugins
        cell = PIL.Image.new("RGB", size, _BLANK)
    return np.asarray(cell).transpose(2, 0, 1)


def contact_sheet(images: npt.NDArray[np.uint8], keys: Sequence[str], *, columns: int) -> PIL.Image.Image:
    """Draw `images` uint8[N, 3, H, W] in rows of `columns`, each with its key; long keys keep their end."""
    import PIL.Image
    import PIL.ImageDraw
    import PIL.ImageFont

    height, width = images.shape[2:]
    rows = -(-len(images) // columns)
    cell = (width + _GAP_PX, height + _GAP_PX + _TEXT_PX)
    sheet = PIL.Image.new("RGB", (columns * cell[0] + _GAP_PX, rows * cell[1] + _GAP_PX), _PAPER)
    draw, font = PIL.ImageDraw.Draw(sheet), PIL.ImageFont.load_default(_TEXT_PX - 3)
    for index, (image, key) in enumerate(zip(images, keys, strict=True)):
        left, top = index % columns * cell[0] + _GAP_PX, index // columns * cell[1] + _GAP_PX
        sheet.paste(PIL.Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))), (left, top))
        # The font covers western European letters; all other letters would become the same box.
        text = whole = key.encode("latin-1", "backslashreplace").decode("latin-1")
        while text and draw.textlength(text if text is whole else _CUT + text, font=font) > width:
            text = text[1:]
        draw.text((left, top + height + 1), text if text is whole else _CUT + text, fill=_INK, font=font)
    return sheet


def picture_address(picture: PIL.Image.Image) -> str:
    """Return the picture as a data URL, in JPEG."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
