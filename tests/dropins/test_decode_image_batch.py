"""`read_images`: the images that `decode_image` gives one after another, at any number of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from bad_loads import JPEG, PNG, says
from loader_data import encode, encoded, photograph
from test_decode_image import by_loader

import headrace as hr
from headrace.dropins.image_reader import ImageReader, decode_all, decode_image, read_images
from headrace.errors import DecodeError, NotFoundError, ReadError, UsageError

CROP = hr.RandomResizedCrop((24, 30), flip=0.5)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Files, bytes and one that Pillow has to decode."""
    root = tmp_path_factory.mktemp("batch")
    found = []
    for number in range(24):
        extension, data = encoded(number)
        path = root / f"{number:02}.{extension}"
        path.write_bytes(data)
        found.append(path if number % 3 else data)
    return [*found, encode(photograph(1, 50, 40), "WEBP")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("threads", [None, 1, 3, 50])
@pytest.mark.parametrize("options", [{}, {"channels_last": True}, {"dtype": "bfloat16"}, {"output": "numpy"}], ids=repr)
def test_equals_decode_image_in_turn(sources, threads, options):
    for seed in (torch.manual_seed, np.random.seed):
        seed(4)
    expected = [decode_image(source, view=CROP, **options) for source in sources]
    for seed in (torch.manual_seed, np.random.seed):
        seed(4)
    batch = read_images(sources, view=CROP, threads=threads, **options)
    assert len(batch) == len(sources)
    for got, image in zip(batch, expected, strict=True):
        assert got.dtype == image.dtype
        assert (np.array_equal if options.get("output") == "numpy" else torch.equal)(got, image)


def test_layout():
    planar, last = (read_images([JPEG, PNG], channels_last=last) for last in (None, True))
    assert planar.shape == last.shape == (2, 3, 48, 64)
    assert planar.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert read_images([JPEG, PNG], output="numpy").shape == (2, 48, 64, 3)


def test_an_int_seeds_an_epoch_an_item(tmp_path):
    batch = read_images([JPEG] * 3, view=CROP, rng=8, output="numpy", channels_last=False)
    for epoch in range(3):
        np.testing.assert_array_equal(batch[epoch], by_loader(tmp_path / "a", JPEG, CROP, seed=8, epoch=epoch))
    assert not np.array_equal(batch[0], batch[1])


def test_a_readers_own_batch(sources):
    reader = ImageReader(view=CROP)
    torch.testing.assert_close(reader.read_batch(iter(sources), rng=1), read_images(sources, view=CROP, rng=1))


def test_threads_work_side_by_side():
    """Each waits for the other: one thread alone would never be done."""
    both = threading.Barrier(2, timeout=20)

    def decode(item: int):
        both.wait()
        return np.full(1, item)

    assert [int(image[0]) for image in decode_all(decode, 2, threads=2)] == [0, 1]


def test_one_thread_in_a_worker_of_a_dataloader(monkeypatch):
    """The other cores are the other workers'."""
    used = set()

    def decode(item: int):
        used.add(threading.current_thread())
        return np.zeros(1)

    monkeypatch.setattr(torch.utils.data._utils.worker, "_worker_info", object())
    decode_all(decode, 8, threads=None)
    assert used == {threading.current_thread()}


# --- what is wrong ---


def fails(kind, sources, *texts, **options):
    with pytest.raises(kind) as caught:
        read_images(sources, **options)
    says(caught, *texts)
    return caught.value


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_name_the_item(tmp_path, threads):
    (tmp_path / "bad.jpg").write_bytes(b"")
    good = [JPEG] * 5
    error = fails(DecodeError, [*good, tmp_path / "bad.jpg"], "sources[5]", str(tmp_path / "bad.jpg"), threads=threads)
    assert error.key == str(tmp_path / "bad.jpg")
    fails(NotFoundError, [*good, tmp_path / "no.jpg", JPEG], "sources[5]", str(tmp_path / "no.jpg"), threads=threads)
    fails(ReadError, [JPEG, tmp_path], "sources[1]", str(tmp_path), "not a regular file", threads=threads)
    fails(UsageError, [JPEG, 7], "sources[1]", "builtins.int", threads=threads)


def test_of_several_errors_the_first_is_raised():
    fails(DecodeError, [JPEG, b"x", b"y", b"z"], "sources[1]", threads=3)


def test_unequal_sizes(tmp_path):
    (tmp_path / "a.png").write_bytes(encode(photograph(1, 30, 20), "PNG"))
    texts = "(3, 48, 64) (sources[0], '", "(3, 20, 30) (sources[2], '", "a.png", "Resize((height, width))"
    fails(UsageError, [JPEG, PNG, tmp_path / "a.png"], *texts)


def test_wrong_calls():
    fails(UsageError, [], "at least one image", "empty")
    fails(UsageError, "a.jpg", "expected a list", "'a.jpg'", "decode_image")
    for threads in (0, -1, 1.5, True):
        fails(UsageError, [JPEG], "threads", repr(threads), threads=threads)
