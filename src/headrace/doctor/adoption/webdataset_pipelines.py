"""Samples of webdataset's pipelines: what their stages make of the members of a tar."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .code_layout import literal
from .recipe import DataSource, KnownSample, RecipePart
from .sample_code import SampleReader
from .sample_values import Cell, Computed, Picture, transformed
from .stand_ins import FunctionStandIn, LongList, StandIn, class_of
from .store_shards import NotInStoreError, common_options, is_streamed, store_shard

IMAGE_ENDS = ("jpg", "jpeg", "png", "webp", "ppm", "tif", "tiff", "bmp", "gif")


def webdataset_sample(dataset: Any, reader: SampleReader) -> KnownSample | None:
    """Return the sample of a pipeline; None where its shards are not known."""
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
    """Tell webdataset's own decoding; a function of the script's may have any name."""
    name = getattr(thing, "name", "")
    return "Decoder" in class_of(thing) or ("decode" in name and name.startswith("webdataset."))


def _applied(value: Any, function: Any, reader: SampleReader) -> Any:
    """Return a value after a function, an object or a class that is called with it."""
    if function is None:
        return value
    if isinstance(function, FunctionStandIn):
        if function.name.startswith("builtins.") or function.name.rpartition(".")[2] in ("int", "str", "identity"):
            return value
        if (found := reader.script.function(function)) is not None:
            return reader.run(*found, [value], {}, {**reader.names, **function.names})
        place = f"{os.path.basename(function.file)}:{function.line}" if function.file else ""
        return Computed(repr(function), place, (value,))
    return transformed(value, function) if isinstance(value, Picture) else Computed(repr(function), "", (value,))


def _shards(urls: Any) -> tuple[str, dict[str, str], list[RecipePart]] | None:
    """Return what opens a list of tars: a pattern with their numbers where they count through."""
    listed = urls.first if isinstance(urls, LongList) else [urls] if isinstance(urls, str) else urls
    if not isinstance(listed, list) or not listed or not all(isinstance(url, str) for url in listed):
        return None
    opened, parts = "hr.open(SOURCE)", list[RecipePart]()
    if any(is_streamed(url) for url in listed):
        try:
            shards = [store_shard(url) for url in listed]
            options = common_options(shards)
        except NotInStoreError as error:
            return opened, {"SOURCE": literal(listed[0])}, [RecipePart(listed[0], "", "", "no", str(error), "source")]
        opened = f"hr.open(SOURCE, store_options={options!r})" if options else opened
        notes = list(dict.fromkeys(note for shard in shards for note in shard.notes))
        note = "; ".join(notes) or "tars of the store are read at any place, and not streamed from their starts"
        parts.append(RecipePart(listed[0], "", opened, "check" if notes else "differs", note, "source"))
        listed = [shard.address for shard in shards]
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
    return opened, {"SOURCE": code}, parts
