"""Everything that can be wrong with input: each case names what, where and what to do, and touches nothing else."""

from __future__ import annotations

import io
import json
import os
import re
import struct
import tarfile
import traceback
import warnings

import battery
import numpy as np
import pytest
from loader_data import COUNT, add_member, encode, encoded, photograph, write_folder, write_tar
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.errors import (
    ChangedError,
    DatasetError,
    DecodeError,
    EmptyDatasetError,
    LimitError,
    NotFoundError,
    ReadError,
    TooManyBadSamplesError,
    UnsupportedError,
    UsageError,
    ViewError,
)

JPEG = encode(photograph(1, 64, 48), quality=90)
PNG = encode(photograph(1, 64, 48), "PNG")
SIZED = hr.Resize((16, 20))


def load(data, fields=None, **options):
    given = {"view": SIZED, "batch_size": 8, "output": "numpy", "threads": 2}
    return hr.Loader(data, fields, **(given | options))


def folder_of(root, **files):
    """Files by stem, in the order given; jpg unless the bytes are a PNG's."""
    root.mkdir(exist_ok=True)
    for stem, data in files.items():
        suffix = "png" if data.startswith(b"\x89PNG") else "jpg"
        (root / f"{stem}.{suffix}").write_bytes(data)
    return root


def fails(error, loader, *texts):
    """Iterating raises `error`, and its message holds all of `texts`."""
    with pytest.raises(error) as caught:
        for _ in loader:
            pass
    says(caught, *texts)
    return caught.value


def says(caught, *texts):
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"


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


def limit_bomb_jpeg():
    """A header of 60,000 x 60,000."""
    at = JPEG.index(b"\xff\xc0")
    return JPEG[: at + 5] + struct.pack(">HH", 60000, 60000) + JPEG[at + 9 :]


def limit_bomb_png():
    from zlib import crc32

    header = b"IHDR" + struct.pack(">II", 60000, 60000) + PNG[24:29]
    return PNG[:12] + header + struct.pack(">I", crc32(header)) + PNG[33:]


def many_scans(count):
    """A progressive JPEG whose last scan comes `count` times more. A scan's refinement repeated is still a scan."""
    data = encode(photograph(2, 64, 48).convert("L"), progressive=True)
    starts = [match.start() for match in re.finditer(b"\xff\xda", data)]
    return data[: starts[1]] + data[starts[0] : starts[1]] * count + data[starts[1] :]


def twelve_bit_jpeg():
    """SOF1 (extended) with a precision of 12."""
    at = JPEG.index(b"\xff\xc0")
    return JPEG[:at] + b"\xff\xc1" + JPEG[at + 2 : at + 4] + b"\x0c" + JPEG[at + 5 :]


BAD = {
    "zero bytes": (b"", DecodeError, ["expected an image, got 0 bytes"]),
    "truncated JPEG": (JPEG[: len(JPEG) // 2], DecodeError, ["cut short", f"after {len(JPEG) // 2} bytes"]),
    "JPEG header only": (JPEG[:100], DecodeError, ["JPEG"]),
    "truncated PNG": (PNG[: len(PNG) // 2], DecodeError, ["PNG"]),
    "PNG header only": (PNG[:40], DecodeError, ["PNG"]),
    "damaged PNG": (PNG[:200] + bytes(8) + PNG[208:], DecodeError, ["PNG"]),
    "text": (b"<html>404 Not Found</html>", DecodeError, ["expected an image", "3c 68 74 6d 6c"]),
    "60,000 x 60,000 JPEG": (limit_bomb_jpeg(), LimitError, ["60000x60000", "max_pixels"]),
    "60,000 x 60,000 PNG": (limit_bomb_png(), LimitError, ["60000", "max_pixels"]),
    "thousands of scans": (many_scans(3000), LimitError, ["scans", "max_jpeg_scans"]),
    "12-bit JPEG": (twelve_bit_jpeg(), UnsupportedError, ["12 bits", "expected 8", "convert it"]),
}


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


def cmyk_jpeg():
    return encode(photograph(3, 40, 30).convert("CMYK"), quality=90)


def animated(kind):
    frames = [photograph(number, 40, 30) for number in range(3)]
    return encode(frames[0], kind, save_all=True, append_images=frames[1:])


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


# --- views and sizes ---


def job_of(views, count=1):
    job = _core.Job(np.arange(count), np.zeros(count, np.uint32), key=1, program=np.zeros((0, 10)), views=views)
    job.add_image(
        paths=None, memory=[np.zeros((30, 40, 3), np.uint8)] * count, out=np.zeros(count * 3 * 16 * 16, np.uint8),
        width=16, height=16, channels=3, dtype="uint8", planar=False, subtract=[0.0] * 3, divide=[255.0] * 3,
        fill=[0] * 3, filter="triangle", dct_scaling=True, orient=False,
    )  # fmt: skip
    return job


GOOD_VIEW = (0.0, 0.0, 40.0, 30.0, 0, 0, 40, 30, 16, 16, 0, 0, 16, 16, 0, 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300, -7.0, 0.5, 4e9])
def test_views_of_nonsense_are_refused_by_the_core(value):
    """Whatever number of a view is nonsense, the sample beside it is untouched."""
    engine = _core.Engine(2)
    for column in range(14):
        views = np.array([GOOD_VIEW, GOOD_VIEW], np.float64)
        views[0, column] = value
        job = job_of(views, 2)
        engine.submit(job)
        job.wait()
        assert all(failure[0] == 0 for failure in job.failures()), "the other sample failed"
        if not np.isfinite(value):
            ((_, _, code, _, why),) = job.failures()
            assert code == 8
            assert "expected" in why
            assert "got" in why
    engine.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.RandomResizedCrop(16, scale=(float("nan"), 1.0)),
        lambda: hr.RandomResizedCrop(16, ratio=(0.5, float("inf"))),
        lambda: hr.RandomResizedCrop(16, flip=float("nan")),
        lambda: hr.Resize(float("nan")),
        lambda: hr.RandomHorizontalFlip(float("nan")),
    ],
)
def test_views_of_nonsense_are_refused_by_their_classes(make):
    with pytest.raises(UsageError, match=r"expected .* got .*(nan|inf)"):
        make()


def test_unequal_sizes_without_a_view(tmp_path):
    root = folder_of(tmp_path, a=PNG, b=encode(photograph(1, 60, 50), "PNG"))
    texts = ["one size", "48x64 (sample 'a.png')", "50x60 (sample 'b.png')", "Resize((height, width))", "batch_size=1"]
    fails(UsageError, load(root, view=None), *texts)
    sizes = [batch["image"].shape[2:] for batch in load(root, view=None, batch_size=1)]
    assert sizes == [(48, 64), (50, 60)]


def test_a_lone_bad_image_without_a_view_takes_its_replacements_size(tmp_path):
    other = encode(photograph(1, 60, 50), "PNG")
    for bad in (b"", JPEG[: len(JPEG) // 2]):
        root = folder_of(tmp_path / str(len(bad)), a=bad, b=other, c=other, d=other)
        loader = load(root, view=None, batch_size=1)
        shapes = [batch["image"].shape for batch in loader]
        assert shapes == [(1, 3, 50, 60)] * 4
        assert loader.stats().bad == 1


def test_a_batch_none_of_which_can_be_measured(tmp_path):
    loader = load(folder_of(tmp_path, a=b"", b=b"no", c=PNG), view=None, batch_size=2)
    fails(UsageError, loader, "expected images of readable size", "2 of a batch", "Resize((height, width))")


def test_a_crop_larger_than_the_image_is_a_bad_sample(tmp_path):
    root = folder_of(tmp_path, a=PNG, b=PNG, c=encode(photograph(1, 30, 20), "PNG"))
    texts = ["sample 'c.png'", "RandomCrop of 40 x 40", "30 x 20", "resize first", "pad_if_needed=True"]
    fails(ViewError, load(root, view=hr.RandomCrop(40), on_error="raise"), *texts)
    loader = load(root, view=hr.RandomCrop(40))
    assert [batch["image"].shape for batch in loader] == [(3, 3, 40, 40)]
    assert loader.stats().bad == 1


@pytest.mark.parametrize(("remainder", "samples"), [("short", 5), ("wrap", 12)])
def test_a_batch_larger_than_the_dataset(tmp_path, remainder, samples):
    root = folder_of(tmp_path, **{f"p{number}": PNG for number in range(5)})
    (batch,) = load(root, batch_size=12, remainder=remainder)
    assert len(batch["image"]) == samples


def test_a_batch_larger_than_the_dataset_with_nothing_left(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(folder_of(tmp_path, a=PNG, b=PNG), batch_size=12, remainder="drop")
    says(caught, "leaves nothing", "2 samples", "12 x 1 ranks", "lower batch_size", "remainder='short'")


def test_more_ranks_than_samples_without_a_view(tmp_path):
    """A rank whose part is empty still takes every step."""
    root = folder_of(tmp_path, a=PNG)
    lengths = [
        [len(batch["image"]) for batch in load(root, view=None, batch_size=1, rank=rank, world_size=3)]
        for rank in range(3)
    ]
    assert sorted(lengths) == [[0], [0], [1]]


def test_labels_alone_need_no_view(tmp_path):
    dataset = hr.open(write_folder(tmp_path, 8))
    (batch,) = load(dataset, {"label": hr.Label()}, view=None)
    assert list(batch["label"]) == [0, 0, 1, 1, 2, 2, 3, 3]


# --- the user's own functions ---


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("user") / "photos"))


@pytest.mark.parametrize(
    ("map", "texts"),
    [
        (lambda sample, rng: None, ["map: expected a dict of fields for every sample", "got 'NoneType'"]),
        (lambda sample, rng: 3, ["map: expected a dict of fields", "got 'int'"]),
        (
            lambda sample, rng: sample if rng.random() < 0.5 else {},
            ["map: expected a dict"],
        ),
        (
            lambda sample, rng: sample | {"image": np.zeros((3, int(rng.integers(4, 9)), 4), np.uint8)},
            ["map: expected one shape for field 'image'", "(3, 4, 4)", "return the same shape"],
        ),
    ],
    ids=["None", "a number", "other fields", "other shapes"],
)
def test_a_map_that_returns_nonsense(photos, map, texts):
    fails(UsageError, load(photos, map=map, batch_size=COUNT), *texts)


def broken_map(sample, rng):
    if sample["label"] == 2:
        raise KeyError("the user's own mistake")
    return sample


@pytest.mark.parametrize("on_error", ["raise", "replace"])
def test_a_map_that_raises_keeps_its_traceback(photos, on_error):
    """The user's mistake is not a bad sample: it stops the run under either policy."""
    error = fails(KeyError, load(photos, map=broken_map, on_error=on_error), "the user's own mistake")
    assert any("broken_map" in line for line in traceback.format_exception(error))
    (note,) = error.__notes__
    assert "map=" in note
    assert "sample 'cat/0020." in note
    assert "epoch 0, position 20" in note


def test_a_batch_map_that_raises(photos):
    def batch_map(batch, rng):
        raise ValueError("too early")

    error = fails(ValueError, load(photos, batch_map=batch_map), "too early")
    assert error.__notes__ == ["in batch_map=, epoch 0, step 0"]
    assert any(frame.name == "batch_map" for frame in traceback.extract_tb(error.__traceback__))


@pytest.mark.parametrize("argument", ["map", "batch_map"])
def test_stop_iteration_does_not_end_the_epoch_in_silence(photos, argument):
    def stop(value, rng):
        next(iter(()))

    fails(RuntimeError, load(photos, **{argument: stop}), "StopIteration raised in")


def test_batches_before_the_failure_are_delivered(photos):
    iterator = iter(load(photos, map=broken_map, batch_size=10))
    assert [len(next(iterator)["label"]) for _ in range(2)] == [10, 10]
    with pytest.raises(KeyError):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


# --- arguments ---


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"threads": 0}, ["threads: expected an int of at least 1, got 0"]),
        ({"prefetch": 1.5}, ["prefetch: expected an int of at least 1, got 1.5"]),
        ({"on_error": "ignore"}, ["on_error: expected 'replace' or 'raise', got 'ignore'"]),
        ({"max_bad": 2}, ["max_bad: expected a share from 0 to 1, got 2"]),
        ({"output": "jax"}, ["output: expected 'torch' or 'numpy', got 'jax'"]),
        ({"rank": 1}, ["rank and world_size together"]),
        ({"rank": 2, "world_size": 2}, ["rank: expected an int from 0 to 1, got 2"]),
        ({"batch_size": 0}, ["batch_size: expected an int from 1"]),
        ({"seed": -1}, ["seed: expected an int from 0"]),
        ({"view": "big"}, ["view: expected a view such as hr.Resize(256)"]),
        ({"view_from": "depth"}, ["view_from: expected the name of an image field", "'depth'"]),
        ({"fields": {"image": hr.Image(source="png")}}, ["expected a column of the dataset, got 'png'", "source="]),
        ({"fields": {"image": "rgb"}}, ["field 'image': expected Image, Label or Raw, got str"]),
        ({"fields": {"label": hr.Label()}}, ["view: expected an image field to cut"]),
        ({"fields": {"label": hr.Image()}}, ["field 'label': expected a column of bytes"]),
        ({"fields": {"image": hr.Image(dtype="bfloat16")}}, ["numpy has no bfloat16", "output='torch'"]),
        ({"quarantine": "/nowhere/bad.jsonl"}, ["quarantine: expected a file that can be written", "/nowhere"]),
        ({"instruction_set": "mmx"}, ["instruction_set", "mmx", "scalar"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_named_before_anything_is_read(photos, options, texts):
    with pytest.raises(UsageError) as caught:
        load(photos, **options)
    says(caught, *texts)


# --- how many may be bad ---


def test_more_bad_samples_than_max_bad(tmp_path):
    root = folder_of(tmp_path, **{f"p{number}": PNG for number in range(7)}, x=b"", y=b"no", z=b"neither")
    loader = load(root, max_bad=0.2, threads=1, batch_size=10)
    texts = ["3 of 10 samples are bad, expected at most 2 (max_bad=0.2)", "the last: sample '", "quarantine=PATH"]
    fails(TooManyBadSamplesError, loader, *texts, "or raise max_bad")
    quarantine = tmp_path / "bad.jsonl"
    fails(TooManyBadSamplesError, load(root, max_bad=0.2, quarantine=quarantine), f"Look at them in {quarantine}")
    assert len(list(load(root, max_bad=0.3))) == 2


def test_no_bad_sample_is_allowed_where_none_may_be(tmp_path):
    loader = load(folder_of(tmp_path, a=PNG, b=b""), max_bad=0)
    fails(TooManyBadSamplesError, loader, "1 of 2 samples are bad, expected at most 0")


def test_all_samples_are_bad(tmp_path):
    root = folder_of(tmp_path, **{f"p{number}": b"no" for number in range(3)})
    error = fails(TooManyBadSamplesError, load(root, max_bad=1.0), "100 replacements in a row", "Look at the dataset")
    assert isinstance(error.__cause__, DecodeError)


# --- one bad sample shifts nothing ---

BAD_SAMPLE = 14


@pytest.fixture(scope="module")
def twins(tmp_path_factory):
    """The same photographs twice; in the second, one is cut short."""
    root = tmp_path_factory.mktemp("twins")
    good, spoilt = write_folder(root / "good"), write_folder(root / "spoilt")
    path = next(spoilt.glob(f"*/{BAD_SAMPLE:04}.*"))
    path.write_bytes(path.read_bytes()[:-400])
    return hr.open(good), hr.open(spoilt)


def twin(dataset, **options):
    given = {"view": hr.RandomResizedCrop(20, flip=0.5), "shuffle": True, "seed": 3, "batch_size": 12}
    return load(dataset, **(given | options))


def test_a_bad_sample_shifts_nothing(twins):
    good, spoilt = (battery.kept(twin(dataset)) for dataset in twins)
    loader = twin(twins[1])
    images = [np.concatenate([batch["image"] for batch in batches]) for batches in (good, spoilt)]
    odd = [at for at in range(COUNT) if not np.array_equal(images[0][at], images[1][at])]
    assert len(odd) == 1
    list(loader)
    assert (loader.stats().bad, loader.stats().replaced) == (1, 1)
    labels = [np.concatenate([batch["label"] for batch in batches]) for batches in (good, spoilt)]
    assert np.flatnonzero(labels[0] != labels[1]).tolist() in ([], odd)


def test_a_replacement_is_the_same_for_every_run(twins):
    def make(**overrides):
        return twin(twins[1], max_bad=0.5, **overrides)

    battery.check_threads(make)
    battery.check_world_sizes(make, 12)
    battery.check_resume_at_every_step(make)


def test_a_replacement_has_its_own_label_and_text(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(6):
            _, data = encoded(0) if number != 4 else ("", b"bad")
            add_member(tar, f"{number}.jpg", data)
            add_member(tar, f"{number}.cls", str(number).encode())
            add_member(tar, f"{number}.txt", f"text {number}".encode())
    fields = {"image": hr.Image(), "label": hr.Label(), "text": hr.Raw()}
    (batch,) = load(path, fields, shuffle=False)
    stand_in = int(batch["label"][4])
    assert stand_in != 4
    assert batch["text"] == [f"text {label}".encode() for label in batch["label"]]
    np.testing.assert_array_equal(batch["image"][4], batch["image"][stand_in])


def test_the_quarantine_file_has_one_line_a_sample(twins, tmp_path):
    quarantine = tmp_path / "bad.jsonl"
    loader = twin(twins[1], quarantine=quarantine)
    for _ in range(3):
        list(loader)
    (line,) = quarantine.read_text().splitlines()
    record = json.loads(line)
    assert record["key"] == twins[1].key(BAD_SAMPLE)
    assert record["shard"] == str(os.path.join(twins[1].root, record["key"]))
    assert (record["offset"], record["field"], record["epoch"]) == (None, "image", 0)
    assert 0 <= record["position"] < COUNT
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", record["time"])
    assert record["why"]
    list(twin(twins[1], quarantine=quarantine))
    assert len(quarantine.read_text().splitlines()) == 2, "another run adds its own, and reads nothing back"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_costs_the_record_and_not_the_run(twins):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = list(twin(twins[1], quarantine="/dev/full"))
    assert len(batches) == 4
    assert [str(warning.message) for warning in caught if "No space left" in str(warning.message)]
