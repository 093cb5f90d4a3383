"""EXIF orientations: what is displayed is what comes, and annotations lie where a table's own sizes say.

Judged by `PIL.ImageOps.exif_transpose`, and by marks in the pixels themselves.
"""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_images import exif_of
from PIL import Image, ImageOps

import headrace as hr
from headrace import _core
from headrace.errors import DatasetError, LimitError

WIDTH, HEIGHT = 60, 40
BOX = (5, 10, 20, 12)
"""x, y, width and height of the marked pixels."""
DISPLAYED_BY = {5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
                8: Image.Transpose.ROTATE_90}  # fmt: skip


def marked(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """An image that is white inside of BOX, and black elsewhere."""
    pixels = np.zeros((height, width, 3), np.uint8)
    x, y, wide, high = BOX
    pixels[y : y + high, x : x + wide] = 255
    return Image.fromarray(pixels)


def displayed_png(picture: Image.Image, turn: int) -> bytes:
    """A PNG whose orientation displays `picture`."""
    back = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}.get(turn, DISPLAYED_BY.get(turn))
    return encoded(picture if back is None else picture.transpose(back), turn)


def encoded(picture: Image.Image, turn: int, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, exif=exif_of(turn), **options)
    return out.getvalue()


def write_coco(root: Path, file: bytes, size: tuple[int, int], box: tuple[int, ...] = BOX) -> Path:
    """One image with a box, its corners as points, its outline as a polygon and as runs; `size` is (width, height)."""
    (root / "photo.png").write_bytes(file)
    x, y, wide, high = box
    polygon = [x, y, x + wide, y, x + wide, y + high, x, y + high]
    runs = np.zeros((size[1], size[0]), int)
    runs[y : y + high, x : x + wide] = 1
    edges = np.flatnonzero(np.diff(np.concatenate([[0], runs.T.reshape(-1), [0]])))
    counts = np.diff(np.concatenate([[0], edges, [runs.size]])).tolist()
    every = {"image_id": 1, "category_id": 1, "bbox": [*box], "area": wide * high, "iscrowd": 0}
    corners = [x, y, 2, x + wide - 1, y + high - 1, 2]
    outlines = ([polygon], {"counts": counts, "size": [size[1], size[0]]})
    path = root / "coco.json"
    path.write_text(
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "photo.png", "width": size[0], "height": size[1]}],
                "categories": [{"id": 1, "name": "thing"}],
                "annotations": [
                    every | {"id": number, "keypoints": corners, "segmentation": outline}
                    for number, outline in enumerate(outlines)
                ],
            }
        )
    )
    return path


ANNOTATIONS = {
    "boxes": hr.Boxes(source="bbox", format="xywh"),
    "points": hr.Keypoints(source="keypoints", offset=0.5),
    "masks": hr.InstanceMasks(source="segmentation"),
}


def load(
    path: Path, root: Path, names: tuple[str, ...] = (*ANNOTATIONS,), epochs: int = 1, exif: bool = True, **options: Any
) -> dict[str, Any]:
    fields = {"image": hr.Image(exif=exif)} | {name: ANNOTATIONS[name] for name in names}
    loader = hr.Loader(hr.open(path, root=root), fields, batch_size=1, output="numpy", on_error="raise", **options)
    for _ in range(epochs):
        (batch,) = loader
    return batch


def assert_marks(batch: dict[str, Any]) -> None:
    """Boxes, masks and points are where the image is white."""
    white = batch["image"][0].transpose(1, 2, 0).min(-1) > 127
    rows, columns = np.nonzero(white)
    around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    assert white.any()
    np.testing.assert_array_equal(batch["boxes"][0], [around, around])
    np.testing.assert_array_equal(batch["masks"][0], [white, white])
    for points in batch["points"][0]:
        x, y = np.floor(points[:, :2]).astype(int).T
        assert sorted(x.tolist()) == [around[0], around[2] - 1]
        assert sorted(y.tolist()) == [around[1], around[3] - 1]


@pytest.mark.parametrize("turn", range(1, 9))
def test_annotations_of_the_displayed_image_are_used_as_they_are(tmp_path, turn):
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded(marked(), turn))))
    x, y = (int(each.min()) for each in np.nonzero(np.asarray(shown)[..., 0].T))
    box = (x, y, *(BOX[2:] if turn < 5 else BOX[:1:-1]))
    assert_marks(load(write_coco(tmp_path, encoded(marked(), turn), shown.size, box), tmp_path))


@pytest.mark.parametrize("flip", [0.0, 1.0])
@pytest.mark.parametrize("turn", [5, 6, 7, 8])
def test_annotations_of_the_stored_image_turn_with_it(tmp_path, turn, flip):
    path = write_coco(tmp_path, encoded(marked(), turn), (WIDTH, HEIGHT))
    assert_marks(load(path, tmp_path, view=hr.RandomHorizontalFlip(flip)))
    assert_marks(load(path, tmp_path, view=hr.CenterCrop((50, 30), flip=flip)))
    for seed in range(4):
        turned = [hr.CenterCrop((50, 50), flip=flip), hr.RandomQuarterTurn()]
        assert_marks(load(path, tmp_path, view=turned, seed=seed))
    assert_marks(load(path, tmp_path, epochs=2, view=hr.CenterCrop((50, 30), flip=flip), cache="ram:64MB"))


def test_the_stored_frame_is_that_of_exif_false(tmp_path):
    assert_marks(load(write_coco(tmp_path, encoded(marked(), 6), (WIDTH, HEIGHT)), tmp_path, exif=False))
    shown = write_coco(tmp_path, encoded(marked(), 6), (HEIGHT, WIDTH))
    with pytest.raises(DatasetError, match=r"photo\.png"):
        load(shown, tmp_path, ("boxes",), exif=False)


def test_a_square_tells_nothing_and_is_as_displayed(tmp_path):
    path = write_coco(tmp_path, displayed_png(marked(50, 50), 6), (50, 50))
    assert_marks(load(path, tmp_path))


@pytest.mark.parametrize(("turn", "size"), [(1, (HEIGHT, WIDTH)), (3, (HEIGHT, WIDTH)), (6, (WIDTH, HEIGHT + 1))])
def test_a_size_that_is_neither_is_an_error_with_the_file(tmp_path, turn, size):
    with pytest.raises(DatasetError, match=r"photo\.png"):
        load(write_coco(tmp_path, encoded(marked(), turn), size), tmp_path, ("boxes",))


def test_shapes_of_batches_are_those_of_displayed_images(tmp_path):
    """The table states stored sizes, and every second file is turned: buckets are of what is displayed."""
    for number in range(8):
        (tmp_path / f"{number}.jpg").write_bytes(encoded(marked(), 1 + 5 * (number % 2), "JPEG"))
    rows = "".join(f"{number}.jpg,{WIDTH},{HEIGHT}\n" for number in range(8))
    (tmp_path / "table.csv").write_text("image,width,height\n" + rows)
    loader = hr.Loader(
        hr.open(tmp_path / "table.csv"),
        {"image": hr.Image()},
        view=hr.Resize(20),
        buckets=hr.Buckets(by="aspect"),
        batch_size=4,
        output="numpy",
    )
    assert sorted(batch["image"].shape for batch in loader) == [(4, 3, 20, 30), (4, 3, 30, 20)]


@pytest.mark.parametrize("field", [hr.Mask(), hr.Depth(valid=False)], ids=lambda field: type(field).__name__)
@pytest.mark.parametrize("turn", [1, 3, 6])
def test_masks_and_depth_are_turned_by_their_own_orientation(tmp_path, field, turn):
    values = np.arange(WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint16 if isinstance(field, hr.Depth) else "u1")
    file = encoded(Image.fromarray(values), turn)
    (batch,) = hr.Loader(hr.open([file]), {"image": field}, batch_size=1, output="numpy", on_error="raise")
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    np.testing.assert_array_equal(np.squeeze(batch["image"]), np.asarray(expected))


@pytest.mark.parametrize("turn", range(1, 9))
def test_wide_images_are_turned(turn):
    tifffile = pytest.importorskip("tifffile")
    values, out = np.random.default_rng(turn).integers(0, 1 << 16, (HEIGHT, WIDTH, 3), np.uint16), io.BytesIO()
    tifffile.imwrite(out, values, photometric="rgb", extratags=[(0x0112, 3, 1, turn, True)])
    png = encoded(Image.fromarray(values[..., 0]), turn)
    loader = hr.Loader(hr.open([out.getvalue()]), {"image": hr.Image(channels=3, dtype="uint16")}, batch_size=1,
                       output="numpy", on_error="raise")  # fmt: skip
    (tiff,) = (batch["image"][0] for batch in loader)
    grey = hr.Loader(hr.open([png]), {"image": hr.Image(channels=1, dtype="uint16")}, batch_size=1, output="numpy",
                     on_error="raise")  # fmt: skip
    (expected,) = (batch["image"][0] for batch in grey)
    np.testing.assert_array_equal(expected[0], np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(png)))))
    np.testing.assert_array_equal(tiff[0], expected[0])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_metadata_makes_no_image_bad(kind):
    """Viewers show it; the pixels are fine."""
    plain = np.asarray(marked())
    for damage in (b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"nonsense"):
        out = io.BytesIO()
        marked().save(out, kind, exif=damage)
        found = hr.decode_image(out.getvalue(), output="numpy")
        assert np.abs(found.astype(int) - plain).mean() < 3, "lossy, but the same picture"


VIEWS = {
    "none": None,
    "sides": hr.Resize((23, 41)),
    "short side": hr.Resize(20),
    "window": hr.RandomResizedCrop(24, flip=0.5),
    "crop": hr.RandomCrop(17),
    "centre": hr.CenterCrop((30, 25), flip=0.5),
    "padded": hr.CenterCrop(90),
    "letterbox": hr.Letterbox(50),
    "upside down": [hr.Resize(31), hr.RandomVerticalFlip(0.5)],
}
FIELDS = {
    "triangle": {},
    "bicubic": {"filter": "bicubic"},
    "nearest": {"filter": "nearest"},
    "grey": {"mode": "L"},
    "shrunk": {"shrink_to": 30},
    "floats": {"dtype": "float32"},
    "wide": {"channels": 3, "dtype": "uint16"},
}


def noise(seed: int, width: int, height: int) -> Image.Image:
    """Smooth noise, which has no symmetry."""
    values = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)


def displayed(file: bytes) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(file)))


def every_image(files: list[bytes], fields: dict[str, Any], **options: Any) -> tuple[list[dict[str, Any]], Any]:
    loader = hr.Loader(hr.open(files), fields, batch_size=1, output="numpy", on_error="raise", seed=3, **options)
    return list(loader), loader.stats()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_turned_image_is_that_of_its_turned_pixels(view, field):
    """Bit for bit, and without Pillow; the draws are those of the displayed image."""
    kinds: list[dict[str, Any]] = [{"kind": "JPEG"}, {"kind": "JPEG", "progressive": True}, {"kind": "PNG"}]
    files = [encoded(noise(turn, 61, 43), turn, **kinds[turn % 3]) for turn in range(1, 9)]
    files += [encoded(noise(turn, 37, 58).convert("L"), turn, **kinds[turn % 2]) for turn in range(1, 9)]
    expected = [encoded(displayed(file), 1) for file in files]
    image = hr.Image(dct_scaling=False, **field)
    (found, stats), (wanted, _) = (every_image(each, {"image": image}, view=view) for each in (files, expected))
    for here, there in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(here["image"], there["image"])
    assert stats.declined == 0


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("eighths", [1, 2, 4])
def test_a_scaled_decode_is_turned_without_a_shift(turn, eighths):
    """The stored image's last pixels are part of a scaled one, which a mirrored image begins with."""
    size = 384 // (8 // eighths)
    files = [encoded(noise(5, 397, 389), each, "JPEG", quality=95) for each in (1, turn)]
    image = hr.Image(dct_scaling=True, channels_last=True)
    found, _ = every_image(files, {"image": image}, view=hr.Resize((size, size)))
    upright, here = (batch["image"][0].transpose(1, 2, 0) for batch in found)
    back = Image.fromarray(upright)
    back.getexif()[0x0112] = turn
    expected = np.asarray(ImageOps.exif_transpose(back)).astype(int)
    assert np.abs(here - expected).max() <= 1


def test_copies_of_a_turned_image_share_its_decode():
    files = [encoded(noise(turn, 61, 43), turn, "JPEG") for turn in range(1, 9)]
    expected = [encoded(displayed(file), 1) for file in files]
    fields = {"image": hr.Image(view=hr.RandomResizedCrop(16), copies=3, dct_scaling=False)}
    (found, stats), (wanted, _) = (every_image(each, fields) for each in (files, expected))
    for here, there in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(here["image"], there["image"])
    assert stats.declined == 0


def app1(content: bytes) -> bytes:
    return b"\xff\xe1" + struct.pack(">H", 2 + len(content)) + content


def entry(kind: int, count: int, value: bytes, order: str = "<") -> bytes:
    begin = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    return b"Exif\0\0" + begin + struct.pack(order + "HHHI", 1, 0x0112, kind, count) + value + bytes(4)


@pytest.mark.parametrize(
    ("segments", "turn"),
    [
        ([entry(3, 1, b"\6\0\0\0")], 6),
        ([entry(3, 1, b"\0\6\0\0", ">")], 6),
        ([entry(4, 1, b"\0\0\0\6", ">")], 6),
        ([entry(1, 1, b"\6\0\0\0")], 1),
        ([entry(3, 1, b"\x09\0\0\0")], 1),
        ([b"http://ns.adobe.com/xap/1.0/\0" + bytes(3000), entry(3, 1, b"\6\0\0\0")], 6),
        ([entry(3, 1, b"\1\0\0\0"), entry(3, 1, b"\6\0\0\0")], 1),
    ],
)
def test_the_orientation_is_that_which_pillow_reads(segments, turn):
    plain = encoded(noise(1, 61, 43), 1, "JPEG")
    file = plain[:2] + b"".join(map(app1, segments)) + plain[2:]
    upright = Image.open(io.BytesIO(plain))
    expected = upright if turn == 1 else upright.transpose(DISPLAYED_BY[turn])
    assert _core.exif_orientation(file, hr.Limits()) == turn
    np.testing.assert_array_equal(hr.decode_image(file, output="numpy"), np.asarray(expected))
    np.testing.assert_array_equal(np.asarray(displayed(file)), np.asarray(expected))


def test_memory_for_turning_is_part_of_the_limit():
    file = encoded(noise(1, 610, 430), 6, "JPEG")
    enough, short = (hr.Limits(max_decode_bytes=4 * 610 * 430 - less) for less in (0, 1))
    assert hr.decode_image(file, output="numpy", limits=enough).shape[:2] == (610, 430)
    with pytest.raises(LimitError):
        hr.decode_image(file, output="numpy", limits=short)


def test_a_state_of_the_pixels_before_warns():
    file = encoded(marked(), 6)
    loader = hr.Loader(hr.open([file, file]), {"image": hr.Image()}, batch_size=1, output="numpy")
    state = loader.state_dict()
    loader.load_state_dict(state)
    with pytest.warns(UserWarning, match="the state was saved under"):
        loader.load_state_dict(state | {"core": _core.codec_versions()})
