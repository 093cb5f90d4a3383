"""Everything that can be wrong with files: each case names what, where and what to do, and touches nothing else."""

from __future__ import annotations

import io
import json
import os
import tarfile

import battery
import numpy as np
import pytest
from bad_loads import BAD, JPEG, PNG, SIZED, animated, cmyk_jpeg, fails, folder_of, load, many_scans, says
from loader_data import COUNT, add_member, encode, photograph, write_tar
from PIL import Image

import headrace as hr
from headrace.errors import (
    ChangedError,
    DatasetError,
    DecodeError,
    EmptyDatasetError,
    NotFoundError,
    ReadError,
    UsageError,
)

# --- what cannot be opened ---


def test_an_empty_folder(tmp_path):
    with pytest.raises(EmptyDatasetError) as caught:
        load(tmp_path)
    says(caught, str(tmp_path), "expected images", "empty folder", "Check the path")


def test_a_missing_path(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(NotFoundError) as caught:
        load(tmp_path / "trian")
    says(caught, str(tmp_path / "trian"), "got nothing", f"Did you mean {tmp_path / 'train'}?")


def test_a_tar_that_is_none(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"no tar at all" * 200)
    with pytest.raises(DatasetError) as caught:
        load(tmp_path / "a.tar")
    says(caught, str(tmp_path / "a.tar"), "tar -tf")


# --- what cannot be read, though it was indexed ---


def test_what_is_no_file_is_passed_over_and_counted(tmp_path):
    folder_of(tmp_path, good=JPEG)
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    dataset = hr.open(tmp_path)
    assert len(dataset) == 1
    assert dataset.skipped == {"broken links and special files": 2}
    assert len(list(load(dataset))) == 1


@pytest.mark.parametrize("on_error", ["replace", "raise"])
@pytest.mark.parametrize(
    ("instead", "texts"),
    [
        ("nothing", ["cannot open", "No such file"]),
        ("folder", ["is not a regular file"]),
        ("dangling link", ["cannot open", "No such file"]),
        ("pipe", ["is not a regular file"]),
    ],
)
def test_a_file_that_is_gone_stops_the_run(tmp_path, instead, texts, on_error):
    """A matter of transport, not of content: never replaced."""
    dataset = hr.open(folder_of(tmp_path / "photos", a=JPEG, b=JPEG))
    path = tmp_path / "photos" / "b.jpg"
    path.unlink()
    {
        "nothing": lambda: None,
        "folder": path.mkdir,
        "dangling link": lambda: path.symlink_to(tmp_path / "nowhere"),
        "pipe": lambda: os.mkfifo(path),
    }[instead]()
    fails(ReadError, load(dataset, on_error=on_error), "sample 'b.jpg'", "field 'image'", str(path), *texts, "?")


def test_a_file_that_was_rewritten_is_read_as_it_is(tmp_path):
    """A folder's files have no identity beyond their names: its listing is made afresh each time."""
    dataset = hr.open(folder_of(tmp_path, a=JPEG))
    (tmp_path / "a.jpg").write_bytes(PNG)
    batch = next(iter(load(dataset, {"image": hr.Image()}, view=None, on_error="raise")))
    np.testing.assert_array_equal(batch["image"][0].transpose(1, 2, 0), np.asarray(Image.open(io.BytesIO(PNG))))


def test_a_tar_that_became_shorter(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    dataset = hr.open(path)
    os.truncate(path, path.stat().st_size // 2)
    fails(ChangedError, load(dataset), "sample '", str(path), "ends at byte", "index it again")


def test_a_tar_that_was_replaced(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    loader = load(hr.open(path))
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        for number in reversed(range(COUNT)):
            add_member(tar, f"{number:04}.jpg", JPEG)
            add_member(tar, f"{number:04}.png", PNG * 20)
    os.replace(tmp_path / "b.tar", path)
    fails(ChangedError, loader, "sample '", str(path), "tar header at byte", "index it again")


def test_a_tar_that_is_replaced_under_the_reader(tmp_path):
    """An open descriptor keeps the old file: a pass that has begun ends well, the next one notices."""
    path = write_tar(tmp_path / "a.tar")
    loader = load(hr.open(path), batch_size=4, prefetch=1)
    expected = battery.kept(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    got = battery.kept([next(iterator)])
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        add_member(tar, "x.jpg", JPEG)
    os.replace(tmp_path / "b.tar", path)
    battery.assert_equal(got + battery.kept(iterator), expected, "replaced while it was read")
    fails(ChangedError, loader, str(path))


# --- content that cannot be decoded ---


@pytest.fixture(params=BAD.values(), ids=BAD)
def bad(request):
    return request.param


def test_bad_content_raised(tmp_path, bad):
    data, kind, texts = bad
    root = folder_of(tmp_path, a=JPEG, b=PNG, c=data)
    error = fails(kind, load(root, on_error="raise"), *texts)
    assert error.key in ("c.jpg", "c.png")
    assert error.field == "image"
    assert error.shard == str(root / error.key)
    assert error.offset is None
    assert f"sample {error.key!r}, field 'image' ({error.shard})" in str(error)


def test_bad_content_replaced(tmp_path, bad):
    data, _, texts = bad
    loader = load(folder_of(tmp_path / "photos", a=JPEG, b=PNG, c=data), quarantine=tmp_path / "bad.jsonl")
    (batch,) = loader
    assert batch["image"].shape == (3, 3, 16, 20)
    assert loader.stats().bad == 1
    (line,) = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert all(text in json.loads(line)["why"] for text in texts)


def test_bad_member_of_a_tar_is_named_with_its_place(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        add_member(tar, "x.jpg", JPEG)
        at = tar.offset + 512
        add_member(tar, "y.jpg", JPEG[:300])
    error = fails(DecodeError, load(path, on_error="raise"), "sample 'y'", f"({path} at byte {at})")
    assert (error.key, error.offset) == ("y", at)


def test_a_few_scans_more_are_no_reason(tmp_path):
    (batch,) = load(folder_of(tmp_path, a=many_scans(20)), on_error="raise")
    assert len(batch["image"]) == 1


# --- content that the core leaves to Pillow ---


@pytest.mark.parametrize(
    "data",
    [
        cmyk_jpeg(),
        animated("GIF"),
        animated("WEBP"),
        encode(photograph(4, 40, 30), "WEBP", lossless=True),
        encode(photograph(4, 40, 30), "TIFF"),
        encode(photograph(4, 40, 30), "BMP"),
    ],
    ids=["CMYK", "animated GIF", "animated WebP", "WebP", "TIFF", "BMP"],
)
@pytest.mark.parametrize("view", [None, SIZED], ids=["whole", "resized"])
def test_what_pillow_opens_works(tmp_path, data, view):
    """Of an animation the first frame."""
    loader = load(folder_of(tmp_path, a=data), {"image": hr.Image()}, view=view, on_error="raise")
    (batch,) = loader
    expected = Image.open(io.BytesIO(data)).convert("RGB")
    if view is not None:
        expected = expected.resize((20, 16), Image.Resampling.BILINEAR)
    difference = np.abs(batch["image"][0].transpose(1, 2, 0).astype(int) - np.asarray(expected))
    assert difference.max() <= (0 if view is None else 1)
    assert loader.stats().declined == 1


def test_exif_turns_where_asked(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(photograph(5, 40, 30), exif=exif, quality=95)
    root = folder_of(tmp_path, a=data)
    plain = np.asarray(Image.open(io.BytesIO(data)))
    for asked, expected in ((False, plain), (True, np.rot90(plain, 3))):
        (batch,) = load(root, {"image": hr.Image(exif=asked)}, view=None, on_error="raise")
        np.testing.assert_array_equal(batch["image"][0].transpose(1, 2, 0), expected)


# --- tars with what does not belong in them ---


def test_odd_members_of_a_tar(tmp_path):
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        add_member(tar, "a.jpg", JPEG)
        for name, kind, target in [
            ("link.jpg", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard.jpg", tarfile.LNKTYPE, "a.jpg"),
            ("device.jpg", tarfile.CHRTYPE, ""),
            ("pipe.jpg", tarfile.FIFOTYPE, ""),
        ]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)
        add_member(tar, "../../outside.jpg", PNG)
        add_member(tar, "a.jpg", PNG)
    before = set(tmp_path.rglob("*"))
    dataset = hr.open(path, cache=tmp_path / "cache")
    batches = list(load(dataset, {"image": hr.Image()}, view=None, on_error="raise"))
    images = [image.transpose(1, 2, 0) for batch in batches for image in batch["image"]]
    assert list(dataset.keys) == ["a", "../../outside"]
    # Of duplicates the last one counts, as when extracting; and nothing is ever written by a member's name.
    assert all(np.array_equal(image, np.asarray(Image.open(io.BytesIO(PNG)))) for image in images)
    assert sum(dataset.skipped.values()) == 5
    assert {path.name for path in set(tmp_path.rglob("*")) - before if "cache" not in str(path)} == set()


def test_names_that_are_not_utf8(tmp_path):
    """Read, and named in errors and in the quarantine file without a second failure."""
    name = b"gr\xfc\xdfe"
    with tarfile.open(tmp_path / "a.tar", "w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        add_member(tar, name.decode("latin-1") + ".jpg", JPEG)
        add_member(tar, "schlecht-" + name.decode("latin-1") + ".jpg", b"")
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / os.fsdecode(name + b".jpg")).write_bytes(JPEG)
    (folder / os.fsdecode(b"schlecht-" + name + b".jpg")).write_bytes(b"")
    for place in (tmp_path / "a.tar", folder):
        quarantine = tmp_path / f"{place.name}.jsonl"
        (batch,) = load(place, quarantine=quarantine)
        assert len(batch["image"]) == 2
        assert "schlecht-gr\udcfc" in json.loads(quarantine.read_text())["key"]
        fails(DecodeError, load(place, on_error="raise"), "schlecht-gr", "0 bytes")


def test_a_tar_cut_short_before_it_is_indexed(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DatasetError) as caught:
        hr.open(path)
    says(caught, str(path), "tar -tf")


def test_a_sample_without_the_member_asked_for(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            add_member(tar, f"{number}.jpg", JPEG)
            if number != 2:
                add_member(tar, f"{number}.cls", b"7")
    fields = {"image": hr.Image(), "label": hr.Label()}
    fails(DecodeError, load(path, fields, on_error="raise"), "sample '2'", "field 'label'", "no such member")
    loader = load(path, fields)
    (batch,) = loader
    assert list(batch["label"]) == [7] * 4
    assert loader.stats().bad == 1


@pytest.mark.parametrize("text", [b"cat", b"1.5", b"", b"--3", b"9" * 30, b"\xff"])
def test_a_label_that_is_no_whole_number(tmp_path, text):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for key, label in (("a", b" 12\n"), ("b", text)):
            add_member(tar, f"{key}.jpg", JPEG)
            add_member(tar, f"{key}.cls", label)
    fails(UsageError, load(path), "field 'label', sample 'b'", "whole number", repr(text), "Raw()")
