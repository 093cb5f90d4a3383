"""Columns of files that belong together by their stems."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.data as data
from headrace.data.sources.image_folders import _expression
from headrace.errors import DatasetError, EmptyDatasetError, NotFoundError, ReadError, UsageError


def plant(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return str(root)


def samples(ds: data.Dataset) -> list[dict[str, object]]:
    return [ds[i] for i in range(len(ds))]


def test_folders_match_by_relative_path_without_extension(tmp_path):
    images = plant(tmp_path / "images", "b.jpg", "a.jpeg", "sub/a.jpg", "only.jpg", "v1.2.jpg", ".hidden.jpg")
    masks = plant(tmp_path / "masks", "a.png", "b.png", "sub/a.png", "v1.2.png", "other.png")
    ds = data.open({"image": images, "mask": masks})
    assert samples(ds) == [
        {"__key__": "a", "image": b"a.jpeg", "mask": b"a.png"},
        {"__key__": "b", "image": b"b.jpg", "mask": b"b.png"},
        {"__key__": "sub/a", "image": b"sub/a.jpg", "mask": b"sub/a.png"},
        {"__key__": "v1.2", "image": b"v1.2.jpg", "mask": b"v1.2.png"},
    ]
    assert ds.skipped == {"image without a match": 1, "mask without a match": 1}
    assert ds.fields == {"image": "bytes", "mask": "bytes"}


def test_patterns_match_by_what_their_wildcards_stand_for(tmp_path):
    plant(
        tmp_path / "left", "train/aachen/1_leftImg8bit.png", "train/ulm/1_leftImg8bit.png", "val/ulm/2_leftImg8bit.png"
    )
    plant(tmp_path / "gt", "train/aachen/1_labelIds.png", "train/aachen/1_color.png", "train/ulm/1_labelIds.png")
    where = {"image": tmp_path / "left/train/*/*_leftImg8bit.png", "mask": tmp_path / "gt/train/*/*_labelIds.png"}
    ds = data.open(where)
    assert list(ds.keys) == ["aachen/1", "ulm/1"]
    assert ds[1] == {
        "__key__": "ulm/1", "image": b"train/ulm/1_leftImg8bit.png", "mask": b"train/ulm/1_labelIds.png"
    }  # fmt: skip
    assert ds.skipped == {}


@pytest.mark.parametrize("end", ["**", "**/*", "**/"], ids=["stars", "stars and star", "folder"])
def test_a_pattern_of_all_files_is_the_folder(tmp_path, end):
    images, texts = plant(tmp_path / "i", "a/1.jpg", "2.jpg"), plant(tmp_path / "t", "a/1.txt", "2.txt")
    if end == "**/":  # a folder with a slash at its end
        ds = data.open({"image": f"{images}/", "text": f"{texts}/"})
    else:
        ds = data.open({"image": f"{images}/{end}", "text": f"{texts}/{end}"})
    assert list(ds.keys) == ["2", "a/1"]


@pytest.mark.parametrize("end", ["", "/**"], ids=["folder", "stars"])
def test_links_that_lead_back_are_followed_once(tmp_path, end):
    """Two of them: to follow both at every turn would never end."""
    images, masks = plant(tmp_path / "i", "a/1.jpg"), plant(tmp_path / "m", "a/1.png", "b/1.png")
    for name in ("i/a/one", "i/a/two"):
        (tmp_path / name).symlink_to("..")
    (tmp_path / "i/b").symlink_to("a")
    assert list(data.open({"image": images + end, "mask": masks + end}).keys) == ["a/1", "b/1"]


def test_a_folder_that_cannot_be_listed_is_named(as_nobody):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        images, masks = plant(Path(folder) / "i", "a.jpg", "b/1.jpg"), plant(Path(folder) / "m", "a.png", "b/1.png")
        os.chmod(Path(folder) / "m/b", 0)
        with as_nobody(), pytest.raises(ReadError, match=r"m/b: could not be listed: Permission denied\. Make it"):
            data.open({"image": images, "mask": masks})


NAMES = st.lists(st.text("ab/_.[-]!", min_size=1, max_size=6), max_size=6)
PATTERNS = st.lists(
    st.sampled_from(["*", "?", "**/", "[ab]", "[!a]", "[a-b]", "a", "b", "_", ".", "/", "]", "x"]), max_size=5
)


@given(names=NAMES, parts=PATTERNS)
def test_whatever_a_glob_finds_has_a_stem(tmp_path_factory, names, parts):
    """`glob` itself is the reference for what a pattern matches."""
    root = tmp_path_factory.mktemp("names")
    for name in names:
        relative = os.path.normpath("/" + name).lstrip("/")
        path = root / relative
        if relative and not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
    pattern = "".join(parts)
    if not pattern.strip("/") or pattern.startswith("/") or "//" in pattern:
        return
    expression = re.compile(_expression(pattern))
    for found in glob.glob(pattern, root_dir=root, recursive=True):
        if os.path.isfile(root / found):
            assert expression.fullmatch(found), (pattern, found)


def test_two_files_of_one_stem_are_refused(tmp_path):
    images, masks = plant(tmp_path / "i", "a.jpg"), plant(tmp_path / "m", "a.png", "a.txt")
    with pytest.raises(
        DatasetError, match=r"m: expected one file of each stem, got 'a\.png' and 'a\.txt' for 'a'\. Name"
    ):
        data.open({"image": images, "mask": masks})
    assert len(data.open({"image": images, "mask": f"{masks}/*.png"})) == 1


def test_what_matches_nothing_shows_both_sides(tmp_path):
    images, masks = plant(tmp_path / "i", "a.jpg", "b.jpg"), plant(tmp_path / "m", "a_mask.png")
    with pytest.raises(DatasetError, match=r"got none in common \(image: a, b; mask: a_mask\)\. Give patterns"):
        data.open({"image": images, "mask": masks})


def test_wrong_mappings_are_named(tmp_path):
    images = plant(tmp_path / "i", "a.jpg")
    with pytest.raises(UsageError, match="got an empty mapping"):
        data.open({})
    with pytest.raises(NotFoundError, match="masks: expected a folder with the files"):
        data.open({"image": images, "mask": tmp_path / "masks"})
    with pytest.raises(NotFoundError, match=r"a\.jpg: expected a folder with the files of '.*', got a file"):
        data.open({"image": images, "mask": f"{images}/a.jpg"})
    with pytest.raises(EmptyDatasetError, match=r"\*\.png: expected files, got none"):
        data.open({"image": images, "mask": f"{images}/*.png"})
    with pytest.raises(UsageError, match="column 'image': expected a list or an array, got 3"):
        data.open({"image": 3})


@pytest.mark.parametrize("argument", [{"root": "masks"}, {"columns": ["image"]}, {"classes": True}], ids=str)
def test_arguments_that_mean_nothing_for_a_mapping_are_refused(tmp_path, argument):
    images = plant(tmp_path / "i", "a.jpg")
    name = next(iter(argument))
    with pytest.raises(UsageError, match=f"{name}: expected none, got .*: what is opened is a mapping of folders"):
        data.open({"image": images}, **argument)
