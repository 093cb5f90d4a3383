"""Draft of a recipe: fields of numbers and texts, the inputs of leaves for all samples, mixing, and structure."""

from __future__ import annotations

import ast
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from PIL import Image

from headrace.doctor.adoption.pixel_fields import CASTS, LeafField
from headrace.doctor.adoption.recipe import UnexplainedError
from headrace.doctor.adoption.view_codes import evaluated
from headrace.doctor.explain import CallExplanation, TokensExplanation, ValueExplanation, explain_value
from headrace.doctor.explain.look import LeafPath, LeafValue, LiveTransform, Look, LookedSample, path_text
from headrace.doctor.explain.pictures import Array
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.session.after_run import AdoptedPart

_IMAGES = {"jpg", "jpeg", "png", "webp"}
"""Extensions of members in the column `image`."""
_MIXINGS = ("MixUp", "CutMix")
_LISTED = "torch.stack([torch.as_tensor(each) for each in batch[{name!r}]])"


@dataclass
class RecipeDraft:
    """Fields, columns and codes of leaves so far, and the fields of numbers and texts."""

    look: Look
    fields: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Sequence[Any]] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    """Files of each pixel field, and the columns of fields in opened files."""
    codes: dict[LeafPath, str] = field(default_factory=dict)
    placed: list[LeafField] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    folders: dict[str, None] = field(default_factory=dict)
    """Folders of the user's modules that are imported."""
    tokenizers: dict[str, str] = field(default_factory=dict)
    """Tokenizers as JSON, by the constants that name their files."""
    arguments: dict[str, int] = field(default_factory=dict)
    """Arguments of the module's functions: the places in `Look.calls` of the callables that they stand for."""
    parts: list[AdoptedPart] = field(default_factory=list)
    one_hot: str = ""
    """Name of the field of mixed labels."""
    _texts: dict[str, TokensExplanation] = field(default_factory=dict)

    def name(self, path: LeafPath, kind: str) -> str:
        """Return a new name for the field of a leaf: the key in its path, or its kind."""
        named = [part for part in path if isinstance(part, str) and part.isidentifier()]
        name = named[-1] if named else kind
        taken = {*self.fields, *(one.name for one in self.placed)}
        return name if name not in taken else f"{name}_{len(taken)}"

    def is_key(self, column: str) -> bool:
        """Return True if a column is a value of a JSON member of a tar."""
        return self.look.is_stream and ".json." in f".{column}"

    def value_code(self, path: LeafPath, by: ValueExplanation | TokensExplanation | CallExplanation) -> str:
        """Add the field of a leaf, and return the leaf as code. Raises UnexplainedError if no field makes it."""
        if isinstance(by, CallExplanation):
            return self._called(path, by)
        return self._tokens(path, by) if isinstance(by, TokensExplanation) else self._value(path, by)

    def _value(self, path: LeafPath, by: ValueExplanation) -> str:
        leaf = self.look.samples[0].leaves[path]
        cast = CASTS.get(leaf.dtype, "")
        if self.look.opened is not None:
            by = self._of_files(by)
        if by.kind == "constant":
            return self._constant(by.value, leaf)
        name = self.name(path, "label" if leaf.dtype == "int64" or by.kind == "one-hot" else "value")
        if by.kind == "one-hot":
            return self._one_hot(path, name, by, leaf)
        column = values_of(by, self.look.columns)
        self.fields[name] = "hr.Raw()"
        if self.look.opened is not None:
            self.sources[name] = by.column
            self.fields[name] = self._field_of_files(str(by.column), column)
        else:
            # a manifest has no lists of booleans
            is_list = leaf.kind == "array"
            rows = [each if isinstance(each, list) else [each] for each in column] if is_list else []
            self.columns[name] = [list(map(_number, each)) for each in rows] if is_list else column
        if leaf.kind == "array":
            self.imports.add("import torch")
            return _LISTED.format(name=name) + cast
        if not leaf.dtype:
            is_number = not isinstance(column[0], str)
            return f"batch[{name!r}].tolist()" if is_number else f"batch[{name!r}]"
        is_same = {int: "int64", float: "float64", bool: "bool"}.get(type(column[0])) == leaf.dtype
        return f"batch[{name!r}]" + ("" if is_same else cast)

    def _of_files(self, by: ValueExplanation) -> ValueExplanation:
        """Return an explanation by an unmodified column, including for a leaf that is constant in few samples."""
        if by.kind == "constant":
            columns = self.look.columns.items()
            seen = [each.index for each in self.look.samples]
            same = (name for name, column in columns if all(column[index] == by.value for index in seen))
            name = next(same, None)
            return by if name is None else ValueExplanation("equal", name)
        if by.kind != "equal":
            raise UnexplainedError(f"no column of its files holds it as it is: it is {by.kind}")
        return by

    def _field_of_files(self, name: str, column: Sequence[Any]) -> str:
        is_member = self.look.is_stream and not self.is_key(name)
        if is_member and any(isinstance(each, int) for each in column):
            return f"hr.Label(source={name!r})"
        return f"hr.Raw(source={name!r}{', text=True' if is_member else ''})"

    def _tokens(self, path: LeafPath, by: TokensExplanation) -> str:
        """Return the tokens of a text or their mask, both from one field."""
        constant = f"TOKENIZER_{by.tokenizer}"
        name = next(
            (name for name, one in self._texts.items() if replace(one, part=by.part, pad_id=by.pad_id) == by), None
        )
        if name is None:
            name = self.name(path, "text")
            self._texts[name] = by
            self.sources[name] = by.column
            if self.look.opened is None:
                self.columns[name] = self.look.columns[by.column]
            self.tokenizers[constant] = self.look.tokenizers[by.tokenizer]
        self._texts[name] = by if by.part == "ids" else self._texts[name]
        pad = self._texts[name].pad_id
        arguments = [constant, f"max_length={by.length}", 'pad="max"', *([] if pad is None else [f"pad_id={pad}"])]
        arguments += [] if self.look.opened is None else [f"source={by.column!r}"]
        self.fields[name] = f"hr.Text({', '.join(arguments)})"
        dtype = self.look.samples[0].leaves[path].dtype
        is_own = dtype == {"ids": "int64", "mask": "bool"}[by.part]
        return f"batch[{name!r}][{by.part!r}]" + ("" if is_own else CASTS.get(dtype, ""))

    def _called(self, path: LeafPath, by: CallExplanation) -> str:
        """Return the numbers that a callable of the user's own makes of a text."""
        call = by.call
        name = self.name(path, "text")
        made = call.name
        if not call.name:
            made = f"tokenizer_{len(self.arguments) + 1}" if self.arguments else "tokenizer"
            self.arguments[made] = next(place for place, one in enumerate(self.look.calls) if one is call)
            where = "the script itself" if call.module == "__main__" else call.module
            note = (
                f"{call.called} of {where} makes it from {call.column}, but cannot be imported or made again: pass it "
                f"to make_dataloader({made}=…); the trial took the ids that it made of the samples, and its time"
            )
            self.parts.append(AdoptedPart(path_text(path), "fields", made, "check", note))
        else:
            self.imports.add(f"from {call.module} import {call.name}")
            self.folders[call.folder] = None
            if call.arguments is not None:
                made += f"({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
        self.sources[name] = call.column
        if self.look.opened is None:
            self.columns[name] = self.look.columns[call.column]
        source = "" if self.look.opened is None else f", source={call.column!r}"
        code = made if call.kind == "batch" else f"lambda texts, call={made}: [call(text) for text in texts]"
        self.fields[name] = f'hr.Text({code}, max_length={by.length}, pad="max", pad_id={by.pad_id}{source})'
        dtype = self.look.samples[0].leaves[path].dtype
        return f"batch[{name!r}]['ids']" + ("" if dtype == "int64" else CASTS.get(dtype, ""))

    def _one_hot(self, path: LeafPath, name: str, by: ValueExplanation, leaf: LeafValue) -> str:
        self.columns[name] = values_of(replace(by, kind="class"), self.look.columns)
        self.fields[name] = "hr.Label()"
        if path in (self.look.mixed or ()):  # the mixing makes them one-hot
            self.one_hot = name
            return f"batch[{name!r}]" + ("" if leaf.dtype == "float32" else CASTS.get(leaf.dtype, ""))
        self.imports.add("import torch")
        code = f"torch.nn.functional.one_hot(batch[{name!r}], {len(leaf.value)})"
        return code + ("" if leaf.dtype == "int64" else CASTS.get(leaf.dtype, ""))

    def _constant(self, value: Any, leaf: LeafValue) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            raise UnexplainedError(f"it is {value} in all samples")
        count = "len(next(iter(batch.values())))"
        if not leaf.dtype:
            return f"[{value!r}] * {count}"
        self.imports.add("import torch")
        return f"torch.tensor([{value!r}] * {count}, dtype=torch.{leaf.dtype})"


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


# Inputs: source files, and values of columns.


@dataclass(frozen=True)
class PictureSource:
    """Files of one input of the samples."""

    root: str | None
    """Archive that contains them; None for paths, and for files in memory."""
    names: Sequence[str | bytes]
    """Paths, members, or whole files; empty if a column of the dataset's files holds them."""
    column: str | None = None


def input_names(number: int, look: Look) -> PictureSource:
    """Return the files of an input for all samples. Raises UnexplainedError if no sequence of the dataset has them."""
    read: dict[int, list[tuple[tuple[str | None, str | None], ...]]] = {}
    for each in look.samples:
        read.setdefault(each.index, []).append(each.places)
    for makings in read.values():
        own = [places[number] for places in makings if number < len(places)]
        another = next((one for one in own for places in makings if one not in places and number < len(places)), None)
        if another is not None and another[0] is not None:
            why = f"a sample reads another file each time that it is made, such as {another[1] or another[0]!r}"
            raise UnexplainedError(f"{why}: a second Loader of those files gives it")
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
        raise UnexplainedError("its bytes came from memory, and not from a file or an archive that was open")
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
    """Return the number of the only input with pixels. Raises UnexplainedError if there are several, or none."""
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
    """Return the values of all samples by the explanation of some, or raise UnexplainedError."""
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


# Mixing and structure of a batch.


def mixing_of(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> LiveTransform | None:
    """Return the transform that mixes one image and label of each batch, if any, or raise UnexplainedError."""
    if not look.mixed:
        return None
    leaves = look.samples[0].leaves
    if not any(getattr(leaves[path].value, "ndim", 0) > 1 for path in look.mixed if path in leaves):  # no picture
        raise UnexplainedError("it is another in a batch of two than in batches of one: the script makes it by batch")
    by = [explained[path].by for path in look.mixed if path in explained]
    labels = [one for one in by if isinstance(one, ValueExplanation)]
    known = [each for each in look.transforms if each.batch]
    is_pair = len(look.mixed) == len(by) == 2 and [one.kind for one in labels] == ["one-hot"]
    if len(known) != 1 or not is_pair:
        raise UnexplainedError("the script mixes the samples of a batch in it: see batch=hr.MixUp(…)")
    try:
        evaluated(known[0].batch)
    except (ValueError, SyntaxError, TypeError) as error:  # a look is a file that anybody may have written
        raise UnexplainedError("the script mixes the samples of a batch in it") from error
    return known[0]


def mixing_code(code: str, image: str, labels: str) -> str:
    tree = ast.parse(code, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MIXINGS:
            names = {"field": image, "labels": labels}
            node.keywords += [ast.keyword(name, ast.Constant(value)) for name, value in names.items()]
    return ast.unparse(tree)


def structure(codes: Mapping[LeafPath, str]) -> str:
    """Return a batch with these leaf paths as code: dicts, or lists (missing elements are None) for numbers."""
    if () in codes:
        return codes[()]
    inner: dict[str | int, dict[LeafPath, str]] = {}
    for path, code in codes.items():
        inner.setdefault(path[0], {})[path[1:]] = code
    made = {key: structure(each) for key, each in inner.items()}
    places = {key: code for key, code in made.items() if isinstance(key, int)}
    if made and len(places) == len(made):
        return f"[{', '.join(places.get(place, 'None') for place in range(max(places) + 1))}]"
    return "{" + ", ".join(f"{key!r}: {code}" for key, code in made.items()) + "}"
