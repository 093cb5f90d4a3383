"""`open(…, stage=…)`: the same samples and the same identity, from the copies."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from processes import finish, start_python

import headrace as hr
from headrace.data.staging import unstage
from headrace.errors import UsageError, WriteError

Where = tuple[object, dict[str, object]]

RANK = """
import sys
import headrace as hr
from headrace.data.staging import staging

def stage(*args, real=staging.stage, **options):
    print(real(*args, **options).copied)

staging.stage = stage
dataset = hr.open(sys.argv[1], stage=sys.argv[2])
assert dataset[0]["image"]
print(dataset.fingerprint)
"""


@pytest.fixture
def data(tmp_path: Path, photos: Path) -> Path:
    """Photographs where a test may take them away."""
    shutil.copytree(photos, tmp_path / "photos")
    return tmp_path


def folder(data: Path) -> Where:
    return data / "photos", {}


def tars(data: Path) -> Where:
    for at in range(2):
        with tarfile.open(data / f"part-{at}.tar", "w") as tar:
            tar.add(data / "photos" / f"class{at}", arcname=f"class{at}")
    return str(data / "part-{0..1}.tar"), {}


def a_zip(data: Path) -> Where:
    with zipfile.ZipFile(data / "photos.zip", "w") as file:
        for path in sorted((data / "photos").rglob("*.jpg")):
            file.write(path, path.relative_to(data / "photos"))
    return data / "photos.zip", {}


def manifest(data: Path) -> Where:
    paths = sorted(str(path.relative_to(data / "photos")) for path in (data / "photos").rglob("*.jpg"))
    (data / "list.csv").write_text("image,number\n" + "".join(f"{path},{at}\n" for at, path in enumerate(paths)))
    return data / "list.csv", {"root": data / "photos"}


def manifest_in_a_tar(data: Path) -> Where:
    with tarfile.open(data / "photos.tar", "w") as tar:
        tar.add(data / "photos", arcname=".")
    where, _ = manifest(data)
    return where, {"root": data / "photos.tar"}


def matched(data: Path) -> Where:
    shutil.copytree(data / "photos" / "class0", data / "x" / "photos")
    shutil.copytree(data / "photos" / "class0", data / "y" / "photos")
    for path in (data / "y" / "photos").iterdir():
        path.rename(path.with_name(path.stem + "_mask.jpg"))
    return {"image": str(data / "x" / "photos"), "mask": str(data / "y" / "photos" / "*_mask.jpg")}, {}


KINDS: list[Callable[[Path], Where]] = [folder, tars, a_zip, manifest, manifest_in_a_tar, matched]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.one_in(6)
def test_the_copy_is_the_same_dataset(data, tmp_path_factory, monkeypatch, kind):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path_factory.mktemp("cache")))
    to = tmp_path_factory.mktemp("fast") / "copies"
    where, options = kind(data)
    plain = hr.open(where, **options)
    samples = list(plain)
    for _ in range(2):  # the second time with the indices that the first has built beside the copies
        staged = hr.open(where, stage=to, **options)
        assert staged.fingerprint == plain.fingerprint
    del plain
    for path in data.iterdir():  # from here on there is the copy alone
        path.rename(tmp_path_factory.mktemp("away") / path.name)
    assert [_comparable(sample) for sample in staged] == [_comparable(sample) for sample in samples]
    del staged
    unstage(str(to))
    assert not to.exists()


def _comparable(sample: dict[str, object]) -> dict[str, object]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sample.items()}


def test_a_state_that_was_saved_without_it_goes_on_with_it(data, tmp_path_factory):
    def loader(dataset: hr.Dataset) -> hr.Loader:
        return hr.Loader(dataset, view=hr.RandomResizedCrop(32), batch_size=8, seed=3, shuffle=True, output="numpy")

    whole = [batch["image"].copy() for batch in loader(hr.open(data / "photos"))]
    first = loader(hr.open(data / "photos"))
    batches = iter(first)
    taken = [next(batches)["image"].copy() for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    batches.close()
    second = loader(hr.open(data / "photos", stage=tmp_path_factory.mktemp("fast") / "copies"))
    second.load_state_dict(state)
    taken += [batch["image"].copy() for batch in second]
    assert len(taken) == len(whole)
    assert all(np.array_equal(one, other) for one, other in zip(taken, whole, strict=True))


@pytest.mark.long
def test_ranks_of_a_node_share_the_copy(data, tmp_path_factory):
    to = tmp_path_factory.mktemp("fast") / "copies"
    ranks = [start_python(RANK, data / "photos", to) for _ in range(3)]
    ended, printed, errors = zip(*map(finish, ranks), strict=True)
    assert (ended, errors) == ((0,) * 3, ("",) * 3)
    copied, fingerprints = zip(*map(str.split, printed), strict=True)
    dataset = hr.open(data / "photos")
    assert set(fingerprints) == {dataset.fingerprint}
    assert sorted(map(int, copied)) == [0, 0, len(dataset)], "each was copied once"


def test_a_manifest_alone_is_refused(data, tmp_path):
    where, _ = manifest(data)
    with pytest.raises(UsageError, match=r"stage: expected root= beside it, got none: .*list\.csv names files"):
        hr.open(where, stage=tmp_path / "copies")


def test_what_does_not_fit_is_refused(data, tmp_path, monkeypatch):
    real = os.statvfs

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 1, 4096, 0, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Full() if os.fsencode(path).endswith(b"copies") else real(path))
    with pytest.raises(WriteError, match=r"the copies need .* MB, and the file system"):
        hr.open(data / "photos", stage=tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
