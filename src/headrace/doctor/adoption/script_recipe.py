"""The recipe of a script: its dataset, collate function and sampler, part by part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..edits import ScriptSource, ScriptSources, parsed
from ..measure import TrainerView
from ..session.model import Session
from .dataset_parts import SUBSET, concatenated_sample, parts_of, subset_sample
from .known_datasets import derived_sample, known_sample
from .module import module_text
from .observed import ScriptData, script_data
from .output_fields import OutputFields
from .picture_fields import gives_size
from .recipe import Adoption, Certainty, DataSource, Degree, ExpectedSource, KnownSample, LoaderRecipe, RecipePart
from .sample_code import SampleReader
from .sample_streams import StreamReader, stream_sample
from .sample_values import Cell, Computed, TokenizedText
from .script_functions import call_function
from .stand_ins import FunctionStandIn, StandIn, class_of, is_own
from .table_sources import ScriptTexts, cells_in, table_source
from .torchvision_datasets import held_in_memory

_WHOLE = ("SequentialSampler", "RandomSampler", "SeedableRandomSampler")
"""Samplers that take all samples of a dataset in one process; the last one is accelerate's."""
_SAMPLERS = (*_WHOLE, "DistributedSampler", "_InfiniteConstantSampler")
"""Samplers that take each sample once an epoch, or that leave it to the dataset."""
_LIBRARIES = ("torchvision", "torch", "timm", "torchaudio")
"""Libraries whose datasets are known by their class, or not at all."""
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
    parts: list[RecipePart] = field(default_factory=list)
    value: Any = None
    batch: Any = None
    """Structure of the script's batch."""

    def recipe(self) -> LoaderRecipe:
        """Return the recipe."""
        dataset = self.data.dataset
        if not isinstance(dataset, StandIn):
            return self._none(f"its dataset is a {type(dataset).__name__}, which holds no files")
        reader = SampleReader(self.files, dataset)
        if lists := self.data.pictures_of_two_sizes:
            return self._none(
                f"its batches are lists of pictures of different sizes ({lists}), where the Loader makes one tensor: "
                f"hr.Buckets and hr.RandomScale pad pictures of like shape, and hr.Boxes follows them"
            )
        found = self._sample(dataset, reader)
        if found is None:
            return self._none(self._why_none(reader))
        self.value = found.value
        self.parts += found.source.parts
        self.batch = self._collated(found.value, reader)
        output = OutputFields(self.data, found.source, self.files, self.sources, reader.script, found.value)
        output.is_mixed = reader.mixing is not None
        batch_code = output.code(self.batch, "")
        output.draw_apart()
        self.parts += output.parts
        self._left_out(reader)
        self._order()
        mixing = self._mixing(reader)
        if not any(code.startswith(("hr.Image", "hr.Mask", "hr.Depth")) for code in output.fields.values()):
            return self._none("no picture is decoded in it: what it gives lies in memory, or is made in another way")
        blocked = next((part for part in self.parts if part.certainty == "no"), None)
        if blocked is not None:
            return self._none(f"{blocked.part}: {blocked.note}")
        mapped = [*dict.fromkeys(output.functions), call_function(output.calls)] if output.calls else []
        degree, reason = self._degree()
        size = self.data.batch_size or found.batch_size or self.data.seen_batch_size
        return LoaderRecipe(
            source=found.source.code,
            fields=output.fields,
            output=batch_code,
            chosen=found.source.chosen,
            view=self._shared("view", output.views),
            augment=self._shared("augment", output.augments),
            mixing=mixing,
            parts=tuple(dict.fromkeys(self.parts)),
            degree=degree,
            reason=reason,
            batch_size=size or 1,
            shuffle=self.data.is_shuffled or any(part.becomes == "shuffle=True" for part in self.parts),
            drop_last=bool(self.data.described.get("drop_last")) or found.drop_last,
            imports=tuple(dict.fromkeys([*output.imports, *found.source.imports])),
            functions=(*found.source.functions, *mapped),
            map=mapped[-1].name if mapped else None,
            constants={**found.source.constants, **output.constants},
            script=self.data.script,
            is_launched=self.data.is_launched,
            dataset=class_of(dataset),
            expected=replace(self._expected(found.source), batch=self.data.steady_batch),
        )

    def _none(self, why: str) -> LoaderRecipe:
        return LoaderRecipe("", {}, "batch", degree="no", reason=why, parts=tuple(self.parts), script=self.data.script)

    def _why_none(self, reader: SampleReader) -> str:
        dataset, name = reader.dataset, class_of(reader.dataset)
        held = held_in_memory(dataset)
        if held:
            return (
                f"{name} holds its samples in memory ({held}): take whole batches of it by one index, on the device "
                f"where it fits; hr.ThreadDataLoader makes single samples without processes"
            )
        stream = reader.script.method(dataset, "__iter__")
        if stream is not None and reader.script.method(dataset, "__getitem__") is None:
            return (
                f"{name}.__iter__ ({reader.place_in(*stream)}) yields samples one after another, and where each lies "
                f"was not found: hr.open takes tars, and manifests that name files, as they are"
            )
        has_code = any(reader.script.method(dataset, one) for one in ("__getitem__", "__getitems__"))
        if not is_own(dataset) and (not has_code or name.split(".")[0] in _LIBRARIES):
            return f"{name} is not among the dataset classes that the doctor knows"
        if not has_code:
            file = str(type(dataset).described["file"])
            if file not in reader.script.sources:
                return f"{file}, which has the code of {name}, could not be read"
            return f"{name} takes its __getitem__ from a class that is not among those that the doctor knows"
        if isinstance(self.value, Computed):
            return f"what {name}.__getitem__ returns is not understood: {self.value.text} ({self.value.place})"
        if self.data.stores:
            return (
                f"code of {name} itself asks {self.data.stores[0]} for samples, and which objects these are was not "
                f"found: name them in a manifest, and open that with root= in the store"
            )
        return f"where the data of {name} lies was not found"

    def _sample(self, dataset: Any, reader: SampleReader) -> KnownSample | None:
        """Return the sample of a dataset, of a part of one, or of several one behind the other."""
        reader.turn_to(dataset)
        inner = vars(dataset).get("dataset") if class_of(dataset) == SUBSET else None
        if isinstance(inner, StandIn):
            found = self._sample(inner, reader)
            return None if found is None else subset_sample(found, dataset, self.files, self.data.command)
        listed = parts_of(dataset)
        if listed is not None:
            return concatenated_sample(dataset, [self._sample(one, reader) for one in listed])
        return known_sample(dataset, reader) or derived_sample(dataset, reader) or self._own_sample(dataset, reader)

    def _own_sample(self, dataset: Any, reader: SampleReader) -> KnownSample | None:
        """Return the sample of a class of the script's own."""
        texts = ScriptTexts.of(dataset, self.data.command, self.files)
        if reader.script.method(dataset, "__getitem__") is None and reader.script.method(dataset, "__iter__"):
            stream = StreamReader(self.files, dataset)
            found = stream_sample(stream, texts, self.sources)
            reader.left_out += stream.left_out if found is not None else []
            return found
        self.value = reader.sample()
        if isinstance(self.value, Computed) and not self.value.inputs:
            return None
        for wrapped in vars(dataset).values():
            if isinstance(wrapped, StandIn) and (inner := known_sample(wrapped, reader)) is not None:
                return replace(inner, value=self.value)
        source = table_source(self.value, dataset, texts, self.sources, list(_named_cells(self.value, "")))
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
        if isinstance(collate, FunctionStandIn) and (found := reader.script.function(collate)) is not None:
            return reader.run(*found, [[sample]], {}, {**reader.names, **collate.names})
        text = repr(collate)
        note = "batches are collated by the Loader; compare their structure"
        self.parts.append(RecipePart(text, "", "", "check", note, "output"))
        return sample

    # What stands in the way, and the degree.

    def _left_out(self, reader: SampleReader) -> None:
        for one in reader.left_out:
            note = "the script does this for each sample; whether it changes one is for you to say"
            note = "taken here as if it were always so" if one.text.startswith("if ") else note
            self.parts.append(RecipePart(one.text, one.place, "", "check", note, "map"))

    def _order(self) -> None:
        """Take the sampler: one that draws otherwise than each sample once is a part to check."""
        sampler = self.data.rebuilt.objects.get("sampler")
        state = vars(sampler) if isinstance(sampler, StandIn) else {}
        name = class_of(sampler).rpartition(".")[2]
        drawn = name in _WHOLE and (state.get("replacement") or state.get("_num_samples") is not None)
        if sampler is None or (name in _SAMPLERS and not drawn):
            return
        note = "the Loader takes each sample once an epoch: see weights=, balanced=, repeats= and samples_per_epoch="
        self.parts.append(RecipePart(name, "", "shuffle", "check", note, "loader"))

    def _expected(self, source: DataSource) -> ExpectedSource:
        """Return what the source has to hold: by the dataset's lists, else by the length of the DataLoader."""
        if source.length is not None:
            return ExpectedSource(source.length, source.length, source.classes)
        batches, size = self.data.facts.get("length"), self.data.batch_size
        sampler = class_of(self.data.rebuilt.objects.get("sampler")).rpartition(".")[2]
        checked = any(part.argument in ("source", "loader") and part.certainty != "exact" for part in self.parts)
        if checked or source.chosen or not batches or not size or sampler not in _WHOLE:
            return ExpectedSource(classes=source.classes)
        if self.data.described.get("drop_last"):
            return ExpectedSource(batches * size, (batches + 1) * size - 1, source.classes)
        return ExpectedSource((batches - 1) * size + 1, batches * size, source.classes)

    def _shared(self, name: str, steps: Sequence[list[str]]) -> str | None:
        """Return the view or the augmentations of all pictures: those of the first that has some."""
        if not steps:
            return None
        given = [one for one in steps if one]
        if name == "view" and (sized := self._sized(given)) is not None:
            given = [sized]
        if not given:
            return None
        if any(_without_fills(one) != _without_fills(given[0]) for one in given[1:]):
            note = "pictures of a sample have different ones in the script; here all follow the first"
            self.parts.append(RecipePart(f"{name} of {len(given)} pictures", "", "", "check", note, name))  # type: ignore[arg-type]
        return f"[{', '.join(given[0])}]"

    def _sized(self, given: Sequence[list[str]]) -> list[str] | None:
        """Return a view of the size that the script's pictures have, where the known steps give none."""
        leaf = next((one for one in self.data.batch.values() if one.shape is not None and len(one.shape) >= 3), None)
        if leaf is None or leaf.shape is None or (given and any(gives_size(step) for step in given[0])):
            return None
        if not any(part.certainty == "python" and part.argument == "view" for part in self.parts):
            return None
        shape = leaf.shape[1:] if self.data.is_batched else leaf.shape
        height, width = shape[-3:-1] if shape[-1] in (1, 3, 4) and len(shape) == 3 else shape[-2:]
        own = [part.part for part in self.parts if part.certainty == "python" and part.argument == "view"]
        if all("resize" in text.lower() for text in own):
            view = f"hr.Resize(({height}, {width}))"
            note = "the script resizes its pictures by its own sizes; this is the size that was seen"
        else:
            view = f"hr.RandomResizedCrop(({height}, {width}))"
            note = "the script cuts its pictures in its own way; this draws a part of each, set scale= as it has it"
        self.parts.append(RecipePart("size of the pictures", "", f"view: {view}", "check", note, "view"))
        return [view, *(given[0] if given else [])]

    def _mixing(self, reader: SampleReader) -> str | None:
        """Return MixUp or CutMix of the batch."""
        mixing = reader.mixing
        if mixing is None:
            return None
        name = "MixUp" if "mixup" in type(mixing).__name__.lower() else "CutMix"
        alpha = vars(mixing).get("alpha")
        code = f"hr.{name}(alpha={float(alpha)!r})" if isinstance(alpha, int | float) else f"hr.{name}()"
        note = "neighbours of a batch are mixed, with a factor for each pair"
        is_known = class_of(mixing).startswith(("torchvision.", "timm."))
        certainty: Certainty = "differs" if is_known else "check"
        self.parts.append(RecipePart(repr(mixing), "", code, certainty, note, "loader"))
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


def _without_fills(steps: Sequence[str]) -> list[str]:
    """Return views without what they pad with, which a mask has of its own."""
    return [re.sub(r", fill=(\([^()]*\)|[^,()]+)", "", one) for one in steps]


def _as_lists(sample: Any) -> Any:
    """Return a sample as torch's collate functions have it, which make lists of tuples."""
    if isinstance(sample, dict):
        return {key: _as_lists(value) for key, value in sample.items()}
    return [_as_lists(value) for value in sample] if isinstance(sample, list | tuple) else sample


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
