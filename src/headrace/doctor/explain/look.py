"""Inspected samples of a dataset, as read from the file of a look."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from keyword import iskeyword
from os.path import commonprefix
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from headrace.doctor.explain.pictures import Array, Box
from headrace.doctor.probe.look.value_look import HELD
from headrace.errors import SessionError

LeafPath = tuple[str | int, ...]
_ORIENTATION = 0x0112  # EXIF
_NUMPY = b"\x93NUMPY"
TURNED = "turned"
"""Decoding of a picture that the script turned."""


def path_text(path: LeafPath) -> str:
    """Return a leaf's path as reports show it: `meta.id`."""
    return ".".join(map(str, path))


@dataclass(frozen=True)
class LeafValue:
    kind: str
    value: Any
    """An array, a number, a text, bytes, or None."""
    dtype: str = ""
    """Dtype of the batch array that contains the value; empty for anything else."""
    is_listed: bool = False
    """True if it is an element of a list in the batch."""


@dataclass(frozen=True)
class TurnedPicture:
    """Picture that a function of the script turned or warped."""

    function: str
    degrees: float | None
    """Counter-clockwise angle; None for anything but a rotation about the centre."""
    pixels: Array | None
    """The result; None if it was not kept."""


@dataclass(frozen=True)
class LookedSample:
    """One repetition of making one sample."""

    index: int
    making: int
    batch: Mapping[LeafPath, LeafValue]
    """Batch that the loader makes of this sample alone."""
    inputs: tuple[bytes, ...]
    places: tuple[tuple[str | None, str | None], ...]
    """Path and member of each input, if known."""
    boxes: tuple[Box, ...]
    sizes: tuple[tuple[int, int], ...]
    key: str | None = None
    members: Mapping[str, bytes] = field(default_factory=dict)
    """Source files by column, if `hr.open` reads their container; inputs name the column as member."""
    turned: tuple[TurnedPicture, ...] = ()

    @cached_property
    def leaves(self) -> dict[LeafPath, LeafValue]:
        """The sample's own leaves, without the batch dimension, and without lists that stand for it."""
        longer = {path[: place + 1] for path in self.batch for place, part in enumerate(path) if part == 1}
        listed = {
            path: [place for place, part in enumerate(path) if part == 0 and (*path[:place], 1) not in longer]
            for path in self.batch
        }
        arrays = [leaf.value for path, leaf in self.batch.items() if listed[path] and leaf.kind == "array"]
        is_unbatched = any(each.shape[:1] != (1,) for each in arrays)  # lists of arrays take the place of batches
        return dict(
            _of_one(
                path,
                leaf,
                is_listed=len(path) - 1 in listed[path],
                is_batched=not (is_unbatched and listed[path]),
            )
            for path, leaf in self.batch.items()
        )

    @property
    def arrays(self) -> dict[LeafPath, Any]:
        """Arrays and texts of the batch, with numbers as arrays."""
        batch = self.batch.items()
        return {path: np.asarray(leaf.value) if leaf.kind == "number" else leaf.value for path, leaf in batch}

    @property
    def length(self) -> int:
        """Length of the longest array of the batch; 1 without any."""
        arrays = self.arrays.values()
        return max((len(leaf) for leaf in arrays if isinstance(leaf, np.ndarray) and leaf.ndim), default=1)

    @cached_property
    def pictures(self) -> list[dict[str, Array]]:
        """Arrays that each input may decode to, by decoding, with the array that a rotation made of it."""
        found = [decoded(data) for data in self.inputs]
        for ndim in (2, 3):
            plain = [each for each in found if "plain" in each and each["plain"].ndim == ndim]
            turned = [each.pixels for each in self.turned if each.pixels is not None and each.pixels.ndim == ndim]
            for each, pixels in zip(plain, turned, strict=True) if len(plain) == len(turned) else ():
                each[TURNED] = pixels
        return found


@dataclass(frozen=True)
class LiveTransform:
    """Transform of a known library in the dataset, as code with `hr` for headrace."""

    image: str
    view: tuple[str, ...]
    augment: tuple[str, ...]
    parts: tuple[tuple[str, str | None, str], ...]
    """Its parts, the replacement of each, and the difference, or why there is none."""
    batch: str = ""
    """Mixing of a batch; empty if there is none."""


@dataclass(frozen=True)
class SampleFiles:
    """Tars or tables that `hr.open` accepts, and the draws from them; by default, each sample once in file order."""

    files: tuple[str, ...]
    rows: tuple[int, ...] | None = None
    """Rows of the table that are the dataset's samples; None for all."""
    is_shuffled: bool = False
    buffer: int = 0
    """Size of the shuffle buffer in samples."""
    epoch: int | None = None
    """Samples, or batches, per epoch in the script."""
    is_resampled: bool = False
    selects: tuple[str, ...] = ()
    """Names of functions that select samples."""
    drops: bool = False
    """True if a short last batch is dropped."""


@dataclass(frozen=True)
class LookedCall:
    """Callable of the user's own, and the rows of numbers that it makes of a column's texts."""

    column: str
    kind: str
    """"batch" if it takes a list of texts, "one" if it takes a text."""
    called: str
    module: str
    name: str
    """Name to import from the module; empty if there is none."""
    arguments: Mapping[str, Any] | None
    """Arguments of the name, if it is a class to be made; None otherwise."""
    folder: str
    """Folder of the module's outermost package."""
    text_us: float
    rows: Mapping[int, Array]
    """Rows by the samples' indices."""


@dataclass(frozen=True)
class Look:
    """Samples of a dataset that were made without an error, and the columns of the dataset."""

    samples: list[LookedSample]
    columns: dict[str, list[Any]]
    """Columns by name, with an element per sample of the dataset, including parts of paths."""
    dataset: str = ""
    """Name of the dataset's class."""
    length: int | None = None
    """Length of the dataset; None for a stream."""
    is_stream: bool = False
    chosen: list[int] | None = None
    """Indices of the samples that the loader takes; None for all."""
    transforms: tuple[LiveTransform, ...] = ()
    errors: tuple[str, ...] = ()
    held: Array | None = None
    """Images of all samples that the dataset holds in memory: uint8 [N, height, width], optionally with channels."""
    is_batched: bool = False
    """True if the dataset makes batches itself."""
    tokenizers: tuple[str, ...] = ()
    """Tokenizers (of the `tokenizers` library) that the loader holds, as JSON."""
    calls: tuple[LookedCall, ...] = ()
    opened: SampleFiles | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Numbers among the dataset's own attributes, by name."""
    odd: tuple[LookedSample, ...] = ()
    """Samples whose listed files are no pictures, as far as they could be made."""
    made: str | None = None
    """Line that makes the loader."""
    loader: int | None = None
    """Number of the loader in the evidence; None if it was not iterated."""
    ordinal: int | None = None
    """Number of the loader among all that the process made."""
    drawn: frozenset[str] = frozenset()
    """Generators that a stream draws from after it has read a sample's file."""
    mixed: frozenset[LeafPath] | None = frozenset()
    """Arrays in which samples of a batch are mixed; None if no batch of two was seen."""

    @property
    def batch_size(self) -> int:
        """Size of the first batch that the dataset makes itself; otherwise 1."""
        return self.size_of(self.samples[0])

    def size_of(self, sample: LookedSample) -> int:
        """Return the size of the batch that the dataset made as this sample; 1 if it makes samples."""
        return sample.length if self.is_batched and self.opened is None else 1


def read_look(path: Path) -> Look:
    """Return the contents of a look's file; nothing in it is executed. Raises SessionError if it is damaged."""
    try:
        return _look(path.read_bytes(), Path(f"{path}{HELD}"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError) as error:
        raise SessionError(
            f"expected a whole look at samples, got {path} ({type(error).__name__}: {error}); run the command again"
        ) from error


def _look(held: bytes, pictures: Path) -> Look:
    begin = int.from_bytes(held[-8:], "little")
    outline = json.loads(held[begin:-8])
    samples, length, columns = _columned(outline, held)
    said = (outline["opened"] or {}).items()
    opened: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in said}
    return Look(
        samples,
        columns | ({} if opened else dict(_parts_of_paths(columns))),
        dataset=outline["class"],
        length=length,
        is_stream=outline["length"] is None,
        chosen=outline["chosen"],
        transforms=tuple(map(_live_transform, outline["transforms"])),
        errors=tuple(dict.fromkeys(each["error"] for each in outline["samples"] if "error" in each)),
        held=np.load(pictures, mmap_mode="r", allow_pickle=False) if outline["holds"] else None,
        is_batched=outline["is_batched"],
        tokenizers=tuple(_bytes(held, at).decode() for at in outline["tokenizers"]),
        calls=tuple(_call(said, outline["called"], held) for said in outline["calls"]),
        opened=SampleFiles(**opened) if opened else None,
        numbers=outline["numbers"],
        odd=tuple(_samples(outline["odd"], held)),
        made=outline["made"],
        loader=outline["loader"],
        ordinal=outline["ordinal"],
        drawn=frozenset(name for each in outline["samples"] for name in each["drawn"]),
        mixed=None if outline["mixed"] is None else frozenset(map(tuple, outline["mixed"])),
    )


def _call(said: Mapping[str, Any], indices: Sequence[int], held: bytes) -> LookedCall:
    rows = np.frombuffer(_bytes(held, said["at"]), np.int64).reshape(len(indices), said["length"])
    arguments = said["arguments"] or {}
    names = [*said["module"].split("."), *filter(None, [said["name"]]), *arguments]
    if not all(name.isidentifier() and not iskeyword(name) for name in names):  # they become code
        raise ValueError(f"expected names to import, got {'.'.join(names)!r}")
    if not all(value is None or isinstance(value, str | int | float) for value in arguments.values()):
        raise ValueError(f"expected text or numbers as arguments, got {arguments!r}")
    kept = {name: value for name, value in said.items() if name not in ("at", "length")}
    return LookedCall(**kept, rows=dict(zip(indices, rows, strict=True)))


def _columned(outline: Mapping[str, Any], held: bytes) -> tuple[list[LookedSample], int | None, dict[str, list[Any]]]:
    """Return the samples, the length of the dataset, and columns with an element per sample."""
    samples, length = _samples(outline["samples"], held), outline["length"]
    if outline["opened"] and length is None:
        return samples, length, member_columns({each.index: each.members for each in samples})
    columns = {(one["name"], one["length"]): json.loads(_bytes(held, one["at"])) for one in outline["columns"]}
    return samples, length, {name: column for (name, size), column in columns.items() if size == length}


def _live_transform(said: Mapping[str, Any]) -> LiveTransform:
    """Return a transform from the arguments `fields=`, `view=` and `augment=` of a Loader, as code."""
    call = ast.parse(f"Loader({said['code']})", mode="eval").body
    given = {each.arg: each.value for each in call.keywords} if isinstance(call, ast.Call) else {}
    fields, listed = given.get("fields"), {name: given.get(name) for name in ("view", "augment")}
    steps = {
        name: tuple(map(ast.unparse, one.elts)) if isinstance(one, ast.List) else () for name, one in listed.items()
    }
    image = ast.unparse(fields.values[0]) if isinstance(fields, ast.Dict) else ""
    parts = tuple((part, becomes, note) for part, becomes, note in said["parts"])
    mixing = given.get("batch")
    return LiveTransform(image, **steps, parts=parts, batch="" if mixing is None else ast.unparse(mixing))


def _of_one(path: LeafPath, leaf: LeafValue, *, is_listed: bool, is_batched: bool) -> tuple[LeafPath, LeafValue]:
    """Return a leaf from a batch of one as the sample's own.

    `is_listed`: it is the only element of its list. `is_batched`: an array of one row is a batch.
    """
    if is_batched and leaf.kind == "array" and leaf.value.ndim and leaf.value.shape[0] == 1:
        value = leaf.value[0]
        if value.ndim:
            return path, LeafValue("array", value, leaf.dtype)
        return path, LeafValue("number", value.item(), leaf.dtype)
    if is_listed:
        return path[:-1], replace(leaf, is_listed=True)
    return path, leaf


def _parts_of_paths(columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield folder and stem of each path, and what is between the text that all begin with and end with."""
    for name, column in columns.items():
        if all(isinstance(each, str) and "/" in each for each in column):
            yield f"folder of {name}", [each.rsplit("/", 2)[-2] for each in column]
            yield f"stem of {name}", [each.rsplit("/", 1)[-1].partition(".")[0] for each in column]
            begin, end = (len(commonprefix(one)) for one in (column, [each[::-1] for each in column]))  # noqa: RUF071
            yield f"middle of {name}", [each[begin : max(len(each) - end, begin)] for each in column]


def _samples(all_said: Sequence[Mapping[str, Any]], held: bytes) -> list[LookedSample]:
    samples = []
    for said in all_said:
        if "error" in said:
            continue
        members = {name: _bytes(held, at) for name, at in said["members"].items()}
        named = {data: (None, name) for name, data in members.items()}
        inputs = tuple(_bytes(held, each["at"]) for each in said["inputs"])
        places = ((each["path"], each["member"]) for each in said["inputs"])
        leaves = {tuple(leaf["path"]): _leaf(leaf, held) for leaf in said["leaves"]}
        found = tuple(named.get(data, place) for data, place in zip(inputs, places, strict=True))
        boxes, sizes = tuple(Box(*each) for each in said["boxes"]), tuple((each[0], each[1]) for each in said["sizes"])
        turned = tuple(_turned(each, held) for each in said["turned"])
        making = said["index"], said["making"]
        samples.append(LookedSample(*making, leaves, inputs, found, boxes, sizes, said["key"], members, turned))
    return samples


def _turned(said: Mapping[str, Any], held: bytes) -> TurnedPicture:
    degrees = said["degrees"]
    pixels = _leaf(said, held).value if said.get("kind") == "array" else None
    return TurnedPicture(str(said["function"]), None if degrees is None else float(degrees), pixels)


def _bytes(held: bytes, at: Sequence[int]) -> bytes:
    return held[at[0] : at[0] + at[1]]


def _leaf(said: Mapping[str, Any], held: bytes) -> LeafValue:
    value = said.get("value")
    if said["kind"] == "array":
        value = np.frombuffer(_bytes(held, said["at"]), said["dtype"]).reshape(said["shape"])
    elif said["kind"] == "bytes":
        value = _bytes(held, said["at"])
    return LeafValue(said["kind"], value, str(np.dtype(said["dtype"])) if said["kind"] == "array" else "")


def decoded(data: bytes) -> dict[str, Array]:
    """Return the arrays that encoded bytes may decode to, by decoding; none if the format is unknown."""
    if data.startswith(_NUMPY):
        try:
            array = np.load(io.BytesIO(data), allow_pickle=False)
        except (OSError, ValueError):  # truncated, or an array of objects
            return {}
        return {"numpy": array} if array.ndim in (2, 3) else {}
    try:
        with Image.open(io.BytesIO(data)) as picture:
            found = {"plain": np.asarray(picture)}
            if picture.mode not in ("RGB", "L", "I;16", "I;16B", "I", "F"):
                found["RGB"] = np.asarray(picture.convert("RGB"))
            if picture.getexif().get(_ORIENTATION, 1) != 1:
                found["exif"] = np.asarray(ImageOps.exif_transpose(picture))
    except (OSError, ValueError, Image.DecompressionBombError):
        return {}
    return {name: array for name, array in found.items() if array.ndim in (2, 3)}


# Samples of streams: values in their files.


def member_columns(members: Mapping[int, Mapping[str, bytes]]) -> dict[str, list[Any]]:
    """Return values from text files by `hr.open`'s names. `members`: files by extension, None where missing."""
    read = {place: dict(_values(files)) for place, files in members.items()}
    names = dict.fromkeys(name for values in read.values() for name in values)
    count = max(read, default=-1) + 1
    return {name: _as_numbers([read.get(place, {}).get(name) for place in range(count)]) for name in names}


def _values(files: Mapping[str, bytes]) -> Iterator[tuple[str, Any]]:
    for name, data in files.items():
        try:
            text = data.decode()
            if name.split(".")[-1] == "json":
                yield from _keys(name, json.loads(text))
            else:
                yield name, text
        except ValueError:  # no text, or no JSON
            continue


def _keys(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for key, one in value.items() if isinstance(value, dict) else ():
        if isinstance(one, dict):
            yield from _keys(f"{name}.{key}", one)
        else:
            yield f"{name}.{key}", one


def _as_numbers(column: list[Any]) -> list[Any]:
    """Return a column of files with one integer each as numbers."""
    is_number = all(isinstance(one, str) and one.strip().lstrip("-").isdecimal() for one in column if one is not None)
    return [None if one is None else int(one) for one in column] if is_number else column
