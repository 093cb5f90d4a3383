"""LeRobot's datasets of versions 3 and 2: frames of parquet files in order, with images, states and tasks."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import headrace as hr
from headrace.errors import DatasetError

CAMERA, STATE = "observation.images.top", "observation.state"
TASKS = ["pick up the cube", "push it"]


def image(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (6, 5), (number, 2 * number, 3 * number)).save(file, "PNG")
    return file.getvalue()


def write(root: Path, *, version: int = 3, videos: bool = False, files: int = 3) -> Path:
    """Write frames, two a file, into files of two chunks, whose names are in another order as texts (2 after 10)."""
    kind = "video" if videos else "image"
    features = {CAMERA: {"dtype": kind, "shape": [5, 6, 3]}, STATE: {"dtype": "float32", "shape": [2]}}
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": 10, "features": features}))
    name = "data/chunk-{:03d}/file-{}.parquet" if version == 3 else "data/chunk-{:03d}/episode_{}.parquet"
    for number in range(files):
        rows = range(2 * number, 2 * number + 2)
        columns = {
            STATE: pa.array([[row, row / 2] for row in rows], pa.list_(pa.float32(), 2)),
            "index": list(rows),
            "task_index": [row % 2 for row in rows],
        }
        if not videos:
            columns[CAMERA] = [{"bytes": image(row), "path": f"frame-{row}.png"} for row in rows]
        path = root / name.format(number == 2, (2, 10, 2)[number])
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    if version == 3:
        pq.write_table(pa.table({"task_index": [1, 0], "__index_level_0__": TASKS[::-1]}), root / "meta/tasks.parquet")
    else:
        lines = [json.dumps({"task_index": number, "task": text}) for number, text in enumerate(TASKS)]
        (root / "meta/tasks.jsonl").write_text("\n".join(lines))
    return root


@pytest.mark.parametrize("version", [2, 3])
def test_frames(version, tmp_path):
    data = hr.open(write(tmp_path / "robot", version=version))
    assert data.column("index").tolist() == list(range(6))
    assert [Image.open(io.BytesIO(each)).getpixel((0, 0))[0] for each in data.column(CAMERA)] == list(range(6))
    assert np.array_equal(data.column(STATE), [[row, row / 2] for row in range(6)])
    assert data.column("task") == TASKS * 3
    again = pickle.loads(pickle.dumps(data))
    assert again.fingerprint == data.fingerprint
    assert again[3]["task"] == TASKS[1]
    fields = {"image": hr.Image(source=CAMERA), "state": hr.Array(source=STATE)}
    (batch,) = hr.Loader(data, fields, view=hr.Resize((5, 6)), batch_size=6, output="numpy")
    assert batch["image"][:, 0, 0, 0].tolist() == list(range(6))
    assert batch["state"].shape == (6, 2)


def test_columns_choose_the_task_too(tmp_path):
    write(tmp_path)
    assert list(hr.open(tmp_path, columns=["task", STATE]).columns) == [STATE, "task"]
    assert list(hr.open(tmp_path, columns=[STATE]).columns) == [STATE]


def test_videos_are_refused_or_left_out(tmp_path):
    write(tmp_path, videos=True)
    with pytest.raises(DatasetError, match=rf"got the videos {CAMERA}, which are not read\. Name other columns"):
        hr.open(tmp_path)
    assert hr.open(tmp_path, columns=[STATE, "task"]).column("task") == TASKS * 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("meta/info.json", b'{"features": 1}', "expected LeRobot's features"),
        ("meta/info.json", b"{", "expected LeRobot's features"),
        ("meta/tasks.parquet", b"PAR1", "expected texts of tasks"),
        ("meta/tasks.parquet", b'{"task_index": 0, "task": "a"}', "expected a task for each task_index, got 1 tasks"),
    ],
)
def test_damaged_descriptions(name, content, message, tmp_path):
    write(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        hr.open(tmp_path)


def test_no_frames(tmp_path):
    write(tmp_path, files=0)
    with pytest.raises(DatasetError, match="expected frames in data"):
        hr.open(tmp_path)
