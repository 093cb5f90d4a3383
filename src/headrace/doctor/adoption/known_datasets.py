"""Samples of dataset classes of libraries: what each holds, and where `hr.open` finds it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from .code_layout import literal
from .recipe import RecipePart
from .sample_code import SampleReader
from .sample_values import Cell, Computed, Picture, PictureStep
from .stand_ins import FunctionStandIn, LongList, StandIn, bases_of, class_of

IMAGE_ENDS = ("jpg", "jpeg", "png", "webp", "ppm", "tif", "tiff", "bmp", "gif")


@dataclass(frozen=True)
class DataSource:
    """Expression that opens the data, and the names of its columns."""

    code: str
    columns: Mapping[tuple[str, tuple[str | int, ...]], str] = field(default_factory=dict)
    """Column of each cell, by its table and keys; of others the last key is the column's name."""
    constants: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    parts: tuple[RecipePart, ...] = ()
    length: int | None = None
    """Samples that the script's dataset has, where its lists tell."""

    def column(self, cell: Cell) -> str:
        keys = tuple(key for key in cell.keys if key != "random")
        return self.columns.get((cell.table, keys), str(keys[-1]) if keys else cell.table)


@dataclass(frozen=True)
class KnownSample:
    """What a sample of a known dataset is."""

    value: Any
    source: DataSource
    batch_size: int | None = None
    """Of a dataset that batches itself."""
    drop_last: bool = False
    """Of such a dataset."""


def known_sample(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a dataset class that is known; None for any other."""
    name = class_of(dataset)
    root = name.split(".")[0]
    if name == "torch.utils.data.dataset.Subset":
        return _subset(dataset, reader)
    if name in ("torchvision.datasets.folder.ImageFolder", "torchvision.datasets.folder.DatasetFolder"):
        return _image_folder(dataset, vars(dataset).get("root"), vars(dataset).get("samples"))
    if root == "timm" and hasattr(dataset, "reader"):
        reading = dataset.reader
        return _image_folder(dataset, vars(reading).get("root"), vars(reading).get("samples"), natural=True)
    if name == "torchvision.datasets.coco.CocoDetection":
        return _coco(dataset)
    if root == "webdataset" or any(base.startswith("webdataset.") for base in bases_of(dataset)):
        return _webdataset(dataset, reader)
    if name == "datasets.arrow_dataset.Dataset":
        return _huggingface(dataset, reader)
    return None


def transformed(value: Any, transform: Any, place: str = "") -> Any:
    """Return a picture after a transform of the dataset's; unchanged for None."""
    if transform is None or not isinstance(value, Picture):
        return value
    return value.then(PictureStep("transform", place, repr(transform), transform), layout="CHW")


def _image_folder(dataset: Any, root: Any, samples: Any, *, natural: bool = False) -> KnownSample | None:
    if not isinstance(root, str | PurePosixPath):
        return None
    picture = transformed(Picture(Cell("", ("image",))), vars(dataset).get("transform"))
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
    note = "the Loader opens all samples; the script takes some of them: data.select(indices) or data.split(…)"
    part = RecipePart("Subset", "", "", "check", note, "source")
    whole = DataSource(source.code, source.columns, source.constants, source.imports, (*source.parts, part))
    return KnownSample(found.value, whole)


def _coco(dataset: Any) -> KnownSample | None:
    root = vars(dataset).get("root")
    note = "the path of the annotations is not kept by the dataset; boxes are those of the file, not of the view"
    part = RecipePart("CocoDetection", "", "hr.open(ANNOTATIONS, root=SOURCE)", "check", note, "source")
    constants = {"ANNOTATIONS": literal("annotations/instances_train2017.json"), "SOURCE": literal(str(root))}
    source = DataSource("hr.open(ANNOTATIONS, root=SOURCE)", constants=constants, parts=(part,))
    picture = transformed(Picture(Cell("", ("image",))), vars(dataset).get("transform"))
    return KnownSample((picture, {"boxes": Cell("", ("bbox",)), "labels": Cell("", ("label",))}), source)


# webdataset.


def _webdataset(dataset: Any, reader: SampleReader) -> KnownSample | None:
    urls: Any = None
    value: Any = _Members()
    parts: list[RecipePart] = []
    batch_size, drop_last = None, False
    for stage in _stages(dataset):
        found = vars(stage).get("urls") if isinstance(stage, StandIn) else None
        if found is not None:
            urls = found
        if class_of(stage).rpartition(".")[2] == "ResampledShards":
            note = (
                "the script draws shards with replacement and without end; the Loader takes each sample once an epoch"
            )
            parts.append(RecipePart("ResampledShards", "", "hr.open(SOURCE)", "check", note, "source"))
        function = vars(stage).get("f") if isinstance(stage, StandIn) else None
        name = function.name.rpartition(".")[2] if isinstance(function, FunctionStandIn) else ""
        given = vars(stage).get("args") or [] if isinstance(stage, StandIn) else []
        if name == "_batched":
            batch_size = given[0] if given and isinstance(given[0], int) else None
            keywords = vars(stage).get("kw")
            drop_last = isinstance(keywords, dict) and keywords.get("partial") is False
        elif name == "_shuffle":
            if not given or not given[0]:  # shardshuffle=False
                continue
            note = f"the Loader shuffles the whole dataset; the script a buffer of {given[0]} samples"
            parts.append(RecipePart("shuffle", "", "shuffle=True", "differs", note, "loader"))
        else:
            value = _after_stage(value, name, given, vars(stage) if isinstance(stage, StandIn) else {}, reader)
    source = _shards(urls)
    if source is None:
        return None
    if isinstance(value, _Members):
        value = value.all()
    opened = DataSource(source[0], constants=source[1], parts=(*parts, *source[2]))
    return KnownSample(value, opened, batch_size, drop_last)


def _stages(dataset: Any) -> Iterator[Any]:
    for stage in vars(dataset).get("pipeline") or []:
        if isinstance(stage, StandIn) and isinstance(vars(stage).get("pipeline"), list):
            yield from _stages(stage)
        else:
            yield stage


class _Members(dict[str, Any]):
    """Members of a sample in a tar, by their extension: pictures where it is an image's."""

    def __missing__(self, key: str) -> Any:
        ends = key.split(";")
        name = next((end for end in ends if end in IMAGE_ENDS), ends[0])
        cell = Cell("", ({"cls": "label", "txt": "text"}.get(name, name),))
        self[key] = Picture(Cell("", ("image",))) if name in IMAGE_ENDS else cell
        return self[key]

    def all(self) -> dict[str, Any]:
        return dict(self) or {"jpg": self["jpg"], "cls": self["cls"]}


def _after_stage(value: Any, name: str, given: list[Any], settings: Mapping[str, Any], reader: SampleReader) -> Any:
    """Return a sample after one stage of a pipeline."""
    given_by_name = settings.get("kw")
    keywords = given_by_name if isinstance(given_by_name, dict) else {}
    if name == "_to_tuple":
        keys = given[0].split() if len(given) == 1 and isinstance(given[0], str) else given
        return tuple(value[key] for key in keys if isinstance(key, str)) if isinstance(value, dict) else value
    if name == "_rename" and isinstance(value, dict):
        return {new: value[old] for new, old in keywords.items() if isinstance(old, str) and new != "keep"}
    if name == "_map_tuple" and isinstance(value, tuple):
        return tuple(_applied(each, given[k] if k < len(given) else None, reader) for k, each in enumerate(value))
    if name == "_map_dict" and isinstance(value, dict):
        return {
            **value,
            **{key: _applied(value[key], function, reader) for key, function in keywords.items() if key != "handler"},
        }
    if name == "_map" and given and not _is_decoder(given[0]):
        return _applied(value, given[0], reader)
    return value


def _is_decoder(thing: Any) -> bool:
    return "Decoder" in class_of(thing) or "decode" in getattr(thing, "name", "")


def _applied(value: Any, function: Any, reader: SampleReader) -> Any:
    """Return a value after a function, an object or a class that is called with it."""
    if function is None:
        return value
    if isinstance(function, FunctionStandIn):
        if function.name.startswith("builtins.") or function.name.rpartition(".")[2] in ("int", "str", "identity"):
            return value
        if (found := reader.function(function)) is not None:
            return reader.run(*found, [value], {}, {**reader.names, **function.names})
        place = f"{os.path.basename(function.file)}:{function.line}" if function.file else ""
        return Computed(repr(function), place, (value,))
    return transformed(value, function) if isinstance(value, Picture) else Computed(repr(function), "", (value,))


def _shards(urls: Any) -> tuple[str, dict[str, str], list[RecipePart]] | None:
    """Return what opens a list of tars: a pattern with their numbers where they count through."""
    listed = urls.first if isinstance(urls, LongList) else [urls] if isinstance(urls, str) else urls
    if not isinstance(listed, list) or not listed or not all(isinstance(url, str) for url in listed):
        return None
    code = literal(listed[0] if len(listed) == 1 else listed)
    count = urls.count if isinstance(urls, LongList) else len(listed)
    numbers = [re.search(r"(\d+)(?=\D*$)", url) for url in listed]
    if count > 1 and all(numbers):
        first = numbers[0]
        assert first is not None
        width, start = len(first[1]), int(first[1])
        before, after = listed[0][: first.start()], listed[0][first.end() :]
        if [f"{before}{start + k:0{width}}{after}" for k in range(len(listed))] == listed:
            code = literal(f"{before}{{{start:0{width}}..{start + count - 1:0{width}}}}{after}")
    parts = []
    if any(url.startswith(("pipe:", "http://", "https://", "s3://", "gs://")) for url in listed):
        note = "the Loader reads tars from a disk: copy them, or mount the store"
        parts.append(RecipePart(listed[0], "", "", "no", note, "source"))
    return "hr.open(SOURCE)", {"SOURCE": code}, parts


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
