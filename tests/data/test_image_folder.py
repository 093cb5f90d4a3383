"""Folders of images, against ImageFolder's rules written out again."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import headrace.data as data
from headrace.data.sources.file_kind import IMAGE_EXTENSIONS
from headrace.errors import DatasetError, EmptyDatasetError, ReadError

TREE = [
    "dog/b.jpg", "dog/a.JPG", "dog/sub/x.png", "dog/z.webp", "dog/sub-2/y.png", "dog/sub/deep/q.png",
    "cat/1.jpeg", "cat/sub/2.jpg", "cat-x/1.jpeg", "zèbre/1.tif", "Ape/1.ppm", "ape/1.ppm",
]  # fmt: skip


def plant(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def image_folder(root: Path) -> tuple[list[str], list[tuple[str, int]]]:
    """find_classes and make_dataset of torchvision.datasets.folder, for these extensions."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for index, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            images = [file for file in sorted(files) if file.lower().endswith(tuple("." + e for e in IMAGE_EXTENSIONS))]
            samples += [(os.path.relpath(os.path.join(folder, file), root), index) for file in images]
    return classes, samples


def test_order_and_labels_are_image_folders(tmp_path):
    plant(tmp_path, [*TREE, "dog/notes.txt", "README.md"])
    ds = data.open(tmp_path)
    classes, samples = image_folder(tmp_path)
    assert ds.classes == tuple(classes)
    assert [(ds.key(i), ds[i]["label"]) for i in range(len(ds))] == samples
    assert [ds[i]["image"].decode() for i in range(len(ds))] == [name for name, _ in samples]
    assert ds.skipped == {"other files": 2}
    assert repr(ds) == (
        "Dataset: 12 samples in 6 classes, columns image (bytes), label (value: 6 classes), "
        f"folder {tmp_path.name}/; skipped: other files (2)"
    )


def test_links_are_followed_and_loops_are_not(tmp_path):
    plant(tmp_path / "set", ["a/1.jpg", "b/2.jpg"])
    plant(tmp_path / "elsewhere", ["3.jpg"])
    (tmp_path / "set/c").symlink_to(tmp_path / "elsewhere")
    expected = image_folder(tmp_path / "set")
    (tmp_path / "set/b/up").symlink_to(tmp_path / "set")
    (tmp_path / "set/a/gone.jpg").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "set/a/pipe.jpg")
    ds = data.open(tmp_path / "set")
    assert [(ds.key(i), ds[i]["label"]) for i in range(len(ds))] == expected[1]
    assert ds.skipped == {"broken links and special files": 2, "folder links that lead back": 1}


def test_hidden_entries_are_passed_over(tmp_path):
    plant(tmp_path, ["a/1.jpg", "a/._1.jpg", ".ipynb_checkpoints/1.jpg", "a/.trash/2.jpg"])
    ds = data.open(tmp_path)
    assert list(ds.keys) == ["a/1.jpg"]
    assert ds.skipped == {"hidden entries": 3}


def test_tree(tmp_path):
    plant(tmp_path, ["b.jpg", "a.png", "sub/c.jpg"])
    ds = data.open(tmp_path)
    assert ds.fields == {"image": "bytes"}
    assert list(ds.keys) == ["a.png", "b.jpg", "sub/c.jpg"]
    assert ds.classes is None
    assert ds.where("image", 2) == (str(tmp_path / "sub/c.jpg"), None)


def test_classes_argument_decides(tmp_path):
    plant(tmp_path, ["x/1.jpg", "y/2.jpg"])
    assert data.open(tmp_path, classes=False).fields == {"image": "bytes"}
    plant(tmp_path, ["stray.jpg"])
    ds = data.open(tmp_path, classes=True)
    assert (len(ds), ds.skipped) == (2, {"images outside class folders": 1})


def test_names_that_are_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/\xe9.jpg")).write_bytes(b"x")
    ds = data.open(tmp_path)
    assert (ds.classes, ds[0]["image"], ds.key(0)) == (("\udcff",), b"x", "\udcff/\udce9.jpg")


def test_listed_afresh_and_nothing_is_written(tmp_path):
    plant(tmp_path, ["a/1.jpg"])
    before = data.open(tmp_path)
    plant(tmp_path, ["a/0.jpg"])
    assert (len(before), len(data.open(tmp_path))) == (1, 2)
    assert {entry.name for entry in tmp_path.rglob("*")} == {"a", "0.jpg", "1.jpg"}


def test_locations_are_whole_files(tmp_path):
    ds = data.open(plant(tmp_path, ["a/1.jpg", "a/2.jpg", "b/3.jpg"]))
    at = ds.locate("image", np.array([2, 0]))
    assert (at.path_id.tolist(), at.offset, at.length, at.check) == ([2, 0], None, None, None)


def test_no_object_a_file_is_kept(tmp_path):
    count = 4000
    plant(tmp_path, [f"{i % 4}/{i:06d}.jpg" for i in range(count)])
    tracemalloc.start()
    ds = data.open(tmp_path)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ds) == count
    assert kept < 40 * count  # its path, an offset and a label: 28 bytes


def test_pillow_or_its_plugin_opens_every_extension_but_y4m():
    Image.init()
    others = {".y4m", ".heic", ".heif"}
    assert {f".{extension}" for extension in IMAGE_EXTENSIONS} - others <= set(Image.registered_extensions())


def test_empty_folder(tmp_path):
    with pytest.raises(EmptyDatasetError, match=r"expected images \(jpg, .*got an empty folder\. Check the path"):
        data.open(tmp_path)


def test_folder_of_other_files(tmp_path):
    plant(tmp_path, ["a.txt", "b.txt", "c.npy", "Makefile"])
    with pytest.raises(EmptyDatasetError, match=r"got 4 other files \(2 \.txt, 1 .*Check the path"):
        data.open(tmp_path)


def test_folder_of_tars_says_how_to_open_them(tmp_path):
    plant(tmp_path, ["0.tar", "1.tar"])
    with pytest.raises(EmptyDatasetError, match=r"2 other files \(2 \.tar\)\. To open the tars, pass a pattern"):
        data.open(tmp_path)


def test_class_folder_without_images(tmp_path):
    plant(tmp_path, ["a/1.jpg", "logs/x.txt"])
    with pytest.raises(
        DatasetError, match=r"got none in 1 of 2 \(logs\)\. Remove those folders, or pass classes=False"
    ):
        data.open(tmp_path)


def test_classes_asked_of_a_flat_folder(tmp_path):
    plant(tmp_path, ["1.jpg"])
    with pytest.raises(DatasetError, match=r"expected class folders .* got images directly in it. Pass classes=False"):
        data.open(tmp_path, classes=True)


def test_unreadable_folder_and_file(as_nobody):
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        plant(Path(root), ["a/1.jpg", "b/2.jpg"])
        os.chmod(os.path.join(root, "b/2.jpg"), 0)
        ds = data.open(root)
        with (
            as_nobody(),
            pytest.raises(ReadError, match=r"b/2\.jpg at byte 0: could not be read: Permission denied; check"),
        ):
            ds.read("image", 1)
        os.chmod(os.path.join(root, "b"), 0)
        with (
            as_nobody(),
            pytest.raises(ReadError, match=r"/b: could not be listed: Permission denied\. Make it readable"),
        ):
            data.open(root)
        os.chmod(os.path.join(root, "b"), 0o755)
