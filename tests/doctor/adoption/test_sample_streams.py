"""Streams of a script's own: an `IterableDataset` read from its `__iter__`, and its samples by the Loader."""

import io
import json
import tarfile

import numpy as np
import pytest
import torch
from made_recipes import loaded, recipe_of
from PIL import Image
from torch.utils.data import DataLoader

from headrace.doctor.adoption import module_text
from headrace.doctor.adoption.comparison import compared

COUNT = 6
HEAD = """
import glob, json
from torch.utils.data import IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, root):
        self.root = str(root)
        self.path = str(root / "list.csv")
        self.jsonl = str(root / "list.jsonl")
        self.tar = str(root / "data.tar")
        self.shards = sorted(glob.glob(str(root / "part-*.jsonl")))
        self.files = sorted(glob.glob(str(root / "images" / "*.png")))

    def image(self, name):
        return pixels_of(Image.open(os.path.join(self.root, name)).convert("RGB"))

    def rows(self):
        with open(self.jsonl) as file:
            for line in file:
                yield json.loads(line)

"""
STREAMS = {
    "csv": """
    def __iter__(self):
        info = get_worker_info()
        with open(self.path) as file:
            for number, row in enumerate(csv.DictReader(file)):
                if info is not None and number % info.num_workers != info.id:
                    continue
                yield self.image(row["file"]), int(row["label"])
""",
    "generator": """
    def __iter__(self):
        for row in self.rows():
            yield self.image(row["file"]), row["label"]
""",
    "lines": """
    def __iter__(self):
        with open(self.jsonl) as file:
            lines = file.readlines()
        info = get_worker_info()
        if info is not None:
            lines = lines[info.id :: info.num_workers]
        for line in lines:
            row = json.loads(line.strip())
            yield self.image(row["file"]), row["label"]
""",
    "shards": """
    def __iter__(self):
        info = get_worker_info()
        shards = self.shards if info is None else self.shards[info.id :: info.num_workers]
        for shard in shards:
            with open(shard) as file:
                for line in file:
                    row = json.loads(line)
                    yield self.image(row["file"]), row["label"]
""",
    "members": """
    def __iter__(self):
        with tarfile.open(self.tar) as tar:
            for member in tar:
                if not member.name.endswith(".png"):
                    continue
                data = tar.extractfile(member).read()
                yield (pixels_of(Image.open(io.BytesIO(data)).convert("RGB")),)
""",
    "files": """
    def __iter__(self):
        for file in self.files:
            yield (pixels_of(Image.open(file).convert("RGB")),)
""",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Six images, by themselves, in a tar, and in manifests."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "images").mkdir()
    rows = [{"file": f"images/{number}.png", "label": number % 3} for number in range(COUNT)]
    with tarfile.open(folder / "data.tar", "w") as tar:
        for number, row in enumerate(rows):
            target = io.BytesIO()
            Image.fromarray(np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)).save(target, "PNG")
            (folder / row["file"]).write_bytes(target.getvalue())
            info = tarfile.TarInfo(f"{number}.png")
            info.size = len(target.getvalue())
            tar.addfile(info, io.BytesIO(target.getvalue()))
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "list.jsonl").write_text("".join(lines))
    (folder / "list.csv").write_text("".join(["file,label\n", *(f"{row['file']},{row['label']}\n" for row in rows)]))
    for part in (0, 1):
        (folder / f"part-{part}.jsonl").write_text("".join(lines[part * 3 : part * 3 + 3]))
    return folder


def stream(root, path, body):
    dataset = loaded(HEAD + body, path).Stream(root)
    return dataset, recipe_of(dataset, path, batch=next(iter(DataLoader(dataset, 2))))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_a_draft_with_the_same_samples(root, tmp_path, name):
    path = tmp_path / "stream_script.py"
    dataset, recipe = stream(root, path, STREAMS[name])
    assert recipe.degree == "draft", recipe.reason
    part = recipe.unsure[0]
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "def __iter__" in text)
    assert (part.part, part.place) == ("Stream.__iter__", f"stream_script.py:{line}")
    assert not recipe.shuffle
    names = {"__name__": "draft"}
    exec(module_text(recipe), names)
    rows = list(compared(DataLoader(dataset), names["make_loader"], names["batches"], COUNT))
    assert rows
    assert all(row.is_same_kind for row in rows), rows
    assert max(row.largest for row in rows) == pytest.approx(0, abs=1e-5)
    assert len(names["make_loader"](1, shuffle=False)) == COUNT


def test_files_that_are_shuffled_shuffle_the_loader(root, tmp_path):
    body = STREAMS["shards"].replace("        for shard in", "        random.shuffle(shards)\n        for shard in")
    recipe = stream(root, tmp_path / "shuffled_stream.py", body)[1]
    assert recipe.shuffle
    assert [part.part for part in recipe.parts if part.certainty == "differs"] == ["random.shuffle(shards)"]


def test_what_a_stream_leaves_out_is_to_be_checked(root, tmp_path):
    recipe = stream(root, tmp_path / "left_out_stream.py", STREAMS["members"])[1]
    assert "if not member.name.endswith('.png')" in [part.part for part in recipe.unsure]


def test_a_stream_that_computes_its_samples_is_no_source(root, tmp_path):
    body = "    def __iter__(self):\n        while True:\n            yield torch.randn(3, 8, 8), 1\n"
    path = tmp_path / "computed_stream.py"
    dataset = loaded(HEAD + body, path).Stream(root)
    recipe = recipe_of(dataset, path, batch=[torch.zeros(2, 3, 8, 8), torch.ones(2)])
    assert recipe.degree == "no"
    assert "Stream.__iter__ (computed_stream.py:" in recipe.reason
