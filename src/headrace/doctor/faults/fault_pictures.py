"""Pictures of faults: what the files hold next to what the loader makes of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from headrace.doctor.explain.look import Look, path_text
from headrace.doctor.explain.pictures import Array, layouts, sided
from headrace.doctor.explain.samples import spread
from headrace.doctor.faults.fault_kinds import Explained
from headrace.doctor.session.after_run import DataFault

SIDE, GAP = 160, 4
"""Maximum sides of one picture, and the distance between two, in pixels."""
_MOST_SAMPLES = 4
_DRAWN = ("misaligned", "invented-labels", "channel-order")
"""Codes of the faults that pictures show."""


class FaultPicture(NamedTuple):
    """Contact sheet of one fault: a row for each sample."""

    png: bytes
    text: str
    """Caption: the content of its columns."""


def fault_pictures(faults: Sequence[DataFault], look: Look | None, explained: Explained) -> dict[int, FaultPicture]:
    """Return the pictures of faults by their place in `faults`; faults that no picture helps have none."""
    found = {}
    for place, fault in enumerate(faults):
        paths = [path for path in explained if path_text(path) in fault.leaves]
        files = [explained[path].seen for path in paths if explained[path].seen]
        if look is None or fault.code not in _DRAWN or not files:
            continue
        leaves = [[each.leaves[path].value for path in paths] for each in spread(look.samples)]
        rows = [[*(one.source for one in seen), *made] for *seen, made in zip(*files, leaves, strict=True)]
        names = ", ".join(path_text(path) for path in paths)
        found[place] = FaultPicture(_sheet(rows[:_MOST_SAMPLES]), f"{'files' if len(files) > 1 else 'file'}; {names}")
    return found


def _sheet(rows: Sequence[Sequence[Array]]) -> bytes:
    step, file = SIDE + GAP, io.BytesIO()
    sheet = Image.new("RGB", (max(map(len, rows)) * step - GAP, len(rows) * step - GAP), "white")
    for top, row in enumerate(rows):
        for left, values in enumerate(row):
            sheet.paste(ImageOps.contain(_picture(values), (SIDE, SIDE)), (left * step, top * step))
    sheet.quantize(128).save(file, "PNG", optimize=True)
    return file.getvalue()


def _picture(values: Array) -> Image.Image:
    """Return an array as a picture: coloured bytes as they are, all else from its lowest to its highest value."""
    values = sided(values, next(layouts(values), "HWC"))
    if values.dtype != np.uint8 or values.shape[2] == 1:
        values = np.nan_to_num(values.astype(float))
        values = (values - values.min()) * (255 / (np.ptp(values) or 1))
    return Image.fromarray(np.broadcast_to(values[..., :3], (*values.shape[:2], 3)).astype(np.uint8))
