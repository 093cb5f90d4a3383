"""Samples of dataset classes of libraries: what each holds, and where `hr.open` finds it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from .code_layout import literal
from .recipe import DataSource, KnownSample, RecipePart
from .sample_code import SampleReader
from .sample_values import Cell, Computed, Picture, transformed
from .stand_ins import FunctionStandIn, LongList, StandIn, bases_of, class_of
from .webdataset_pipelines import webdataset_sample

SUBSET = "torch.utils.data.dataset.Subset"
SUBSET_PART = RecipePart(
    "Subset",
    "",
    "",
    "check",
    "the Loader opens all samples; the script takes some of them: data.select(indices) or data.split(…)",
    "source",
)


def known_sample(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a dataset class that is known; None for any other."""
    name = class_of(dataset)
    root = name.split(".")[0]
    if name == SUBSET:
        return _subset(dataset, reader)
    if name in ("torchvision.datasets.folder.ImageFolder", "torchvision.datasets.folder.DatasetFolder"):
        return _image_folder(dataset, reader, vars(dataset).get("root"), vars(dataset).get("samples"))
    if root == "timm" and hasattr(dataset, "reader"):
        reading = dataset.reader
        return _image_folder(dataset, reader, vars(reading).get("root"), vars(reading).get("samples"), natural=True)
    if name == "torchvision.datasets.coco.CocoDetection":
        return _coco(dataset)
    if root == "webdataset" or any(base.startswith("webdataset.") for base in bases_of(dataset)):
        return webdataset_sample(dataset, reader)
    if name == "datasets.arrow_dataset.Dataset":
        return _huggingface(dataset, reader)
    return None


def _image_folder(
    dataset: Any, reader: SampleReader, root: Any, samples: Any, *, natural: bool = False
) -> KnownSample | None:
    if not isinstance(root, str | PurePosixPath):
        return None
    transform = vars(dataset).get("transform")
    picture = reader.applied(transform, [Picture(Cell("", ("image",)))])
    if not isinstance(picture, Picture):
        picture = transformed(Picture(Cell("", ("image",))), transform)
    label: Any = Cell("", ("label",))
    target = vars(dataset).get("target_transform")
    if target is not None:
        label = Computed(f"target_transform {target!r}", "", (label,))
    parts = list(_folder_parts(dataset, natural))
    length = samples.count if isinstance(samples, LongList) else len(samples) if isinstance(samples, list) else None
    return KnownSample(
        (picture, label),
        DataSource("hr.open(SOURCE)", constants={"SOURCE": literal(str(root))}, parts=tuple(parts), length=length),
    )


def _folder_parts(dataset: Any, natural: bool) -> Iterator[RecipePart]:
    loader = vars(dataset).get("loader")
    name = class_of(dataset).rpartition(".")[2]
    if isinstance(loader, FunctionStandIn) and loader.name.rpartition(".")[2] not in ("default_loader", "pil_loader"):
        place = f"{os.path.basename(loader.file)}:{loader.line}" if loader.file else ""
        yield RecipePart(f"{name}(loader={loader!r})", place, "", "check", "files are decoded here as RGB", "source")
    elif natural:
        is_same = _are_sorted_alike(dataset)
        note = (
            "" if is_same else "classes are numbered in the order of their names; timm sorts numbers in names as such"
        )
        yield RecipePart(name, "", "hr.open(SOURCE)", "exact" if is_same else "check", note, "source")
    else:
        yield RecipePart(name, "", "hr.open(SOURCE)", "exact", "", "source")


def _are_sorted_alike(dataset: Any) -> bool:
    """Tell whether the names of classes that are known sort alike as texts and by their numbers."""
    known = vars(dataset.reader).get("class_to_idx")
    names = list(known) if isinstance(known, dict) else []
    return bool(names) and [known[name] for name in sorted(names)] == list(range(len(names)))


def _subset(dataset: Any, reader: SampleReader) -> KnownSample | None:
    found = known_sample(vars(dataset).get("dataset"), reader)
    if found is None:
        return None
    indices = vars(dataset).get("indices")
    source = found.source
    if isinstance(indices, list | range):
        code = literal(indices) if isinstance(indices, range) or len(indices) <= 16 else None
        if code is not None:
            part = RecipePart("Subset", "", f"select({code})", "exact", "", "source")
            chosen = DataSource(
                f"{source.code}.select({code})", source.columns, source.constants, source.imports, (*source.parts, part)
            )
            return KnownSample(found.value, chosen)
    parts = (*source.parts, SUBSET_PART)
    whole = DataSource(source.code, source.columns, source.constants, source.imports, parts)
    return KnownSample(found.value, whole)


def _coco(dataset: Any) -> KnownSample | None:
    root = vars(dataset).get("root")
    note = "the path of the annotations is not kept by the dataset; boxes are those of the file, not of the view"
    part = RecipePart("CocoDetection", "", "hr.open(ANNOTATIONS, root=SOURCE)", "check", note, "source")
    constants = {"ANNOTATIONS": literal("annotations/instances_train2017.json"), "SOURCE": literal(str(root))}
    source = DataSource("hr.open(ANNOTATIONS, root=SOURCE)", constants=constants, parts=(part,))
    picture = transformed(Picture(Cell("", ("image",))), vars(dataset).get("transform"))
    return KnownSample((picture, {"boxes": Cell("", ("bbox",)), "labels": Cell("", ("label",))}), source)


# datasets of Hugging Face.


def _huggingface(dataset: Any, reader: SampleReader) -> KnownSample | None:
    state = vars(dataset)
    files = sorted({path for path in _mapped_files(state.get("_data"), 0) if path.endswith(".arrow")})
    if not files:
        return None
    features = _features(state)
    row: dict[str, Any] = {
        name: Picture(Cell("", (name,))) if kind.endswith("Image") else Cell("", (name,))
        for name, kind in features.items()
    }
    parts = []
    if state.get("_indices") is not None:
        note = "rows were selected or shuffled; the Loader opens all rows of the files: data.select(indices)"
        parts.append(RecipePart("Dataset", "", "", "check", note, "source"))
    formatting = state.get("_format_kwargs")
    transform = formatting.get("transform") if isinstance(formatting, dict) else None
    value: Any = row
    if isinstance(transform, FunctionStandIn):
        found = reader.function(transform)
        if found is None:
            value = Computed(repr(transform), "", tuple(row.values()))
        else:
            batch = {name: [each] for name, each in row.items()}
            given = reader.run(*found, [batch], {}, {**reader.names, **transform.names})
            value = (
                {name: each[0] if isinstance(each, list) and each else each for name, each in given.items()}
                if isinstance(given, dict)
                else given
            )
    code = literal(files[0] if len(files) == 1 else files)
    return KnownSample(value, DataSource("hr.open(SOURCE)", constants={"SOURCE": code}, parts=tuple(parts)))


def _mapped_files(table: Any, level: int) -> Iterator[str]:
    """Yield the paths of the files that a table of `datasets` is mapped from."""
    if isinstance(table, list):
        for one in table:
            yield from _mapped_files(one, level + 1)
    elif isinstance(table, StandIn) and level < 5:
        path = vars(table).get("path")
        if isinstance(path, str):
            yield path
        for name in ("blocks", "table"):
            yield from _mapped_files(vars(table).get(name), level + 1)


def _features(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the features of a dataset, each with the name of its class."""
    info = state.get("_info")
    features = vars(info).get("features") if isinstance(info, StandIn) else None
    features = vars(features) if isinstance(features, StandIn) else features
    if not isinstance(features, dict):
        return {"image": "Image", "label": "ClassLabel"}
    return {name: class_of(feature) for name, feature in features.items()}
