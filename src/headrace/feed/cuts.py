"""How far each field of pixels is the same in every epoch: where a cache may cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.fields import Depth, Image, Mask, Normals, Spatial
from headrace.fields.tokens import ResolvedText
from headrace.views.views import Program

Cut = Literal["file", "shrunk", "final"]

# Of core/view/program.hpp.
_RANDOM_KINDS = (1, 5)
_FLIP_KINDS = (7, 8)


@dataclass(frozen=True)
class FieldCut:
    """`cut` is what the core calls it (core/batch/cached_image.hpp)."""

    cut: Cut
    words: str


FILE = FieldCut("file", "files' bytes")


def cut_of(field: Spatial, program: Program, *, one_view: bool) -> FieldCut:
    """The deepest cut that is the same in every epoch. `one_view`: all batches have the program's own view, which fills
    nothing up."""
    window, flips = _split(program.ops)
    if one_view and not _is_random(window) and not (isinstance(field, Normals) and flips):
        return FieldCut("final", _final_words(field, program.output_size, flips=flips))
    if isinstance(field, Image) and field.shrink_to is not None:
        return FieldCut("shrunk", f"pixels whose short side is at most {field.shrink_to}, for a random view")
    return FieldCut("file", f"files' bytes, for {'a random view' if one_view else 'views that change by batch'}")


def text_words(text: ResolvedText) -> str:
    """What is kept of a text field: tokens where something tells its tokenizer from others."""
    read = text.held is None
    if text.encoder.identity is None:
        return f"{FILE.words if read else 'nothing'}, for its tokenizer has no version"
    return f"{FILE.words}, and tokens" if read else "tokens"


def deterministic_ops(program: Program) -> NDArray[np.float64]:
    """The steps before those flips that come last, which are undone before anything is kept."""
    return _split(program.ops)[0]


def _split(ops: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    end = len(ops)
    while end and int(ops[end - 1, 0]) in _FLIP_KINDS:
        end -= 1
    return ops[:end], any(int(op[0]) in _FLIP_KINDS and op[1] > 0 for op in ops)


def _is_random(ops: NDArray[np.float64]) -> bool:
    return any(int(op[0]) in _RANDOM_KINDS or (int(op[0]) in _FLIP_KINDS and 0 < op[1] < 1) for op in ops)


def _final_words(field: Spatial, size: tuple[int, int] | None, *, flips: bool) -> str:
    kind = f"{field.dtype} values"
    if isinstance(field, Image):
        kind = "uint8 pixels" + ("" if field.dtype == "uint8" else f" before they become {field.dtype}")
    if isinstance(field, Depth) and field.valid:
        kind += " and validity"
    shape = "" if size is None else f"{size[0]}x{size[1]}{_channels(field)} "
    return f"{shape}{kind}" + (", before flips" if flips else "")


def _channels(field: Spatial) -> str:
    return "" if isinstance(field, Mask | Depth) else f"x{field.channel_count if isinstance(field, Image) else 3}"
