"""The example of docs/caching.md, run as it stands there."""

from __future__ import annotations

import uuid
from pathlib import Path

from docs_pages import examples
from loader_data import CLASSES, encode, photograph

from headrace.data.staging import unstage

PER_CLASS = 2


def test_the_example(tmp_path, monkeypatch):
    for name in CLASSES:
        for number in range(PER_CLASS):
            path = tmp_path / "train" / name / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(photograph(number, 40, 30), quality=90))
    monkeypatch.chdir(tmp_path)
    (example,) = examples("caching.md", "Staging")
    to = f"/dev/shm/headrace-test-{uuid.uuid4().hex}"
    scope: dict[str, object] = {}
    try:
        exec(example.replace("/dev/shm/train", to), scope)
        assert len(scope["data"]) == PER_CLASS * len(CLASSES)
        assert scope["data"].table.columns["image"].files.root.startswith(to)
    finally:
        unstage(to)
    assert not Path(to).exists()
