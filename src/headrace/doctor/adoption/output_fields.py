"""Fields of what a script's batch holds: pictures, numbers, texts and arrays, by where each lies in the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..edits import ScriptSource, ScriptSources
from ..session.producers import OutputLeaf
from .observed import ScriptData
from .picture_fields import PictureRecipe, gives_size, picture_recipe
from .recipe import KEY, Certainty, DataSource, ModuleFunction, RecipePart
from .sample_values import ArrayFile, Cell, Computed, Picture, Quantile, TokenizedText, Validity, is_known, pictures_in
from .script_functions import ScriptFunctions, own_call
from .stand_ins import StandIn
from .table_sources import ScriptTexts, cells_in, folder_column

_DRAWN = (
    "it draws at random from its library's global generator, which the Loader's threads ask in no fixed order: neither "
    "seed= nor a checkpoint repeats that; draw from the generator that map= is given, or take an augmentation of hr's"
)


@dataclass(frozen=True)
class PictureField:
    """Field of a picture, which has its view and its augmentations yet to be given."""

    name: str
    column: str
    picture: Picture
    recipe: PictureRecipe


@dataclass
class OutputFields:
    """Fields that a batch takes, in the making."""

    data: ScriptData
    source: DataSource
    files: Sequence[ScriptSource]
    sources: ScriptSources
    script: ScriptFunctions
    sample: Any
    """Of which `depth > 0` may be of a picture that another output has."""
    is_mixed: bool = False
    """Whether the samples of a batch are mixed, which makes floats of labels."""
    fields: dict[str, str] = field(default_factory=dict)
    parts: list[RecipePart] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    functions: list[ModuleFunction] = field(default_factory=list)
    """What the calls need."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Fields with the call of what stays the script's own Python, in `map=`."""
    pictures: list[PictureField] = field(default_factory=list)
    """Those that follow the Loader's view."""
    _names: dict[Any, str] = field(default_factory=dict)
    """Fields by what they are of."""

    def code(self, value: Any, path: str) -> str:
        """Return the expression of a part of the batch, and add the fields that it takes."""
        below = f"{path}." if path else ""
        if isinstance(value, dict):
            rows = (f"{key!r}: {self.code(one, f'{below}{key}')}" for key, one in value.items())
            return "{" + ", ".join(rows) + "}"
        if isinstance(value, list | tuple):
            listed = ", ".join(self.code(one, f"{below}{k}") for k, one in enumerate(value))
            return f"[{listed}]" if isinstance(value, list) else f"({listed}{',' if len(value) == 1 else ''})"
        return self._leaf(value, path)

    def _leaf(self, value: Any, path: str) -> str:
        leaf = self.data.batch.get(path)
        if isinstance(value, Picture):
            return self._picture(value, path, leaf) if self._has_sides(value, leaf) else self._own(value)
        if isinstance(value, Validity):
            return f"batch[{self._depth_of(value)!r}]"
        if isinstance(value, TokenizedText):
            return self._text(value, path, leaf)
        if isinstance(value, ArrayFile):
            name = self._named(value, path, "array")
            self.fields[name] = f"hr.Array(source={folder_column(self.source, value.origin)!r})"
            return f"batch[{name!r}]"
        if isinstance(value, Cell):
            return self._cell(value, path, leaf)
        if is_known(value):
            return repr(value) if isinstance(value, str | int | float | bool | None) else "None"
        return self._unknown(value, path)

    def _named(self, value: Any, path: str, usual: str) -> str:
        """Return the name of the field of a value: its key in the batch, or a usual name."""
        if value in self._names.values() or id(value) in self._names:
            return self._names[id(value)]
        last = path.rpartition(".")[2]
        name = usual if not last or last.isdecimal() else last
        number = 2
        while name in self.fields:
            name, number = f"{usual}{number}", number + 1
        self._names[id(value)] = name
        return name

    def _picture(self, picture: Picture, path: str, leaf: OutputLeaf | None) -> str:
        kind = self._kind(picture, path, leaf)
        name = self._named(picture, path, kind.lower())
        column = folder_column(self.source, picture.origin)
        dtype = None if leaf is None else leaf.dtype
        picture = self._without_own_end(picture, name)
        found = picture_recipe(
            picture, kind, dtype, self._validity(picture) if kind == "Depth" else None, self._short_sides()
        )
        self.fields[name] = found.code(column, name)
        self.parts += found.parts
        self.pictures.append(PictureField(name, column, picture, found))
        return self._shaped(found, name, leaf)

    @property
    def views(self) -> list[list[str]]:
        """Views of the pictures that follow the Loader's."""
        return [one.recipe.view for one in self.pictures]

    @property
    def augments(self) -> list[list[str]]:
        """Augmentations of the pictures that follow the Loader's view."""
        return [one.recipe.augment for one in self.pictures if one.recipe.kind == "Image"]

    def draw_apart(self) -> None:
        """Give each picture a view of its own where the script draws for each anew, as SimCLR does.

        What is drawn once for several pictures is one step of all of them, and the Loader's view.
        """
        pairs = [
            (one.picture, other.picture) for one in self.pictures for other in self.pictures if one.name < other.name
        ]
        cuts = [_cuts_apart(*pair) for pair in pairs]
        if not any(apart for _, apart in cuts) or any(one.recipe.kind != "Image" for one in self.pictures):
            return
        sized = all(any(map(gives_size, one.recipe.view)) for one in self.pictures)
        if not sized or any(not apart or "Random" in " ".join(common) for common, apart in cuts):
            note = "the script draws for each of its pictures anew; here they are cut alike: Image(view=) draws for one"
            self.parts.append(RecipePart(f"views of {len(self.pictures)} pictures", "", "", "check", note, "view"))
            return
        for one in self.pictures:
            one.recipe.arguments["view"] = f"[{', '.join(one.recipe.view)}]"
            if one.recipe.augment:
                one.recipe.arguments["augment"] = f"[{', '.join(one.recipe.augment)}]"
            self.fields[one.name] = one.recipe.code(one.column, one.name)
        self.pictures = []

    def _has_sides(self, picture: Picture, leaf: OutputLeaf | None) -> bool:
        """Tell whether what functions of the script's own made of a picture is one still, and no number."""
        if leaf is None or not any(step.kind == "function" for step in picture.steps):
            return True
        return leaf.shape is not None and len(leaf.shape) >= (3 if self.data.is_batched else 2)

    def _own(self, picture: Picture) -> str:
        """Take a number that a function of the script's own makes of a picture."""
        last = picture.steps[-1]
        self.parts.append(RecipePart(last.text, last.place, "", "python", "compute it in map=", "output"))
        return "None"

    def _without_own_end(self, picture: Picture, name: str) -> Picture:
        """Return a picture without its last steps that are functions of the script's own, which go into map."""
        calls: list[tuple[str, str]] = []
        while picture.layout == "CHW" and picture.steps and (last := picture.steps[-1]).kind == "function":
            made = own_call(self.script, last.value, name)
            if made is None:
                break
            call, functions, code = made
            calls.insert(0, (name, call))
            self.functions += functions
            self.imports += code.imports
            note = _DRAWN if code.is_drawn else "the script's own, on the tensor as the script has it there"
            called = call.partition("(")[0]
            certainty: Certainty = "check" if code.is_drawn else "exact"
            self.parts.append(RecipePart(called, last.place, f"map: {called}", certainty, note, "map"))
            picture = replace(picture, steps=picture.steps[:-1])
        self.calls += calls
        return picture

    def _kind(self, picture: Picture, path: str, leaf: OutputLeaf | None) -> str:
        """Return the field that a picture is."""
        if any(isinstance(step.operand, Quantile) for step in picture.steps):
            return "Depth"
        if any(isinstance(step.operand, str) and step.operand == "mask" for step in picture.steps):
            return "Mask"  # as the script says itself
        if leaf is None or leaf.shape is None:
            return "Image"
        shape = leaf.shape[1:] if self.data.is_batched else leaf.shape
        flat = len(shape) == 2 or (len(shape) == 3 and 1 in (shape[0], shape[-1]))
        if not flat:
            return "Image"
        whole = not (leaf.dtype or "").startswith(("float", "bfloat"))
        if whole and any(step.kind == "grey" for step in picture.steps) and len(shape) == 3 and shape[0] == 1:
            return "Image"
        return "Mask" if whole else "Depth" if self._has_wide_pixels() else "Image"

    def _short_sides(self) -> list[int]:
        """Return the short sides of the files that were decoded."""
        sizes = [call.facts.get("size") for one in self.data.samples for call in one.calls if "decode" in call.stage]
        return [min(size) for size in sizes if isinstance(size, list) and len(size) == 2]

    def _has_wide_pixels(self) -> bool:
        modes = [str(call.facts.get("mode")) for sample in self.data.samples for call in sample.calls]
        return any(mode.startswith(("I", "F")) for mode in modes)

    def _shaped(self, found: PictureRecipe, name: str, leaf: OutputLeaf | None) -> str:
        """Return a field of pixels in the shape and type that the script has."""
        code = f"batch[{name!r}]"
        if leaf is None or leaf.shape is None:
            return code
        shape = leaf.shape if self.data.is_batched else [1, *leaf.shape]
        if found.kind == "Image" and len(shape) == 4 and shape[-1] in (1, 3, 4) and shape[1] not in (1, 3, 4):
            code += ".permute(0, 2, 3, 1)"
        elif found.kind == "Depth" and len(shape) == 3:
            code += ".squeeze(1)"
        elif found.kind == "Mask" and len(shape) == 4:
            code += ".unsqueeze(1)"
        has = found.arguments.get("dtype", "'uint8'" if found.kind != "Depth" else "'float32'").strip("'\"")
        if leaf.dtype not in (None, has):
            code += _cast(leaf.dtype)
        return code

    def _validity(self, picture: Picture) -> Validity | None:
        """Return the bounds of what is valid in a picture: of any output that is made of the same file."""
        return next((one for one in _validities(self.sample) if one.picture.origin == picture.origin), None)

    def _depth_of(self, value: Validity) -> str:
        names = [name for name, code in self.fields.items() if code.startswith("hr.Depth")]
        if not names:
            for picture in pictures_in(self.sample):
                if picture.origin == value.picture.origin and any(
                    isinstance(s.operand, Quantile) for s in picture.steps
                ):
                    self._picture(picture, "depth", None)
                    return "depth_valid"
        return f"{names[0] if names else 'depth'}_valid"

    def _cell(self, cell: Cell, path: str, leaf: OutputLeaf | None) -> str:
        if not cell.keys and cell.table in ("index", ""):
            self.fields["index"] = 'hr.Key("index")'
            return 'batch["index"]'
        name = self._named(cell, path, "label")
        if self.source.column(cell) == KEY or (not cell.keys and (cell.table, ()) not in self.source.columns):
            note = "keys are paths, or what files of several folders have in common; compare them"
            self.parts.append(RecipePart(cell.table, "", "hr.Key()", "check", note))
            self.fields[name] = "hr.Key()"
            return f"batch[{name!r}]"
        column = self.source.column(cell)
        text = leaf is not None and leaf.kind == "str"
        if leaf is None and cell.examples:
            text = isinstance(cell.examples[0], str)
        kind = "Raw" if text else "Label"
        if kind == "Label" and cell.examples and isinstance(cell.examples[0], str):
            note = "classes are numbered in the order of their names"
            self.parts.append(RecipePart(column, "", "hr.Label()", "check", note))
        self.fields[name] = f"hr.{kind}()" if column == name else f"hr.{kind}(source={column!r})"
        code = f"batch[{name!r}]"
        if self.is_mixed:
            return code
        if kind == "Label" and leaf is not None and leaf.dtype not in (None, "int64", "float64"):
            code += _cast(leaf.dtype)
        return code

    # Texts.

    def _text(self, text: TokenizedText, path: str, leaf: OutputLeaf | None) -> str:
        name = self._names.get(("text", repr(text.text)))
        if name is None:
            name = "text" if "text" not in self.fields else f"text{len(self.fields)}"
            self._names["text", repr(text.text)] = name
            self.fields[name] = self._text_field(text, leaf, name)
        part = text.part or path.rpartition(".")[2]
        code = f"batch[{name!r}]['{'mask' if 'mask' in part else 'ids'}']"
        has = "bool" if "mask" in part else "int64"
        return code + (_cast(leaf.dtype) if leaf is not None and leaf.dtype not in (None, has) else "")

    def _text_field(self, text: TokenizedText, leaf: OutputLeaf | None, name: str) -> str:
        settings = dict(text.settings)
        length = settings.get("max_length")
        seen = leaf.shape[-1] if leaf is not None and leaf.shape else None
        padding = settings.get("padding")
        fixed = padding == "max_length" or (length is None and seen is not None)
        tokenizer, certainty, note = self._tokenizer(text.tokenizer)
        cells = list(cells_in(text.text))
        column = self.source.column(cells[0]) if cells else "text"
        arguments = [tokenizer, f"max_length={length or seen or 77!r}"]
        arguments += ["pad='max'"] if fixed else []
        arguments += [f"source={column!r}"] if column != name else []
        code = f"hr.Text({', '.join(arguments)})"
        self.parts.append(RecipePart(repr(text.tokenizer)[:80], text.place, code, certainty, note))
        return code

    def _tokenizer(self, tokenizer: Any) -> tuple[str, Any, str]:
        """Return the tokenizer as Python, and how sure that is."""
        state = vars(tokenizer) if isinstance(tokenizer, StandIn) else {}
        name = state.get("name_or_path")
        if isinstance(name, str) and name:
            kind = type(tokenizer).__name__
            self.imports.append("from transformers import AutoTokenizer")
            self.constants["TOKENIZER"] = repr(name)
            return "AutoTokenizer.from_pretrained(TOKENIZER)", "exact", f"read as {kind}"
        texts = ScriptTexts.of(self.data.dataset, self.data.command, self.files)
        for path in texts.paths((".json",)):
            content = self.sources.read(path) or ""
            if '"model"' in content and '"vocab"' in content:
                self.constants["TOKENIZER"] = repr(path)
                return "TOKENIZER", "exact", ""
        self.constants["TOKENIZER"] = repr("tokenizer.json")
        return "TOKENIZER", "check", "the tokenizer's file was not found in the script; give its path, or a function"

    def _unknown(self, value: Any, path: str) -> str:
        """Take an output that the script computes in its own way: what it is made of, where that is a field."""
        text = value.text if isinstance(value, Computed) else repr(value)
        place = value.place if isinstance(value, Computed) else ""
        note = f"the script computes {path or 'this'} in its own Python; write it in map= where it is needed"
        self.parts.append(RecipePart(text, place, "", "python", note, "output"))
        inner = next(iter(pictures_in(value)), None) or next(iter(cells_in(value)), None)
        if isinstance(inner, Picture | Cell):
            return self._leaf(inner, path)
        return "None"


def _cuts_apart(one: Picture, other: Picture) -> tuple[list[str], bool]:
    """Return the view that two pictures have in common, and whether the script then cuts each anew."""
    common = 0
    for step, each in zip(one.steps, other.steps, strict=False):
        if step is not each:
            break
        common += 1
    rests = (replace(picture, steps=picture.steps[common:]) for picture in (one, other))
    view = picture_recipe(replace(one, steps=one.steps[:common]), "Image", None).view
    return view, any(picture_recipe(rest, "Image", None).view for rest in rests)


def _cast(dtype: str | None) -> str:
    methods = {"int64": ".long()", "float32": ".float()", "float16": ".half()", "int32": ".int()", "bool": ".bool()"}
    return methods.get(str(dtype), "")


def _validities(value: Any) -> Iterator[Validity]:
    if isinstance(value, Validity):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _validities(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _validities(one)
