"""What people's folders and archives have besides samples: stray images, dots in names; and short texts of columns."""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import UsageError

IMAGE = encode(photograph(1, 12, 9), "JPEG")
SHOTS = ("shot 2.0.jpg", "shot 2.0.txt", "shot 2.1.jpg", "shot 2.1.txt")


def tar_of(path: Path, names: Sequence[str]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name in names:
            content = IMAGE if name.endswith("jpg") else name.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def folder_of(root: Path, names: Sequence[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(IMAGE)
    return root


def test_a_stray_image_beside_class_folders_is_skipped(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "train", ["a/0.jpg", "b/0.jpg", "b/1.jpg", "preview.jpg"])
    with pytest.warns(UserWarning, match="1 beside its 2 folders") as found:
        dataset = hr.open(root)
    assert len(found) == 1
    assert (dataset.classes, dataset.labels("label").tolist(), len(dataset)) == (("a", "b"), [0, 1, 1], 3)
    assert "images outside class folders (1)" in repr(dataset)
    assert len(hr.open(root, classes=False)) == 4


@pytest.mark.parametrize("names", [["a/0.jpg", "0.jpg"], ["a/0.jpg", "b/0.jpg", "0.jpg", "1.jpg", "2.jpg"]], ids=str)
def test_a_folder_of_images_has_no_classes(tmp_path: Path, names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(folder_of(tmp_path / "photos", names))
    assert (len(dataset), dataset.classes) == (len(names), None)


def test_dots_in_names_warn_and_are_split_at_the_last_on_request(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "dots.tar", SHOTS)
    with pytest.warns(UserWarning, match="last-dot") as found:
        assert len(hr.open(path)) == 1, "WebDataset's rule"
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(path, stem="last-dot")
    assert (list(dataset.keys), len(dataset)) == (["shot 2.0", "shot 2.1"], 2)
    assert dataset[1]["txt"] == b"shot 2.1.txt"
    loader = hr.Loader(dataset, {"image": hr.Image(), "text": hr.Raw(text=True)}, batch_size=2, output="numpy")
    (batch,) = loader
    assert batch["text"] == ["shot 2.0.txt", "shot 2.1.txt"]
    assert dataset.fingerprint == hr.open(path, stem="last-dot").fingerprint


@pytest.mark.parametrize("many", [2, 300])
def test_samples_of_several_members_do_not_warn(tmp_path: Path, many: int) -> None:
    names = [f"{number:04}.{member}" for number in range(many) for member in ("left.jpg", "right.jpg", "txt")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(hr.open(tar_of(tmp_path / "pairs.tar", names))) == many


def test_names_with_more_extensions_than_an_index_has_open_by_their_last_dot(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "many.tar", [f"shot 2.{number}.txt" for number in range(400)])
    assert len(hr.open(path, stem="last-dot")) == 400


def test_stem_is_for_archives(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stem"):
        hr.open(folder_of(tmp_path / "train", ["a/0.jpg"]), stem="last-dot")
    with pytest.raises(UsageError, match="stem"):
        hr.open(tar_of(tmp_path / "a.tar", ["a.jpg"]), stem="first")  # type: ignore[arg-type]  # that is what is tested


def test_columns_are_short_texts(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "train", [f"a/{number}.jpg" for number in range(50)])
    table = {"image": [str(folder / "a/0.jpg")] * 50, "label": list(range(50)), "boxes": [[1.0, 2.0]] * 50}
    for dataset in (hr.open(folder), hr.open(tar_of(tmp_path / "a.tar", ["a.jpg", "a.txt"])), hr.open(table)):
        assert len(repr(dataset.columns)) < 60 * len(dataset.columns)
