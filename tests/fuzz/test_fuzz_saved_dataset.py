"""Whatever the files of a saved Hugging Face dataset hold, it opens and each row reads, or the error has a name."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from fuzzed_files import edited_bytes, edited_texts, fuzzed
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError

ROWS = {
    "image": [{"bytes": b"jpeg" * number, "path": f"{number}.jpg"} if number != 3 else None for number in range(6)],
    "label": [0, 1, 0, 1, 1, 0],
    "text": ["one", "", "dreißig", None, "five", "six"],
    "scores": [[0.5], [], [1.5, 2.5], [], [1.0], [2.0, 3.0, 4.0]],
    "meta": [{"a": number} for number in range(6)],
}
ARROW = ["0.arrow", "1.arrow"]
FILES = {
    "state.json": json.dumps({"_data_files": [{"filename": name} for name in ARROW]}).encode(),
    "dataset_dict.json": json.dumps({"splits": ["train", "val"]}).encode(),
    "dataset_info.json": json.dumps({"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}).encode(),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, bytes]:
    """The files of one, and what they hold. What says that it is several counts where its state is gone."""
    folder = tmp_path_factory.mktemp("saved")
    table = pa.table(ROWS)
    for name in ARROW:
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=4)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return {path: path.read_bytes() for path in sorted(folder.iterdir())}


@fuzzed
@given(data=st.data())
def test_rows_of_a_saved_dataset(saved: dict[Path, bytes], data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(sorted(saved)), min_size=1, max_size=2, unique=True))
    try:
        for path in paths:
            edit(path, data)
        with suppress(HeadraceError):
            dataset = hr.open(path.parent)
            for number in range(len(dataset)):
                with suppress(HeadraceError):
                    assert dataset[number]
    finally:
        for path in paths:
            path.write_bytes(saved[path])


def edit(path: Path, data: st.DataObject) -> None:
    if data.draw(st.integers(0, 9)) == 0:
        path.unlink()
    else:
        edited = edited_bytes if path.suffix == ".arrow" else edited_texts
        path.write_bytes(data.draw(edited(path.read_bytes())))
