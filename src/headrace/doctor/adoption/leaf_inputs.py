"""Inputs of the leaves for all samples of the dataset: source files, and values of columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from headrace.doctor.explain import ValueExplanation, explain_value
from headrace.doctor.explain.look import Look, LookedSample
from headrace.doctor.explain.pictures import Array

_IMAGES = {"jpg", "jpeg", "png", "webp"}
"""Extensions of members in the column `image`."""


class UnexplainedError(Exception):
    """Reason in words why the Loader cannot make a leaf."""


@dataclass(frozen=True)
class PictureSource:
    """Files of one input of the samples."""

    root: str | None
    """Archive that contains them; None for paths, and for files in memory."""
    names: Sequence[str | bytes]
    """Paths, members, or whole files; empty if a column of the dataset's files holds them."""
    column: str | None = None
    """The column."""


def input_names(number: int, look: Look) -> PictureSource:
    """Return the files of an input for all samples.

    Raises:
        UnexplainedError: No sequence of the dataset names them.
    """
    if any(number >= len(each.places) for each in look.samples):
        raise UnexplainedError("some samples read fewer files than others")
    places = [each.places[number] for each in look.samples]
    if look.opened is not None:
        return PictureSource(None, (), _column({member for _, member in places}))
    archives = {path for path, member in places if member is not None}
    if len(archives) > 1 or (archives and any(member is None for _, member in places)):
        raise UnexplainedError("its files lie in several archives")
    texts = [member if archives else path for path, member in places]
    if any(text is None for text in texts):
        if look.held is not None and _are_held(number, look, look.held):
            return PictureSource(None, [_png(picture) for picture in look.held])
        raise UnexplainedError("it was decoded from bytes in memory, whose origin was not seen")
    found = explain_value(texts, [each.index for each in look.samples], look.columns)
    if found is None or found.kind not in ("equal", "affixed") or found.column is None:
        raise UnexplainedError(f"no sequence of the dataset names its files, such as {texts[0]!r}")
    return PictureSource(next(iter(archives), None), [str(each) for each in values_of(found, look.columns)])


def _column(names: set[str | None]) -> str:
    """Return the column of files with these extensions: the only one, or `image` for several image extensions."""
    if len(names) == 1 and (name := next(iter(names))) is not None:
        return name
    if not names <= _IMAGES:
        raise UnexplainedError(f"it is made from {', '.join(sorted(map(str, names)))} of a sample")
    return "image"


def only_picture(samples: Sequence[LookedSample]) -> int:
    """Return the number of the only input with pixels.

    Raises:
        UnexplainedError: There are several, or none.
    """
    count = min(len(each.inputs) for each in samples)
    pictures = [number for number in range(count) if all(each.pictures[number] for each in samples)]
    if len(pictures) != 1:
        raise UnexplainedError(f"of {len(pictures)} pictures that a sample reads, which one it shows is not known")
    return pictures[0]


def _are_held(number: int, look: Look, held: Array) -> bool:
    """Return True if an input is the image that the dataset holds for each sample."""
    inputs = ((each.pictures[number].get("numpy"), held[each.index]) for each in look.samples)
    return all(array is not None and np.array_equal(array, picture.squeeze()) for array, picture in inputs)


def _png(picture: Array) -> bytes:
    """Return an image as a file that the Loader's threads decode without loss."""
    file = io.BytesIO()
    Image.fromarray(picture.squeeze()).save(file, "PNG", compress_level=1)
    return file.getvalue()


def values_of(by: ValueExplanation, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return the values of all samples by the explanation of some.

    Raises:
        UnexplainedError: No field makes values of this kind.
    """
    if by.kind == "index":
        return list(range(max(map(len, columns.values()), default=0)))
    if by.column is None or by.kind not in ("equal", "affixed", "class", "affine"):
        raise UnexplainedError(f"the Loader has no field for what is {by.kind}")
    its = [getattr(each, "item", lambda each=each: each)() for each in columns[by.column]]
    if by.kind == "affixed":
        return [f"{by.prefix}{each}{by.suffix}" for each in its]
    if by.kind == "class":
        ranks = {each: rank for rank, each in enumerate(sorted(set(its)))}
        return [ranks[each] for each in its]
    return [by.scale * each + by.shift for each in its] if by.kind == "affine" else its
