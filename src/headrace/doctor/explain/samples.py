"""Explanation of a look at a dataset's samples, leaf by leaf."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .masks import MaskExplanation, explain_mask
from .pictures import Array, Box, LeafPlacement, PictureExplanation, Sighting, explain_picture
from .planes import PlaneExplanation, explain_plane
from .values import ValueExplanation, explain_value

LeafPath = tuple[str | int, ...]
View = tuple[LeafPlacement, ...]
"""Placements of a leaf in the samples that it was explained by."""
_MOST_SIGHTINGS = 8
_MOST_CLASSES = 300
"""Distinct values up to which an array of whole numbers is first taken as a mask."""
_NUMPY = b"\x93NUMPY"


@dataclass(frozen=True)
class LeafValue:
    """One value of one sample."""

    kind: str
    value: Any
    """An array, a number, a text, bytes, or None."""


@dataclass(frozen=True)
class LookedSample:
    """One making of one sample."""

    index: int
    making: int
    wall_us: int
    leaves: Mapping[LeafPath, LeafValue]
    inputs: tuple[bytes, ...]
    places: tuple[tuple[str | None, str | None], ...]
    """Path and member of each input, where they are known."""
    boxes: tuple[Box, ...]
    sizes: tuple[tuple[int, int], ...]

    @cached_property
    def pictures(self) -> list[dict[str, Array]]:
        """Arrays that each input may be decoded to, by how."""
        return [decoded(data) for data in self.inputs]


@dataclass(frozen=True)
class LeafExplanation:
    """What a leaf is made of; without an explanation, it is None."""

    path: LeafPath
    by: PictureExplanation | MaskExplanation | PlaneExplanation | ValueExplanation | None
    input: int | None = None
    """Which of a sample's inputs, in the order in which they are read."""
    decoding: str = ""
    """How that is decoded: a key of `decoded`."""
    is_random: bool = False
    """Whether a sample's makings differ in it."""
    seen: Sequence[Sighting] = ()
    """What an array was explained by."""


@dataclass(frozen=True)
class Look:
    """Samples of a dataset that were made without an error, and the columns that it holds."""

    samples: list[LookedSample]
    columns: dict[str, list[Any]]
    """By name, an element for each sample of the dataset; parts of paths among them."""


def read_look(path: Path) -> Look:
    """Return what a look's file holds."""
    held = path.read_bytes()
    begin = int.from_bytes(held[-8:], "little")
    outline = json.loads(held[begin:-8])
    columns = {each["name"]: json.loads(_bytes(held, each["at"])) for each in outline["columns"]}
    return Look(_samples(outline["samples"], held), columns | dict(_parts_of_paths(columns)))


def _parts_of_paths(columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the folder of each path and its name without an extension, where a column holds paths."""
    for name, column in columns.items():
        if all(isinstance(each, str) and "/" in each for each in column):
            yield f"folder of {name}", [each.rsplit("/", 2)[-2] for each in column]
            yield f"stem of {name}", [each.rsplit("/", 1)[-1].partition(".")[0] for each in column]


def _samples(all_said: Sequence[Mapping[str, Any]], held: bytes) -> list[LookedSample]:
    samples = []
    for said in all_said:
        if "error" in said:
            continue
        samples.append(
            LookedSample(
                said["index"],
                said["making"],
                said["wall_us"],
                {tuple(leaf["path"]): _leaf(leaf, held) for leaf in said["leaves"]},
                tuple(_bytes(held, each["at"]) for each in said["inputs"]),
                tuple((each["path"], each["member"]) for each in said["inputs"]),
                tuple(Box(*each) for each in said["boxes"]),
                tuple((each[0], each[1]) for each in said["sizes"]),
            )
        )
    return samples


def _bytes(held: bytes, at: Sequence[int]) -> bytes:
    return held[at[0] : at[0] + at[1]]


def _leaf(said: Mapping[str, Any], held: bytes) -> LeafValue:
    value = said.get("value")
    if said["kind"] == "array":
        value = np.frombuffer(_bytes(held, said["at"]), said["dtype"]).reshape(said["shape"])
    elif said["kind"] == "bytes":
        value = _bytes(held, said["at"])
    return LeafValue(said["kind"], value)


def decoded(data: bytes) -> dict[str, Array]:
    """Return the arrays that encoded bytes may be decoded to, by how; none where nobody knows the format."""
    if data.startswith(_NUMPY):
        array = np.load(io.BytesIO(data), allow_pickle=False)
        return {"numpy": array} if array.ndim in (2, 3) else {}
    try:
        with Image.open(io.BytesIO(data)) as picture:
            turned = ImageOps.exif_transpose(picture)
            found = {"plain": np.asarray(picture)}
            if picture.mode not in ("RGB", "L", "I;16", "I;16B", "I", "F"):
                found["RGB"] = np.asarray(picture.convert("RGB"))
            if turned is not None and turned.size != picture.size:
                found["exif"] = np.asarray(turned)
    except (OSError, ValueError, Image.DecompressionBombError):
        return {}
    return {name: array for name, array in found.items() if array.ndim in (2, 3)}


def explain_look(look: Look) -> dict[LeafPath, LeafExplanation]:
    """Return what each leaf that all samples have is made of."""
    samples, columns = look.samples, look.columns
    paths = [path for path in samples[0].leaves if all(path in each.leaves for each in samples)]
    found = {path: _explained(path, samples, columns, []) for path in paths}
    views = list(dict.fromkeys(placed for each in found.values() if (placed := getattr(each.by, "placements", ()))))
    for path, each in found.items():
        if each.by is None and views:
            found[path] = _explained(path, samples, columns, views)
    return found


def _explained(
    path: LeafPath, samples: Sequence[LookedSample], columns: Mapping[str, Sequence[Any]], views: Sequence[View]
) -> LeafExplanation:
    """Explain one leaf. `views`: placements of other leaves, which it may share."""
    leaves = [each.leaves[path] for each in samples]
    is_random = _differs_by_making(samples, leaves)
    if all(leaf.kind == "array" and leaf.value.ndim >= 2 for leaf in leaves):
        chosen = _spread(samples)
        for number in range(min(len(each.inputs) for each in chosen)):
            for decoding, seen in _sightings(path, number, chosen):
                by = _by_views(seen, views) if views else _explain_array(seen)
                if by is not None:
                    return LeafExplanation(path, by, number, decoding, is_random, seen)
        return LeafExplanation(path, None, is_random=is_random)
    if any(leaf.kind == "object" for leaf in leaves):
        return LeafExplanation(path, None, is_random=is_random)
    values = [leaf.value for leaf in leaves]
    by_value = explain_value(values, [each.index for each in samples], columns)
    return LeafExplanation(path, by_value, is_random=is_random)


def _by_views(seen: Sequence[Sighting], views: Sequence[View]) -> MaskExplanation | PlaneExplanation | None:
    for view in views:
        by = explain_mask(seen, view) or explain_plane(seen, view)
        if by is not None:
            return by
    return None


def _differs_by_making(samples: Sequence[LookedSample], leaves: Sequence[LeafValue]) -> bool:
    first: dict[int, Any] = {}
    for each, leaf in zip(samples, leaves, strict=True):
        value = (leaf.value.shape, leaf.value.tobytes()) if isinstance(leaf.value, np.ndarray) else leaf.value
        if first.setdefault(each.index, value) != value:
            return True
    return False


def _spread(samples: Sequence[LookedSample]) -> list[LookedSample]:
    """Return samples of as many indices as there are, and of several makings."""
    order = sorted(samples, key=lambda each: (each.making, each.index))
    return order[:: max(1, len(order) // _MOST_SIGHTINGS)][:_MOST_SIGHTINGS]


def _sightings(path: LeafPath, number: int, samples: Sequence[LookedSample]) -> Iterator[tuple[str, list[Sighting]]]:
    """Yield a leaf of each sample with the picture that one input is decoded to, by how."""
    for decoding in samples[0].pictures[number]:
        if all(decoding in each.pictures[number] for each in samples):
            yield (
                decoding,
                [
                    Sighting(each.leaves[path].value, each.pictures[number][decoding], each.boxes, each.sizes)
                    for each in samples
                ],
            )


def _explain_array(seen: Sequence[Sighting]) -> PictureExplanation | MaskExplanation | PlaneExplanation | None:
    is_whole = all(each.leaf.dtype.kind in "iub" for each in seen)
    if is_whole and max(len(np.unique(each.leaf)) for each in seen) <= _MOST_CLASSES:
        return explain_mask(seen) or explain_plane(seen) or explain_picture(seen)
    by = explain_picture(seen)
    return explain_plane(seen) if by is None or by.is_scaled_by_sample else by
