"""Samples of dataset classes of libraries: what each holds, and where `hr.open` finds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .code_layout import literal
from .recipe import DataSource, KnownSample, RecipePart
from .sample_code import SampleReader
from .sample_values import Cell, Computed, Picture, pictures_in
from .stand_ins import FunctionStandIn, StandIn, bases_of, class_of, is_own
from .torchvision_datasets import class_folder, torchvision_sample
from .webdataset_pipelines import webdataset_sample


def known_sample(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a dataset class that is known; None for any other."""
    name = class_of(dataset)
    root = name.split(".")[0]
    if root == "torchvision":
        return torchvision_sample(dataset, name, reader)
    if root == "timm" and hasattr(dataset, "reader"):
        reading = dataset.reader
        return class_folder(dataset, reader, vars(reading).get("root"), vars(reading).get("samples"), natural=True)
    if root == "webdataset" or any(base.startswith("webdataset.") for base in bases_of(dataset)):
        return webdataset_sample(dataset, reader)
    if name == "datasets.arrow_dataset.Dataset":
        return _huggingface(dataset, reader)
    return None


def derived_sample(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a class of the script's own that is derived from one of torchvision's.

    None where it decodes other files than that.
    """
    base = next((name for name in bases_of(dataset) if name.startswith("torchvision.datasets.")), None)
    found = None if base is None or not is_own(dataset) else torchvision_sample(dataset, base, reader)
    if found is None:
        return None
    source, value = found.source, found.value
    if reader.script.method(dataset, "__getitem__") is not None:
        reader.inherited = value
        value = reader.sample()
        origins = [picture.origin for picture in pictures_in(value)]
        known = [one for one in origins if isinstance(one, Cell) and (one.table, one.keys) in source.columns]
        if isinstance(value, Computed) or len(known) < len(origins):
            return None
    if (chosen := reader.script.method(dataset, "find_classes")) is not None:
        note = "the script numbers its classes in its own way; compare the labels, or see hr.open(…, classes=[…])"
        part = RecipePart("find_classes", reader.place_in(*chosen), "", "check", note, "source")
        source = replace(source, parts=(*source.parts, part))
    return replace(found, value=value, source=source)


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
        found = reader.script.function(transform)
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
