"""Names of the files of all datasets: the texts that each DataLoader of a process holds, and files of a few samples.

Both together name all files of a dataset; the doctor reads them after the run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from threading import Thread
from typing import Any, Callable

from .column_sources import Column
from .columns import ColumnBudget, found_columns, sequence_lengths
from .described_values import class_name
from .raw_samples import SampleMakers, raw_samples
from .sample_comparison import generators_kept
from .value_look import PARTIAL, chosen_of, length_of_dataset
from .value_trace import TracedInput, ValueTrace

LISTED_FILE = "listed"
_NUMBER = "_headrace_loader"
"""Attribute of an observed DataLoader: the evidence file that describes it, and its number there."""
_MOST_S = 20.0
_MOST_LOADERS = 8


def list_within(loader: Any, path: str) -> str:
    """Write the names of the training's DataLoader, then of all others, as JSON; return why not, or an empty string.

    A separate thread does it, since making samples of the user's datasets may take any time.
    """
    why = [f"it took more than {_MOST_S:.0f} s"]

    def write() -> None:
        try:
            write_listed([loader, *(one for one in _loaders() if one is not loader)], path)
            why[0] = ""
        except Exception as error:  # of the user's code
            why[0] = f"{type(error).__name__}: {error}"

    thread = Thread(target=write, name="headrace-listed", daemon=True)
    thread.start()
    thread.join(_MOST_S)
    return why[0]


def _loaders() -> list[Any]:
    kind = sys.modules["torch.utils.data"].DataLoader
    return [one for one in gc.get_objects() if issubclass(type(one), kind) and "dataset" in vars(one)]


def write_listed(loaders: list[Any], path: str) -> None:
    """Write the names that DataLoaders hold, the training's first. Another loader of its samples is left out."""
    until = time.monotonic() + _MOST_S / 2
    found: list[dict[str, Any]] = []
    for one in loaders[:_MOST_LOADERS]:
        length = length_of_dataset(one.dataset)
        chosen, number = chosen_of(one, length), vars(one).get(_NUMBER)
        if not found or one.dataset is not loaders[0].dataset or chosen != found[0]["chosen"]:  # wrapped by a library
            own = {"number": number[1] if number else None, "chosen": chosen, "length": length}
            found.append({**own, **_listed(one.dataset, length, until)})
    with open(path + PARTIAL, "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(path + PARTIAL, path)


def _listed(dataset: Any, length: int | None, until: float) -> dict[str, Any]:
    """Return the texts of a dataset by column, the files of a few samples, and where it reads each sample's bytes."""
    raw = raw_samples(dataset, length)
    sizes = [length] if length is not None else sequence_lengths(dataset)
    columns = [] if raw else [one for size in sizes for one in found_columns(dataset, size, ColumnBudget())]
    makers = SampleMakers(dataset, length, raw)
    opened, ends = [], set()
    with generators_kept():
        for _, index, make in makers.of((0,)):
            if time.monotonic() < until:
                inputs = _inputs_of(make)
                opened.append((index, [(each.path, each.member) for each in inputs if each.path]))
                data = {each.data for each in inputs}
                ends |= {end for end, one in makers.raw(index).items() if isinstance(one, bytes) and one in data}
    return {
        "class": class_name(type(dataset)).rpartition(".")[2],
        "columns": [texts for one in columns if (texts := _texts(one, until))],
        "opened": opened,
        "tars": [path for path in raw.files if path.endswith(".tar")] if raw else [],
        "ends": sorted(ends),
        "stored": raw.places(sorted(ends), until) if raw else {},
        "working": os.getcwd(),
    }


def _inputs_of(make: Callable[[], Any]) -> list[TracedInput]:
    """Return the inputs that a sample decodes; none if it cannot be made."""
    trace = ValueTrace()
    trace.begin()
    try:
        make()
    except Exception:  # of the dataset
        return []
    finally:
        trace.end()
    return trace.inputs


def _texts(column: Column, until: float) -> list[str]:
    """Return the values of a column of texts; none if there is another value, or no time."""
    values: list[str] = []
    try:
        for chunk in column.chunks():
            if time.monotonic() > until or not all(type(value) is str for value in chunk):
                return []
            values += chunk
    except Exception:  # of a library that cannot read its own elements
        return []
    return values
