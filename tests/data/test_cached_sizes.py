"""Sizes of images that are kept: what is probed once, and what must not be believed."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from index_checksums import put_together, taken_apart
from measured_images import EXPECTED, SOURCES, encoded, expected_of, open_folder, open_source
from processes import finish, start_python

import headrace.data as data
from headrace import _core
from headrace.data import native_reading, sizes
from headrace.data.sizes import image_sizes
from headrace.errors import ReadError


@pytest.fixture(params=SOURCES)
def images(request, tmp_path, make_tar):
    return open_source(request.param, tmp_path, make_tar)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were probed, each time; the smallest dataset is worth keeping."""
    seen: list[int] = []

    def counted(dataset, column, **options):
        seen.append(len(dataset))
        return native_reading.probe_sizes(dataset, column, **options)

    monkeypatch.setattr(sizes, "probe_sizes", counted)
    monkeypatch.setattr(sizes, "_WORTH_KEEPING", 1)
    return seen


def test_the_second_call_probes_nothing(images, probes, own_cache):
    dataset, column = images
    first, second = image_sizes(dataset, column), image_sizes(dataset, column)
    assert probes == [len(dataset)]
    np.testing.assert_array_equal(first, expected_of(dataset))
    np.testing.assert_array_equal(second, first)
    assert not first.flags.writeable
    assert not second.flags.writeable
    assert len(list(own_cache.glob("sizes.*.headrace"))) == 1


def test_nothing_lies_inside_a_folder_of_images(tmp_path, probes, own_cache):
    dataset, column = open_folder(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    image_sizes(dataset, column)
    assert sorted(tmp_path.rglob("*")) == before
    image_sizes(dataset, column, cache=str(tmp_path / "mine"))
    assert len(list((tmp_path / "mine").iterdir())) == 1
    assert probes == [len(dataset)] * 2


def test_few_images_are_not_kept(tmp_path, own_cache):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    assert not list(own_cache.iterdir())


def test_what_differs_is_kept_apart(tmp_path, probes):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    assert image_sizes(dataset[:3], column).tolist() == EXPECTED[:3].tolist()
    assert image_sizes(dataset, column, exif=True)[6].tolist() == [300, 202]
    assert image_sizes(dataset, column)[6].tolist() == [202, 300]
    assert image_sizes(dataset, column, limits=_core.Limits(max_pixels=1))[0].tolist() == [0, 0]
    assert probes == [len(dataset), 3, len(dataset), len(dataset)]


def test_files_that_were_written_anew(tmp_path, probes):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    (tmp_path / "files" / dataset.key(0)).write_bytes(encoded(50, 60, "JPEG"))
    assert image_sizes(dataset, column)[0].tolist() == [60, 50]


def test_a_folder_that_was_moved_keeps_them(tmp_path, probes):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    (tmp_path / "files").rename(tmp_path / "moved")
    again = data.open(tmp_path / "moved", classes=False)
    np.testing.assert_array_equal(image_sizes(again, column), EXPECTED)
    assert probes == [len(dataset)]


DAMAGE = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[:-4],
    "no JSON": lambda whole: whole[:8] + b"\0" * (len(whole) - 8),
    "a size below 0": lambda whole: put_together(taken_apart(whole)[0], taken_apart(whole)[1][:-4] + b"\xff" * 4),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_anew(tmp_path, probes, own_cache, damage):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    (kept,) = own_cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(DAMAGE[damage](whole))
    with pytest.warns(UserWarning, match=r"expected the sizes of 22 images, got a damaged file .*It is rebuilt"):
        np.testing.assert_array_equal(image_sizes(dataset, column), EXPECTED)
    assert kept.read_bytes() == whole
    assert len(probes) == 2


def without_checksums(whole):
    """As the first version wrote it."""
    header, body = taken_apart(whole)
    _, stop = header.pop("checksums")["data_offsets"]
    header["__metadata__"] = {"format": "headrace image sizes 1"}
    header["sizes"]["data_offsets"] = [at - stop for at in header["sizes"]["data_offsets"]]
    return put_together(header, body[stop:])


def test_one_of_an_earlier_version_is_made_anew_without_a_word(tmp_path, probes, own_cache):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    (kept,) = own_cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(without_checksums(whole))
    np.testing.assert_array_equal(image_sizes(dataset, column), EXPECTED)
    assert kept.read_bytes() == whole
    assert len(probes) == 2


def test_a_cache_that_cannot_be_written(tmp_path, probes, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", "/proc/headrace")  # where root may not write either
    dataset, column = open_folder(tmp_path)
    with pytest.warns(UserWarning, match=r"sizes of 22 images cannot be cached.*/proc/headrace/sizes.*HEADRACE_CACHE"):
        found = image_sizes(dataset, column)
    np.testing.assert_array_equal(found, EXPECTED)
    assert not found.flags.writeable
    assert probes == [len(dataset)]


def test_what_lies_in_a_read_only_cache_is_used(tmp_path, probes, own_cache, as_nobody):
    """As a cluster's nodes may have one that was filled before."""
    dataset, column = open_folder(tmp_path)
    place = sizes._cached_at(dataset, column, dataset.columns[column], exif=False, limits=_core.Limits(), cache=None)
    image_sizes(dataset, column)
    with tempfile.TemporaryDirectory() as folder:  # which nobody may enter, other than pytest's
        shutil.copy(place, folder)
        os.chmod(folder, 0o555)
        with as_nobody():
            kept = sizes._open_cached(os.path.join(folder, os.path.basename(place)), len(dataset), lambda: None)
        os.chmod(folder, 0o700)
    np.testing.assert_array_equal(kept, EXPECTED)


def test_a_disk_that_is_full(tmp_path, probes, own_cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.data.storage.safetensors.write_arrays", full)
    dataset, column = open_folder(tmp_path)
    with pytest.warns(UserWarning, match="No space left on device"):
        found = image_sizes(dataset, column)
    np.testing.assert_array_equal(found, EXPECTED)
    assert probes == [len(dataset)], "what was probed is not probed again"
    assert not list(own_cache.iterdir())


def test_what_goes_wrong_leaves_nothing_behind(tmp_path, probes, own_cache):
    dataset, column = open_folder(tmp_path)
    (tmp_path / "files" / dataset.key(1)).unlink()
    with pytest.raises(ReadError):
        image_sizes(dataset, column)
    assert not list(own_cache.iterdir())


PROBE_WHEN_TOLD = """
import sys
import headrace.data as data
from headrace.data import native_reading as probing, sizes
def told(*args, **options):
    print("probing", flush=True)
    sys.stdin.readline()
    return probing.probe_sizes(*args, **options)
sizes.probe_sizes, sizes._WORTH_KEEPING = told, 1
print(sizes.image_sizes(data.open(sys.argv[1], classes=False), "image").tolist(), flush=True)
"""


@pytest.mark.long
def test_of_two_processes_one_probes_and_the_other_waits(tmp_path):
    open_folder(tmp_path)
    first = start_python(PROBE_WHEN_TOLD, tmp_path / "files", stdin=subprocess.PIPE)
    assert first.stdout.readline() == "probing\n"
    second = start_python(PROBE_WHEN_TOLD, tmp_path / "files", stdin=subprocess.PIPE)
    wait_until_blocked(second)
    first.stdin.write("go on\n")
    first.stdin.flush()
    said = [finish(first), finish(second)]
    assert said == [(0, f"{EXPECTED.tolist()}\n", "")] * 2


def wait_until_blocked(child: subprocess.Popen[str]) -> None:
    """Returns once the kernel lists the child as waiting for a lock; fails if it says anything first."""
    while not any("->" in line and f" {child.pid} " in line for line in Path("/proc/locks").read_text().splitlines()):
        assert not select.select([child.stdout], [], [], 0.01)[0], child.stdout.readline()
