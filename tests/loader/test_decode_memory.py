"""Memory of decoders that hold a whole image: bounded for one image, and shared by all threads of a loader."""

from __future__ import annotations

import threading

import pytest
from loader_data import encode
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.errors import LimitError

SIDE = 200
PICTURE = Image.new("RGB", (SIDE, SIDE))
WHOLE = {
    "webp": (encode(PICTURE, "WEBP"), 24),
    "tiff": (encode(PICTURE, "TIFF"), 16),
    "cmyk": (encode(PICTURE.convert("CMYK"), "JPEG"), 16),
    "progressive": (encode(PICTURE, "JPEG", progressive=True), 6),
}


def load(data: bytes, limits: hr.Limits) -> int:
    loader = hr.Loader(
        hr.open([{"image": data}] * 4),
        {"image": hr.Image()},
        view=hr.Resize((50, 50)),
        batch_size=4,
        limits=limits,
        on_error="raise",
    )
    return sum(len(batch["image"]) for batch in loader)


@pytest.mark.parametrize("kind", WHOLE)
def test_an_image_that_needs_more_memory_is_bad(kind):
    data, pixel_bytes = WHOLE[kind]
    enough = SIDE * SIDE * pixel_bytes
    assert load(data, hr.Limits(max_decode_bytes=enough)) == 4
    with pytest.raises(LimitError, match=f"max_decode_bytes={enough - 1}"):
        load(data, hr.Limits(max_decode_bytes=enough - 1))


def test_images_that_are_decoded_row_by_row_need_none():
    for data in (encode(PICTURE, "JPEG"), encode(PICTURE, "PNG")):
        assert load(data, hr.Limits(max_decode_bytes=1)) == 4


@pytest.mark.parametrize("kind", ["webp", "cmyk"])
def test_decode_image_has_the_same_bound(kind):
    data, pixel_bytes = WHOLE[kind]
    with pytest.raises(LimitError, match="max_decode_bytes"):
        hr.decode_image(data, limits=hr.Limits(max_decode_bytes=SIDE * SIDE * pixel_bytes - 1))


def test_threads_wait_until_their_image_fits():
    engine = _core.Engine(1, limits=hr.Limits(max_decode_bytes=100))
    engine.take_memory(60)
    begun, has_memory = threading.Event(), threading.Event()

    def take() -> None:
        begun.set()
        engine.take_memory(60)
        has_memory.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert begun.wait(30)
    assert not has_memory.wait(0.05)
    engine.take_memory(40)  # fits beside the first
    engine.give_memory_back(60)
    assert has_memory.wait(30)
    thread.join(30)
    with pytest.raises(ValueError, match="max_decode_bytes=100"):
        engine.take_memory(101)
    engine.close()
