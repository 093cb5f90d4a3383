"""LeRobot's datasets: frames as rows of parquet files, with images inside, as `meta/info.json` describes them.

https://huggingface.co/docs/lerobot/lerobot-dataset-v3
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from headrace.data.columns import TextColumn
from headrace.data.manifest import open_manifest
from headrace.data.storage.open_file import FilePath, read_path
from headrace.data.storage.strings import StringColumn
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import DatasetError

INFO = "meta/info.json"
"""Name of the description of a dataset."""
_TASKS = ("meta/tasks.parquet", "meta/tasks.jsonl")
"""Texts of tasks, in versions 3 and 2."""
_FRAMES = re.compile(r"data/[^/]+/[^/]+\.parquet")
_TASK, _TASK_INDEX = "task", "task_index"


class _Feature(msgspec.Struct):
    dtype: str


class _Info(msgspec.Struct):
    features: dict[str, _Feature]


def open_lerobot(
    paths: Mapping[str, FilePath], *, root: PathRoot, columns: Sequence[str] | None, cache: str | None
) -> SampleTable:
    """Return the frames as samples, given the dataset's files by name; the texts of tasks are the column `task`.

    Raises DatasetError, also for a dataset with videos unless `columns` leaves them out, and as `open_manifest` does.
    """
    info = paths[INFO]
    try:
        features = msgspec.json.decode(read_path(info), type=_Info).features
    except (msgspec.DecodeError, RecursionError) as error:
        raise DatasetError(f"{info}: expected LeRobot's features, got otherwise: {error}. Copy it again") from error
    videos = [name for name, feature in features.items() if feature.dtype == "video"]
    if any(columns is None or name in columns for name in videos):
        raise DatasetError(
            f"{info}: expected images in parquet files, got the videos {', '.join(videos)}, which are not read. Name "
            f"other columns with columns=, or write the dataset with use_videos=False"
        )
    frames = sorted(filter(_FRAMES.fullmatch, paths), key=lambda name: list(map(int, re.findall(r"\d+", name))))
    if not frames:
        raise DatasetError(f"{info}: expected frames in data/*/*.parquet, got no file. Copy the dataset again")
    tasks = next((paths[name] for name in _TASKS if name in paths), None)
    wanted = None if columns is None else [_TASK_INDEX if tasks and name == _TASK else name for name in columns]
    wanted = wanted and list(dict.fromkeys(wanted))
    table = open_manifest([paths[name] for name in frames], root=root, columns=wanted, cache=cache)
    if tasks is None or (columns is not None and _TASK not in columns) or _TASK_INDEX not in table.columns:
        return table
    texts = _texts(tasks)
    index = np.asarray(table.columns[_TASK_INDEX].take(np.arange(len(table))))  # type: ignore[union-attr]  # numbers
    if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= len(texts):
        raise DatasetError(f"{tasks}: expected a task for each {_TASK_INDEX}, got {len(texts):,} tasks. Copy it again")
    task = TextColumn(StringColumn.from_list(texts).take(index))
    known = hashlib.blake2b(json.dumps([table.digest, texts]).encode(), digest_size=16).hexdigest()
    chosen = {name: each for name, each in table.columns.items() if columns is None or name in columns}
    again = partial(open_lerobot, paths, root=root, columns=columns, cache=cache)
    return replace(table, columns={**chosen, _TASK: task}, known_digest=known, again=again)


def _texts(tasks: FilePath) -> list[str]:
    """Return the texts of tasks by number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data, rows = read_path(tasks), list[dict[str, Any]]()
    try:
        if data.startswith(b"PAR1"):
            rows = pq.read_table(io.BytesIO(data)).to_pylist()
        else:
            rows = [json.loads(line) for line in data.splitlines()]
        text_of = {int(row[_TASK_INDEX]): str(row.get(_TASK, row.get("__index_level_0__"))) for row in rows}
        return [text_of[number] for number in range(len(text_of))]
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DatasetError(f"{tasks}: expected texts of tasks, got otherwise: {error}. Copy it again") from error
