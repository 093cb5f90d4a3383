"""Sizes of images before any is decoded: what headers and columns say, and what is kept of it."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from processes import finish, start_python
from zip_files import LOCAL, patched, zip_members

import headrace.data as data
from headrace import _core
from headrace.data import probing, sizes
from headrace.data.sizes import image_sizes
from headrace.errors import ChangedError, ReadError, UsageError

LARGE_PROFILE = np.random.default_rng(0).bytes(200_000)
ORIENTATION = 0x0112
CHANGED = 6  # core/common/fault.hpp


def encoded(width: int, height: int, kind: str, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (width, height), 90).save(buffer, kind, **options)
    return buffer.getvalue()


def exif_of(orientation: int, *, filler: int = 0) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif[0x010E] = "x" * filler  # a description
    return exif


GOOD = {
    "baseline.jpg": encoded(40, 30, "JPEG"),
    "progressive.jpg": encoded(31, 57, "JPEG", progressive=True),
    "grey.jpg": encoded(17, 19, "JPEG", mode="L"),
    "cmyk.jpg": encoded(23, 11, "JPEG", mode="CMYK"),
    "exif.jpg": encoded(301, 200, "JPEG", exif=exif_of(1, filler=60_000)),
    "profile.jpg": encoded(300, 201, "JPEG", icc_profile=LARGE_PROFILE),
    "both.jpg": encoded(300, 202, "JPEG", exif=exif_of(6, filler=60_000), icc_profile=LARGE_PROFILE),
    "plain.png": encoded(29, 31, "PNG"),
    "profile.png": encoded(28, 32, "PNG", icc_profile=LARGE_PROFILE),
    "depth.png": encoded(27, 33, "PNG", mode="I;16"),
    "palette.png": encoded(26, 34, "PNG", mode="P"),
    "a.webp": encoded(13, 14, "WEBP"),
    "a.gif": encoded(15, 16, "GIF", mode="P"),
    "a.bmp": encoded(18, 20, "BMP"),
    "a.tiff": encoded(21, 22, "TIFF"),
}
BAD = {
    "empty.jpg": b"",
    "text.jpg": b"no image at all",
    "cut.jpg": GOOD["baseline.jpg"][:60],
    "cut_late.jpg": GOOD["profile.jpg"][:150_000],
    "no_scan.jpg": GOOD["baseline.jpg"][:2] + b"\xff\xd9",
    "cut.png": GOOD["plain.png"][:20],
    "cut.webp": GOOD["a.webp"][:20],
}
FILES = {f"{number:02d}/{name}": content for number, (name, content) in enumerate((GOOD | BAD).items())}


def by_pillow(content: bytes) -> tuple[int, int]:
    """Height and width; zeros for what Pillow does not open."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.height, image.width
    except OSError:
        return 0, 0


EXPECTED = np.array([by_pillow(content) for content in FILES.values()])


def write_files(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def as_samples(files: dict[str, bytes]) -> dict[str, bytes]:
    """One extension for all, so that an archive has one column of them; a sample of another has no image."""
    return {f"{number:02d}.img": content for number, content in enumerate(files.values())} | {"99.cls": b"1"}


def open_folder(root: Path) -> tuple[data.Dataset, str]:
    return data.open(write_files(root / "files", FILES), classes=False), "image"


def open_tar(root: Path, make_tar: Callable[..., Path]) -> tuple[data.Dataset, str]:
    return data.open(make_tar("a.tar", as_samples(FILES))), "img"


def open_zip(root: Path, method: int) -> tuple[data.Dataset, str]:
    return data.open(zip_members(root / "a.zip", as_samples(FILES), method)), "img"


def open_manifest(root: Path, archive: str | None) -> tuple[data.Dataset, str]:
    with (root / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path"], *([name] for name in FILES), [""]])
    return data.open(root / "list.csv", root=root / (archive or "files")), "path"


@pytest.fixture(params=["folder", "tar", "zip stored", "zip deflated", "manifest", "manifest of a tar"])
def images(request, tmp_path, make_tar):
    """A dataset of all files in turn, then, but in a folder, a sample without an image; and the column's name."""
    match request.param:
        case "folder":
            return open_folder(tmp_path)
        case "tar":
            return open_tar(tmp_path, make_tar)
        case "zip stored":
            return open_zip(tmp_path, zipfile.ZIP_STORED)
        case "zip deflated":
            return open_zip(tmp_path, zipfile.ZIP_DEFLATED)
        case "manifest":
            write_files(tmp_path / "files", FILES)
            return open_manifest(tmp_path, None)
        case _:
            make_tar("a.tar", FILES)
            return open_manifest(tmp_path, "a.tar")


def expected_of(dataset: data.Dataset) -> np.ndarray:
    return np.concatenate([EXPECTED, np.zeros((len(dataset) - len(EXPECTED), 2), int)])


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
    monkeypatch.setattr(probing, "_BLOCK", 2)
    dataset, column = images
    np.testing.assert_array_equal(image_sizes(dataset, column), expected_of(dataset))


def test_exif_turns(tmp_path):
    files = {f"{turn}.{end}": encoded(40, 30, kind, exif=exif_of(turn)) for turn in range(1, 9) for end, kind in KINDS}
    dataset = data.open(write_files(tmp_path, files))
    turned = [by_pillow(files[key])[:: -1 if int(key[0]) >= 5 else 1] for key in dataset.keys]
    assert sum(height > width for height, width in turned) == 8
    np.testing.assert_array_equal(image_sizes(dataset, "image", exif=True), turned)
    np.testing.assert_array_equal(image_sizes(dataset, "image"), [(30, 40)] * 16)


KINDS = (("jpg", "JPEG"), ("webp", "WEBP"))


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
    job = probing._job(
        dataset.locate(column, np.arange(len(dataset))), probing.native_paths(dataset.files(column)), False
    )
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


# --- what is kept ---


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were probed, each time; the smallest dataset is worth keeping."""
    seen: list[int] = []

    def counted(dataset, column, **options):
        seen.append(len(dataset))
        return probing.probe_sizes(dataset, column, **options)

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
    "a size below 0": lambda whole: whole[:-4] + b"\xff" * 4,
    "of another version": lambda whole: whole.replace(b"image sizes 1", b"image sizes 0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_anew(tmp_path, probes, own_cache, damage):
    dataset, column = open_folder(tmp_path)
    image_sizes(dataset, column)
    (kept,) = own_cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(DAMAGE[damage](whole))
    np.testing.assert_array_equal(image_sizes(dataset, column), EXPECTED)
    assert kept.read_bytes() == whole
    assert len(probes) == 2


def test_a_cache_that_cannot_be_written(tmp_path, probes, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", "/proc/headrace")  # where root may not write either
    dataset, column = open_folder(tmp_path)
    with pytest.warns(UserWarning, match=r"sizes of 22 images cannot be kept.*/proc/headrace/sizes.*HEADRACE_CACHE"):
        found = image_sizes(dataset, column)
    np.testing.assert_array_equal(found, EXPECTED)
    assert not found.flags.writeable
    assert probes == [len(dataset)]


def test_what_lies_in_a_read_only_cache_is_used(tmp_path, probes, own_cache, as_nobody):
    """As a cluster's nodes may have one that was filled before."""
    dataset, column = open_folder(tmp_path)
    place = sizes.kept_place(dataset, column, dataset.columns[column], exif=False, limits=_core.Limits(), cache=None)
    image_sizes(dataset, column)
    with tempfile.TemporaryDirectory() as folder:  # which nobody may enter, other than pytest's
        shutil.copy(place, folder)
        os.chmod(folder, 0o555)
        with as_nobody():
            kept = sizes.keep_sizes(os.path.join(folder, os.path.basename(place)), len(dataset), lambda: None)
        os.chmod(folder, 0o700)
    np.testing.assert_array_equal(kept, EXPECTED)


def test_a_disk_that_is_full(tmp_path, probes, own_cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sizes.keep_sizes.__globals__["safetensors"], "write", full)
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
from headrace.data import probing, sizes
def told(*args, **options):
    print("probing", flush=True)
    sys.stdin.readline()
    return probing.probe_sizes(*args, **options)
sizes.probe_sizes, sizes._WORTH_KEEPING = told, 1
print(sizes.image_sizes(data.open(sys.argv[1], classes=False), "image").tolist(), flush=True)
"""


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
