"""The recipe of a script: its dataset, collate function and sampler, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..edits import ScriptSource, ScriptSources, parsed
from ..measure import TrainerView
from ..session.model import OutputLeaf, Session
from .known_datasets import DataSource, KnownSample, known_sample
from .module import module_text
from .observed import ScriptData, script_data
from .picture_fields import PictureRecipe, picture_recipe
from .recipe import Adoption, Degree, LoaderRecipe, RecipePart
from .sample_code import SampleReader
from .sample_values import ArrayFile, Cell, Computed, Picture, Quantile, TokenizedText, Validity, is_known, pictures_in
from .stand_ins import FunctionStandIn, StandIn, class_of
from .table_sources import ScriptTexts, cells_in, folder_column, table_source

_SAMPLERS = ("SequentialSampler", "RandomSampler", "DistributedSampler", "_InfiniteConstantSampler")
"""Samplers that take each sample once an epoch, or that leave it to the dataset."""
_COLLATES = (
    "default_collate",
    "default_convert",
    "fast_collate",
    "default_data_collator",
    "torch_default_data_collator",
)


def adopt(session: Session, view: TrainerView, sources: ScriptSources) -> Adoption | None:
    """Return what the script that a session is of would be with a Loader.

    None where no loader was described: in sessions of an earlier doctor, and where the loop has none of torch's.
    """
    data = script_data(session, view)
    if data is None:
        return None
    files = parsed(session, data.files, sources)
    try:
        recipe = ScriptRecipe(data, files, sources).recipe()
        return Adoption(recipe, None if recipe.degree == "no" else module_text(recipe))
    except Exception as error:  # a session may come from anywhere, and a diagnosis is more than this remedy
        why = f"what its dataset holds could not be read, a fault of the doctor's: {type(error).__name__}: {error}"
        return Adoption(LoaderRecipe("", {}, "batch", degree="no", reason=why), None)


@dataclass
class ScriptRecipe:
    """Recipe in the making."""

    data: ScriptData
    files: Sequence[ScriptSource]
    sources: ScriptSources
    fields: dict[str, str] = field(default_factory=dict)
    parts: list[RecipePart] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    views: list[list[str]] = field(default_factory=list)
    augments: list[list[str]] = field(default_factory=list)
    source: DataSource | None = None
    value: Any = None
    batch: Any = None
    """Structure of the script's batch."""
    is_mixed: bool = False
    """Whether the samples of a batch are mixed, which makes floats of labels."""
    _names: dict[Any, str] = field(default_factory=dict)
    """Fields by what they are of."""

    def recipe(self) -> LoaderRecipe:
        """Return the recipe."""
        dataset = self.data.dataset
        if not isinstance(dataset, StandIn):
            return self._none(f"its dataset is a {type(dataset).__name__}, which holds no files")
        reader = SampleReader(self.files, dataset, self.data.rebuilt.names_of("dataset"))
        found = known_sample(dataset, reader) or self._own_sample(reader)
        if found is None:
            return self._none(self._why_none(dataset, reader))
        self.source, self.value = found.source, found.value
        self.parts += found.source.parts
        self.constants |= found.source.constants
        self.batch = self._collated(found.value, reader)
        self.is_mixed = reader.mixing is not None
        output = self._output(self.batch, "")
        self._left_out(reader)
        self._order()
        mixing = self._mixing(reader)
        if not any(code.startswith(("hr.Image", "hr.Mask", "hr.Depth")) for code in self.fields.values()):
            return self._none("no picture is decoded in it: what it gives lies in memory, or is made in another way")
        blocked = next((part for part in self.parts if part.certainty == "no"), None)
        if blocked is not None:
            return self._none(f"{blocked.part}: {blocked.note}")
        degree, reason = self._degree()
        size = self.data.batch_size or found.batch_size or self.data.seen_batch_size
        return LoaderRecipe(
            source=found.source.code,
            fields=self.fields,
            output=output,
            view=self._shared("view", self.views),
            augment=self._shared("augment", self.augments),
            mixing=mixing,
            parts=tuple(dict.fromkeys(self.parts)),
            degree=degree,
            reason=reason,
            batch_size=size or 1,
            shuffle=self.data.is_shuffled or any(part.becomes == "shuffle=True" for part in self.parts),
            drop_last=bool(self.data.described.get("drop_last")) or found.drop_last,
            imports=tuple(dict.fromkeys([*self.imports, *found.source.imports])),
            constants=self.constants,
            script=self.data.script,
            dataset=class_of(dataset),
        )

    def _none(self, why: str) -> LoaderRecipe:
        return LoaderRecipe("", {}, "batch", degree="no", reason=why, parts=tuple(self.parts), script=self.data.script)

    def _why_none(self, dataset: Any, reader: SampleReader) -> str:
        name = class_of(dataset)
        if isinstance(self.value, Computed):
            return f"the code of {name}.__getitem__ was not found"
        return f"where the data of {name} lies was not found"

    def _own_sample(self, reader: SampleReader) -> KnownSample | None:
        """Return the sample of a class of the script's own."""
        self.value = reader.sample()
        if isinstance(self.value, Computed) and not self.value.inputs:
            return None
        for wrapped in vars(self.data.dataset).values():
            if isinstance(wrapped, StandIn) and (inner := known_sample(wrapped, reader)) is not None:
                return replace(inner, value=self.value)
        texts = ScriptTexts.of(self.data.dataset, self.data.command, self.files)
        source = table_source(self.value, self.data.dataset, texts, self.sources, list(_named_cells(self.value, "")))
        return None if source is None else KnownSample(self.value, source)

    # The batch.

    def _collated(self, sample: Any, reader: SampleReader) -> Any:
        """Return the structure of a batch, in which each value stands for those of all samples."""
        collate = self.data.rebuilt.objects.get("collate")
        name = collate.name.rpartition(".")[2] if isinstance(collate, FunctionStandIn) else ""
        if name == "fast_collate":
            return sample
        if collate is None or name in _COLLATES:
            return _as_lists(sample)
        if isinstance(collate, FunctionStandIn) and (found := reader.function(collate)) is not None:
            return reader.run(*found, [[sample]], {}, {**reader.names, **collate.names})
        text = repr(collate)
        note = "batches are collated by the Loader; compare their structure"
        self.parts.append(RecipePart(text, "", "", "check", note, "output"))
        return sample

    def _output(self, value: Any, path: str) -> str:
        """Return the expression of a part of the batch, and add the fields that it takes."""
        below = f"{path}." if path else ""
        if isinstance(value, dict):
            rows = (f"{key!r}: {self._output(one, f'{below}{key}')}" for key, one in value.items())
            return "{" + ", ".join(rows) + "}"
        if isinstance(value, list | tuple):
            listed = ", ".join(self._output(one, f"{below}{k}") for k, one in enumerate(value))
            return f"[{listed}]" if isinstance(value, list) else f"({listed}{',' if len(value) == 1 else ''})"
        return self._leaf(value, path)

    def _leaf(self, value: Any, path: str) -> str:
        leaf = self.data.batch.get(path)
        if isinstance(value, Picture):
            return self._picture(value, path, leaf)
        if isinstance(value, Validity):
            return f"batch[{self._depth_of(value)!r}]"
        if isinstance(value, TokenizedText):
            return self._text(value, path, leaf)
        if isinstance(value, ArrayFile):
            name = self._named(value, path, "array")
            self.fields[name] = f"hr.Array(source={folder_column(self._source, value.origin)!r})"
            return f"batch[{name!r}]"
        if isinstance(value, Cell):
            return self._cell(value, path, leaf)
        if is_known(value):
            return repr(value) if isinstance(value, str | int | float | bool | None) else "None"
        return self._unknown(value, path)

    @property
    def _source(self) -> DataSource:
        assert self.source is not None
        return self.source

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
        column = folder_column(self._source, picture.origin)
        dtype = None if leaf is None else leaf.dtype
        found = picture_recipe(picture, kind, dtype, self._validity(picture) if kind == "Depth" else None)
        self.fields[name] = found.code(column, name)
        self.parts += found.parts
        self.views.append(found.view)
        if kind == "Image":
            self.augments.append(found.augment)
        return self._shaped(found, name, leaf)

    def _kind(self, picture: Picture, path: str, leaf: OutputLeaf | None) -> str:
        """Return the field that a picture is."""
        if any(isinstance(step.operand, Quantile) for step in picture.steps):
            return "Depth"
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
        return next((one for one in _validities(self.value) if one.picture.origin == picture.origin), None)

    def _depth_of(self, value: Validity) -> str:
        names = [name for name, code in self.fields.items() if code.startswith("hr.Depth")]
        if not names:
            for picture in pictures_in(self.value):
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
        if not cell.keys and (cell.table, ()) not in self._source.columns:
            note = "keys are paths, or what files of several folders have in common; compare them"
            self.parts.append(RecipePart(cell.table, "", "hr.Key()", "check", note))
            self.fields[name] = "hr.Key()"
            return f"batch[{name!r}]"
        column = self._source.column(cell)
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
        column = self._source.column(cells[0]) if cells else "text"
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

    # What stands in the way, and the degree.

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

    def _left_out(self, reader: SampleReader) -> None:
        for one in reader.left_out:
            note = "the script does this for each sample; whether it changes one is for you to say"
            self.parts.append(RecipePart(one.text, one.place, "", "check", note, "map"))

    def _order(self) -> None:
        """Take the sampler: one that draws otherwise than each sample once is a part to check."""
        sampler = self.data.rebuilt.objects.get("sampler")
        state = vars(sampler) if isinstance(sampler, StandIn) else {}
        name = class_of(sampler).rpartition(".")[2]
        drawn = name == "RandomSampler" and (state.get("replacement") or state.get("_num_samples") is not None)
        if sampler is None or (name in _SAMPLERS and not drawn):
            return
        note = "the Loader takes each sample once an epoch: see weights=, balanced=, repeats= and samples_per_epoch="
        self.parts.append(RecipePart(name, "", "shuffle", "check", note, "loader"))

    def _shared(self, name: str, steps: Sequence[list[str]]) -> str | None:
        """Return the view or the augmentations of all pictures: those of the first that has some."""
        given = [one for one in steps if one]
        if name == "view" and (sized := self._sized(given)) is not None:
            given = [sized]
        if not given:
            return None
        if any(one != given[0] for one in given[1:]):
            note = "pictures of a sample have different ones in the script; here all follow the first"
            self.parts.append(RecipePart(f"{name} of {len(given)} pictures", "", "", "check", note, name))  # type: ignore[arg-type]
        return f"[{', '.join(given[0])}]"

    def _sized(self, given: Sequence[list[str]]) -> list[str] | None:
        """Return a view of the size that the script's pictures have, where the known steps give none."""
        leaf = next((one for one in self.data.batch.values() if one.shape is not None and len(one.shape) >= 3), None)
        if leaf is None or leaf.shape is None or (given and any(_gives_size(step) for step in given[0])):
            return None
        if not any(part.certainty == "python" and part.argument == "view" for part in self.parts):
            return None
        shape = leaf.shape[1:] if self.data.is_batched else leaf.shape
        height, width = shape[-3:-1] if shape[-1] in (1, 3, 4) and len(shape) == 3 else shape[-2:]
        view = f"hr.RandomResizedCrop(({height}, {width}))"
        note = "the script cuts its pictures in its own way; this draws a part of each, set scale= as the script has it"
        self.parts.append(RecipePart("size of the pictures", "", f"view: {view}", "check", note, "view"))
        return [view, *(given[0] if given else [])]

    def _mixing(self, reader: SampleReader) -> str | None:
        """Return MixUp or CutMix of the batch."""
        mixing = reader.mixing
        if mixing is None:
            return None
        name, alpha = type(mixing).__name__, vars(mixing).get("alpha")
        code = f"hr.{name}(alpha={float(alpha)!r})" if isinstance(alpha, int | float) else f"hr.{name}()"
        note = "neighbours of a batch are mixed, with a factor for each pair"
        self.parts.append(RecipePart(repr(mixing), "", code, "differs", note, "loader"))
        return code

    def _degree(self) -> tuple[Degree, str]:
        unsure = [part for part in self.parts if part.certainty in ("check", "python")]
        different = [path for path in self.data.batch if self._is_lost(path)]
        if not unsure and not different and self.data.is_batched:
            return "exact", ""
        if unsure:
            part = unsure[0]
            where = f" ({part.place})" if part.place else ""
            more = f", and {len(unsure) - 1} more" if len(unsure) > 1 else ""
            return "draft", f"{part.part}{where} has to be checked{more}."
        if different:
            return "draft", f"{different[0]} of the script's batch was not found in its code."
        return "draft", "no batch of the script's was seen, so its structure has to be checked."

    def _is_lost(self, path: str) -> bool:
        """Tell whether the batch has a value that the recipe has not."""
        value: Any = self.batch
        for key in path.split(".") if path else []:
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return not isinstance(value, TokenizedText | Cell)
        return False


def _gives_size(step: str) -> bool:
    """Tell whether a view gives pictures of one size."""
    return not step.startswith(("hr.RandomHorizontalFlip", "hr.RandomVerticalFlip")) and (
        not step.startswith("hr.Resize(") or step.startswith("hr.Resize((")
    )


def _as_lists(sample: Any) -> Any:
    """Return a sample as torch's collate functions have it, which make lists of tuples."""
    if isinstance(sample, dict):
        return {key: _as_lists(value) for key, value in sample.items()}
    return [_as_lists(value) for value in sample] if isinstance(sample, list | tuple) else sample


def _cast(dtype: str | None) -> str:
    methods = {"int64": ".long()", "float32": ".float()", "float16": ".half()", "int32": ".int()", "bool": ".bool()"}
    return methods.get(str(dtype), "")


def _named_cells(value: Any, path: str) -> Iterator[tuple[str, Cell]]:
    """Yield the cells of a sample with the names that suit their columns."""
    items: Mapping[Any, Any] = (
        value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list | tuple) else {}
    )
    usual = {0: "image", 1: "label"}
    for key, one in items.items():
        name = usual.get(key, f"column{key}") if isinstance(key, int) else str(key)
        for cell in cells_in(one):
            yield name.partition("_")[0], cell


def _validities(value: Any) -> Iterator[Validity]:
    if isinstance(value, Validity):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _validities(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _validities(one)
