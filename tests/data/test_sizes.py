"""Sizes of images before any is decoded: what headers and columns say."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from measured_images import (
    BAD,
    EXPECTED,
    GOOD,
    SOURCES,
    by_pillow,
    encoded,
    exif_of,
    expected_of,
    open_source,
    write_files,
)
from PIL import Image
from zip_files import LOCAL, patched, zip_members

import headrace.data as data
from headrace import _core
from headrace.data import native_reading
from headrace.data.sizes import image_sizes
from headrace.errors import ChangedError, ReadError, UsageError

CHANGED = 6  # core/common/fault.hpp


@pytest.fixture(params=SOURCES)
def images(request, tmp_path, make_tar):
    return open_source(request.param, tmp_path, make_tar)


def test_pillow_knows_what_is_good():
    assert np.array_equal((EXPECTED > 0).all(1), [True] * len(GOOD) + [False] * len(BAD))


def test_sizes_are_those_that_pillow_finds(images):
    dataset, column = images
    found = image_sizes(dataset, column, threads=2)
    assert (found.dtype, found.shape) == (np.int32, (len(dataset), 2))
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, expected_of(dataset))


def test_a_selection_has_its_own_order(images):
    dataset, column = images
    which = np.random.default_rng(1).permutation(len(dataset))[:9]
    part = dataset.select(which)
    np.testing.assert_array_equal(image_sizes(part, column), expected_of(dataset)[which])
    np.testing.assert_array_equal(image_sizes(part[::-2], column), expected_of(dataset)[which][::-2])
    assert image_sizes(dataset[:0], column).shape == (0, 2)


def test_more_images_than_a_job_takes(images, monkeypatch):
    monkeypatch.setattr(native_reading, "_PROBED_AT_ONCE", 2)
    dataset, column = images
    np.testing.assert_array_equal(image_sizes(dataset, column), expected_of(dataset))


def test_exif_turns(tmp_path):
    files = {f"{turn}.{end}": encoded(40, 30, kind, exif=exif_of(turn)) for turn in range(1, 9) for end, kind in KINDS}
    dataset = data.open(write_files(tmp_path, files))
    turned = [by_pillow(files[key])[:: -1 if int(key[0]) >= 5 else 1] for key in dataset.keys]
    assert sum(height > width for height, width in turned) == 12
    np.testing.assert_array_equal(image_sizes(dataset, "image", exif=True), turned)
    np.testing.assert_array_equal(image_sizes(dataset, "image"), [(30, 40)] * 24)


KINDS = (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP"))


def npz_of(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, array)
    return out.getvalue()


def npy_of(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


ARRAYS = {
    "a plane": (npy_of(np.zeros((4, 6))), (4, 6)),
    "column by column": (npy_of(np.zeros((4, 6), order="F")), (4, 6)),
    "a channel": (npy_of(np.zeros((4, 6, 1))), (4, 6)),
    "a channel in front": (npy_of(np.zeros((1, 4, 6))), (4, 6)),
    "three channels": (npy_of(np.zeros((4, 6, 3))), (4, 6)),
    "three channels in front": (npy_of(np.zeros((3, 4, 6))), (4, 6)),
    "npz": (npz_of(np.zeros((4, 6))), (4, 6)),
    "four dimensions": (npy_of(np.zeros((1, 1, 4, 6))), (0, 0)),
    "cut in its header": (npy_of(np.zeros((4, 6)))[:40], (0, 0)),
    "npz, cut": (npz_of(np.zeros((4, 6)))[:60], (0, 0)),
}


@pytest.mark.parametrize(("content", "size"), ARRAYS.values(), ids=ARRAYS)
def test_arrays_have_the_sizes_that_they_are_decoded_to(tmp_path, content, size):
    (tmp_path / "a.npy").write_bytes(content)
    dataset = data.open({"depth": f"{tmp_path}/*.npy"})
    np.testing.assert_array_equal(image_sizes(dataset, "depth"), [size])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_an_image_beyond_the_limits_has_none(tmp_path, kind):
    dataset = data.open(write_files(tmp_path, {f"a.{kind[0]}": encoded(40, 30, kind[1])}))
    assert image_sizes(dataset, "image", limits=_core.Limits(max_pixels=1200)).tolist() == [[30, 40]]
    assert image_sizes(dataset, "image", limits=_core.Limits(max_pixels=1199)).tolist() == [[0, 0]]


# --- what is read ---


def probe(dataset: data.Dataset, column: str) -> tuple[np.ndarray, int, list[tuple[int, ...]]]:
    """Heights and widths, bytes read, and failures."""
    engine = _core.Engine(1)
    at, paths = dataset.locate(column, np.arange(len(dataset))), native_reading.native_paths(dataset.files(column))
    job = native_reading._probe_job(at, paths, None, False)
    engine.submit(job)
    job.wait()
    read = engine.counters()["read"][2]
    engine.close()
    return job.sizes[:, ::-1], read, job.failures()


@pytest.mark.parametrize("where", ["folder", "tar", "zip"])
def test_no_more_is_read_than_a_header(tmp_path, make_tar, where):
    photograph = np.random.default_rng(0).integers(0, 256, (400, 500, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(photograph).save(buffer, "JPEG")
    files = {f"{number}.jpg": buffer.getvalue() for number in range(4)}
    match where:
        case "folder":
            dataset = data.open(write_files(tmp_path / "files", files))
        case "tar":
            dataset = data.open(make_tar("a.tar", files))
        case _:
            dataset = data.open(zip_members(tmp_path / "a.zip", files, zipfile.ZIP_STORED))
    found, read, failures = probe(dataset, "image")
    assert (found == (400, 500)).all()
    assert not failures
    assert len(buffer.getvalue()) > 100_000
    assert read == 4 * 8192


def test_a_header_that_goes_on_is_read_further(tmp_path):
    dataset = data.open(write_files(tmp_path, {"a.jpg": GOOD["profile.jpg"]}))
    found, read, failures = probe(dataset, "image")
    assert (found.tolist(), failures) == ([[201, 300]], [])
    assert read == 8192 + 16 * 8192 + len(GOOD["profile.jpg"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cut", range(2, 700, 7))
def test_a_header_may_be_cut_anywhere(tmp_path, cut):
    """A file whose first part ends there: what only seems to be wrong must not be told of the whole."""
    content = encoded(40, 30, "JPEG", icc_profile=bytes(8192 - cut))
    dataset = data.open(write_files(tmp_path, {"a.jpg": content}))
    assert probe(dataset, "image")[0].tolist() == [[30, 40]]


def test_a_member_that_is_another_now(make_tar):
    path = make_tar("a.tar", {"a.jpg": GOOD["baseline.jpg"], "b.jpg": GOOD["baseline.jpg"]})
    dataset = data.open(path)
    make_tar("a.tar", {"a.jpg": GOOD["baseline.jpg"], "c.jpg": GOOD["baseline.jpg"]})
    with pytest.raises(ChangedError, match="not the one that was indexed"):
        image_sizes(dataset, "jpg")


def test_a_stored_member_of_other_data(tmp_path):
    """Which its CRC would tell, were all of it read; its header tells as well."""
    content = GOOD["plain.png"] + bytes(20_000)
    path = zip_members(tmp_path / "a.zip", {"a.png": content}, zipfile.ZIP_STORED)
    dataset = data.open(path)
    zip_members(path, {"a.png": content[:-1] + b"1"}, zipfile.ZIP_STORED)
    assert [code for _, _, code, _, _ in probe(dataset, "png")[2]] == [CHANGED]
    with pytest.raises(ChangedError, match="local header is of other data"):
        image_sizes(dataset, "png")


def test_a_stored_member_whose_header_errs_about_its_crc(tmp_path):
    """As the rest of Headrace has it: what the data itself bears out is right."""
    path = zip_members(tmp_path / "a.zip", {"a.png": GOOD["plain.png"] + bytes(20_000)}, zipfile.ZIP_STORED)
    dataset = data.open(path)
    patched(path, {(LOCAL, 14, "<I"): 1})
    assert image_sizes(dataset, "png").tolist() == [[31, 29]]


def test_a_file_that_is_gone_is_no_bad_sample(tmp_path):
    dataset = data.open(write_files(tmp_path, {"a.jpg": GOOD["baseline.jpg"], "b.jpg": GOOD["baseline.jpg"]}))
    (tmp_path / "b.jpg").unlink()
    with pytest.raises(ReadError, match=r"b\.jpg.*it is not there"):
        image_sizes(dataset, "image")


def test_a_zip_member_beyond_the_limits_is_not_unpacked(tmp_path):
    dataset = data.open(zip_members(tmp_path / "a.zip", {"a.jpg": GOOD["profile.jpg"]}))
    assert image_sizes(dataset, "jpg", limits=_core.Limits(max_file_bytes=1000)).tolist() == [[0, 0]]


def test_a_column_of_no_images(tmp_path):
    dataset = data.open(write_files(tmp_path, {"a/b.jpg": GOOD["baseline.jpg"]}))
    with pytest.raises(UsageError, match="expected the name of a column of bytes"):
        image_sizes(dataset, "label")


# --- what annotations say ---


def coco(root: Path, sizes: list[dict[str, int]]) -> data.Dataset:
    write_files(root, {"a.jpg": GOOD["baseline.jpg"], "b.jpg": GOOD["grey.jpg"]})
    images = [{"id": at, "file_name": name, **size} for at, (name, size) in enumerate(zip("ab", sizes, strict=True))]
    for image in images:
        image["file_name"] += ".jpg"
    (root / "coco.json").write_text(json.dumps({"images": images, "annotations": []}))
    return data.open(root / "coco.json")


def test_annotations_are_trusted(tmp_path):
    dataset = coco(tmp_path, [{"width": 5, "height": 6}, {"width": 7, "height": 8}])
    assert image_sizes(dataset, "image").tolist() == [[6, 5], [8, 7]]
    assert image_sizes(dataset[1:], "image").tolist() == [[8, 7]]
    assert image_sizes(dataset, "image", exif=True).tolist() == [[30, 40], [19, 17]]
    assert not image_sizes(dataset, "image").flags.writeable


@pytest.mark.parametrize("wrong", [{}, {"width": 5}, {"width": 0, "height": 6}, {"width": 5, "height": 2**31}])
def test_annotations_that_say_no_size(tmp_path, wrong):
    dataset = coco(tmp_path, [{"width": 5, "height": 6}, wrong])
    assert image_sizes(dataset, "image").tolist() == [[30, 40], [19, 17]]


def test_a_manifests_columns_tell_of_its_first_images(tmp_path):
    write_files(tmp_path, {"a.jpg": GOOD["baseline.jpg"], "a.png": GOOD["plain.png"]})
    (tmp_path / "list.csv").write_text("rgb,mask,width,height\na.jpg,a.png,5,6\n")
    dataset = data.open(tmp_path / "list.csv")
    assert image_sizes(dataset, "rgb").tolist() == [[6, 5]]
    assert image_sizes(dataset, "mask").tolist() == [[31, 29]]
    (tmp_path / "list.csv").write_text("rgb,width,height\na.jpg,5.5,6\n")
    assert image_sizes(data.open(tmp_path / "list.csv"), "rgb").tolist() == [[30, 40]]
