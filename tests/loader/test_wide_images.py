"""Images of more than 8 bits and of any number of channels, against Pillow's and torch's own antialiased resizing."""

from __future__ import annotations

import io
import json
import struct
import sys
import warnings
import zlib

import battery
import numpy as np
import PIL.Image
import pytest
import torch
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import TooManyBadSamplesError, UsageError

COUNT = 6
HEIGHT, WIDTH = 46, 61
WHOLE = hr.CenterCrop((HEIGHT, WIDTH))
KINDS = {1: 0, 2: 4, 3: 2, 4: 6}


def values(number, channels, dtype=np.uint16, height=HEIGHT, width=WIDTH):
    """Smooth over the whole range of the type, with noise in the low bits."""
    rng = np.random.default_rng([number, channels])
    y, x = np.mgrid[:height, :width]
    planes = [0.5 + 0.45 * np.sin(x / (5 + 3 * c + number) + y / (9 + c)) for c in range(channels)]
    found = np.stack(planes, -1) + rng.normal(0, 0.01, (height, width, channels))
    if np.dtype(dtype).kind == "f":
        return (found * 7 - 2).astype(dtype)
    return np.rint(found.clip(0, 1) * np.iinfo(dtype).max).astype(dtype)


def png16(pixels, *, filters=True, interlaced=False):
    """A 16-bit PNG [H, W, C] by the standard: filters in turn, and Adam7."""
    height, width, channels = pixels.shape
    step = 2 * channels
    grids = [(0, 0, 1, 1)]
    if interlaced:
        grids = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    for top, left, down, across in grids:
        part = np.ascontiguousarray(pixels[top::down, left::across].astype(">u2"))
        if part.size == 0:
            continue
        rows = part.view(np.uint8).reshape(part.shape[0], -1).astype(int)
        above = np.zeros(rows.shape[1], int)
        for number, row in enumerate(rows):
            behind = lambda line: np.concatenate([np.zeros(step, int), line[:-step]])  # noqa: E731
            a, b, c = behind(row), above, behind(above)
            p = a + b - c
            nearest = np.where(
                (abs(p - a) <= abs(p - b)) & (abs(p - a) <= abs(p - c)), a, np.where(abs(p - b) <= abs(p - c), b, c)
            )
            kind = number % 5 if filters else 0
            predicted = [0 * a, a, b, (a + b) // 2, nearest][kind]
            raw += bytes([kind]) + ((row - predicted) % 256).astype(np.uint8).tobytes()
            above = row
    header = struct.pack(">IIBBBBB", width, height, 16, KINDS[channels], 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    coded = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(coded)


def write(root, files):
    """A dataset of these files' bytes, by name."""
    root.mkdir()
    rows = []
    for number, (name, data) in enumerate(files.items()):
        (root / name).write_bytes(data)
        rows.append({"image": name, "number": number})
    path = root / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hr.open(path)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def tiff(array, **options):
    import tifffile

    out = io.BytesIO()
    tifffile.imwrite(out, array, **options)
    return out.getvalue()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("wide")
    return {
        channels: write(root / str(channels), {f"{n}.png": png16(values(n, channels)) for n in range(COUNT)})
        for channels in KINDS
    }


def load(data, image, **options):
    given = {"batch_size": 4, "threads": 2, "output": "numpy", "max_bad": 0.0}
    return hr.Loader(data, {"image": image, "number": hr.Label(), "view": hr.Geometry()}, **(given | options))


def images(loader):
    return np.concatenate([np.asarray(batch["image"]) for batch in loader])


def by_pillow(pixels, size, resample=PIL.Image.Resampling.BILINEAR):
    """Each channel as floats: [C, H, W] float64."""
    planes = np.moveaxis(pixels, -1, 0).astype(np.float32)
    resized = [PIL.Image.fromarray(each).resize(size[::-1], resample) for each in planes]
    return np.stack([np.asarray(each, np.float64) for each in resized])


@pytest.mark.parametrize("channels", KINDS)
def test_a_png_of_16_bits_keeps_them_all(places, channels):
    found = images(load(places[channels], hr.Image(channels=channels, dtype="uint16"), view=WHOLE))
    assert (found.dtype, found.shape) == (np.uint16, (COUNT, channels, HEIGHT, WIDTH))
    for number in range(COUNT):
        np.testing.assert_array_equal(np.moveaxis(found[number], 0, -1), values(number, channels))


@pytest.mark.parametrize("channels", KINDS)
def test_interlaced_too(tmp_path, channels):
    pixels = values(0, channels, height=19, width=13)
    data = write(tmp_path / "data", {"a.png": png16(pixels, interlaced=True)})
    found = images(load(data, hr.Image(channels=channels, dtype="uint16"), view=hr.CenterCrop((19, 13))))
    np.testing.assert_array_equal(np.moveaxis(found[0], 0, -1), pixels)


RESAMPLINGS = {
    "triangle": PIL.Image.Resampling.BILINEAR,
    "bicubic": PIL.Image.Resampling.BICUBIC,
    "lanczos": PIL.Image.Resampling.LANCZOS,
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [(17, 23), (46, 30), (80, 100)])
@pytest.mark.parametrize("channels", KINDS)
@pytest.mark.parametrize("name", RESAMPLINGS)
def test_resized_as_pillow_resizes_floats(places, channels, size, name):
    """What overshoots is clipped in whole numbers alone."""
    of = {"channels": channels, "filter": name}
    words = images(load(places[channels], hr.Image(dtype="uint16", **of), view=hr.Resize(size)))
    floats = images(load(places[channels], hr.Image(dtype="float32", **of), view=hr.Resize(size)))
    for number in range(COUNT):
        expected = by_pillow(values(number, channels), size, RESAMPLINGS[name])
        assert np.abs(words[number] - expected.clip(0, 65535)).max() <= 0.51
        np.testing.assert_allclose(floats[number], expected / 65535, atol=2e-7)


@pytest.mark.parametrize(
    ("name", "mode", "antialias"),
    [("triangle", "bilinear", True), ("linear", "bilinear", False), ("bicubic", "bicubic", True)],
)
@pytest.mark.parametrize("size", [(19, 24), (90, 70)])
def test_resized_as_torch_resizes_floats(tmp_path, name, mode, antialias, size):
    pixels = values(3, 5, np.float32)
    data = write(tmp_path / "data", {"a.npy": npy(pixels)})
    found = images(load(data, hr.Image(channels=5, dtype="float32", filter=name), view=hr.Resize(size)))
    planes = torch.from_numpy(pixels).movedim(-1, 0)[None]
    expected = torch.nn.functional.interpolate(planes, size, mode=mode, antialias=antialias, align_corners=False)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_windows_flips_and_padding(places):
    mean, std = (0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8)
    image = hr.Image(channels=4, dtype="float32", normalize=hr.Normalize(mean, std))
    crop = hr.RandomResizedCrop((14, 18), flip=0.5)
    (batch,) = load(places[4], image, view=[crop, hr.RandomVerticalFlip()], batch_size=COUNT)
    for number in range(COUNT):
        x0, y0, x1, y1 = (int(edge) for edge in batch["view"]["window"][number])
        expected = by_pillow(values(number, 4)[y0:y1, x0:x1], (14, 18)) / 65535
        expected = (expected - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
        for axis in (0, 1):
            expected = np.flip(expected, 2 - axis) if batch["view"]["flip"][number, axis] else expected
        np.testing.assert_allclose(batch["image"][number], expected, atol=1e-6)
    padded = images(load(places[3], hr.Image(dtype="uint16"), view=hr.CenterCrop((50, 70), fill=(1, 2, 255))))
    np.testing.assert_array_equal(
        padded[:, :, 2:48, 4:65], np.stack([np.moveaxis(values(n, 3), -1, 0) for n in range(COUNT)])
    )
    border = np.ones((50, 70), bool)
    border[2:48, 4:65] = False
    assert [np.unique(padded[:, channel, border]).tolist() for channel in range(3)] == [[257], [514], [65535]]


def test_nearest_moves_values(places):
    found = images(load(places[2], hr.Image(channels=2, dtype="uint16", filter="nearest"), view=hr.Resize((9, 20))))
    places_of = PIL.Image.fromarray(np.arange(HEIGHT * WIDTH, dtype=np.int32).reshape(HEIGHT, WIDTH))
    picked = np.asarray(places_of.resize((20, 9), PIL.Image.Resampling.NEAREST))
    for number in range(COUNT):
        expected = values(number, 2).reshape(-1, 2)[picked]
        np.testing.assert_array_equal(np.moveaxis(found[number], 0, -1), expected)


def test_eight_bits_span_the_whole_range(tmp_path):
    pixels = values(1, 3, np.uint8)
    picture = PIL.Image.fromarray(pixels)
    jpeg = encode(picture, quality=95, subsampling=0)
    files = {"a.png": encode(picture, "PNG"), "b.jpg": jpeg, "c.webp": encode(picture, "WEBP", lossless=True)}
    found = images(load(write(tmp_path / "data", files), hr.Image(dtype="uint16"), view=WHOLE))
    decoded = np.asarray(PIL.Image.open(io.BytesIO(jpeg)))
    for row, expected in enumerate((pixels, decoded, pixels)):
        np.testing.assert_array_equal(np.moveaxis(found[row], 0, -1), expected.astype(int) * 257)


CONVERTED = {
    (1, 3): lambda p: p[..., [0, 0, 0]],
    (1, 4): lambda p: np.concatenate([p[..., [0, 0, 0]], np.full_like(p, 65535)], -1),
    (2, 1): lambda p: p[..., :1],
    (2, 3): lambda p: p[..., [0, 0, 0]],
    (2, 4): lambda p: p[..., [0, 0, 0, 1]],
    (3, 1): lambda p: np.rint(p @ np.array([19595, 38470, 7471]) / 65536)[..., None],
    (3, 4): lambda p: np.concatenate([p, np.full_like(p[..., :1], 65535)], -1),
    (4, 1): lambda p: np.rint(p[..., :3] @ np.array([19595, 38470, 7471]) / 65536)[..., None],
    (4, 3): lambda p: p[..., :3],
}


@pytest.mark.parametrize(("has", "wanted"), CONVERTED)
def test_pictures_become_the_channels_that_are_asked_for(places, has, wanted):
    found = images(load(places[has], hr.Image(channels=wanted, dtype="uint16"), view=WHOLE))
    for number in range(COUNT):
        expected = CONVERTED[has, wanted](values(number, has)).astype(int)
        assert np.abs(np.moveaxis(found[number], 0, -1).astype(int) - expected).max() <= (wanted == 1)


def test_palettes_and_few_bits(tmp_path):
    picture = PIL.Image.fromarray(values(2, 3, np.uint8)).quantize(11)
    clear = picture.copy()
    clear.info["transparency"] = 3
    grey = PIL.Image.fromarray(values(2, 1, np.uint8)[..., 0])
    files = {
        "palette.png": encode(picture, "PNG"),
        "bits4.png": encode(picture, "PNG", bits=4),
        "one.png": encode(grey.convert("1"), "PNG"),
        "alpha.png": encode(PIL.Image.fromarray(values(2, 4, np.uint8)), "PNG"),
        "gif.gif": encode(picture, "GIF"),
    }
    found = images(load(write(tmp_path / "data", files), hr.Image(channels=3, dtype="float32"), view=WHOLE))
    for row, data in enumerate(files.values()):
        expected = np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB")) / 255
        np.testing.assert_allclose(np.moveaxis(found[row], 0, -1), expected, atol=1e-7)


def test_rgba_of_bytes_keeps_alpha(tmp_path):
    pixels = values(2, 4, np.uint8)
    data = write(tmp_path / "data", {"a.png": encode(PIL.Image.fromarray(pixels), "PNG")})
    found = images(load(data, hr.Image(channels=4), view=WHOLE))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(np.moveaxis(found[0], 0, -1), pixels)
    half = images(load(data, hr.Image(channels=4), view=hr.Resize((20, 30))))
    assert np.abs(half[0] - by_pillow(pixels, (20, 30))).max() <= 0.51


BANDS = {
    "npy, interleaved": (lambda: npy(values(1, 6)), "npy"),
    "npy, planar": (lambda: npy(np.moveaxis(values(1, 6), -1, 0)), "npy"),
    "npy, big-endian": (lambda: npy(values(1, 6).astype(">u2")), "npy"),
    "tiff, interleaved": (lambda: tiff(values(1, 6), planarconfig="contig", photometric="minisblack"), "tif"),
    "tiff, planar": (
        lambda: tiff(np.moveaxis(values(1, 6), -1, 0), planarconfig="separate", photometric="minisblack"),
        "tif",
    ),
}


@pytest.mark.parametrize("kind", BANDS)
def test_images_of_several_bands(tmp_path, kind):
    make, extension = BANDS[kind]
    data = write(tmp_path / "data", {f"a.{extension}": make()})
    found = images(load(data, hr.Image(channels=6, dtype="uint16"), view=WHOLE))
    np.testing.assert_array_equal(np.moveaxis(found[0], 0, -1), values(1, 6))
    batch = next(iter(load(data, hr.Image(channels=6, dtype="float16"), view=hr.Resize((20, 30)))))
    assert batch["view"]["original_size"].tolist() == [[HEIGHT, WIDTH]]
    np.testing.assert_allclose(batch["image"][0], by_pillow(values(1, 6), (20, 30)) / 65535, atol=6e-4)


def test_tiffs_of_16_bit_colour_of_floats_and_of_bytes(tmp_path):
    words, floats, small = values(1, 3), values(1, 3, np.float32), values(1, 3, np.uint8)
    cases = {
        "words": (tiff(words, photometric="rgb"), words / 65535),
        "floats": (tiff(floats, photometric="rgb"), floats),
        "bytes": (encode(PIL.Image.fromarray(small), "TIFF", compression="tiff_lzw"), small / 255),
    }
    for name, (content, expected) in cases.items():
        data = write(tmp_path / name, {"a.tif": content})
        found = images(load(data, hr.Image(channels=3, dtype="float32"), view=WHOLE))
        np.testing.assert_allclose(np.moveaxis(found[0], 0, -1), expected, atol=1e-6)
    data = write(tmp_path / "grey", {"grey.tif": encode(PIL.Image.fromarray(words[..., 0]), "TIFF")})
    found = images(load(data, hr.Image(channels=1, dtype="uint16"), view=WHOLE))
    np.testing.assert_array_equal(found[0, 0], words[..., 0])


def test_without_tifffile_its_install_command_is_named(tmp_path, monkeypatch):
    data = write(tmp_path / "data", {"a.tif": tiff(values(1, 6), planarconfig="contig", photometric="minisblack")})
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(UsageError, match="needs tifffile: pip install tifffile"):
        list(load(data, hr.Image(channels=6, dtype="uint16"), view=hr.Resize((8, 8))))


REFUSED = {
    "bands": ("a.npy", lambda: npy(values(1, 5)), hr.Image(channels=6, dtype="uint16"),
              r"expected an array \[H, W, 6\]"),
    "colour for five": ("a.png", lambda: png16(values(1, 3)), hr.Image(channels=5, dtype="uint16"),
                        "expected an image of 5 channels, got 16-bit PNG of RGB"),
    "floats for words": ("a.npy", lambda: npy(values(1, 3, np.float32)), hr.Image(channels=3, dtype="uint16"),
                         'expected an image of whole numbers, as the field\'s dtype is, .* take dtype="float32"'),
    "int32": ("a.npy", lambda: npy(values(1, 3).astype(np.int32)), hr.Image(channels=3, dtype="float32"),
              "expected an image of uint8, uint16 or floats, got an array of int32"),
    "cut short": ("a.tif", lambda: tiff(values(1, 6), photometric="minisblack", planarconfig="contig")[:4000],
                  hr.Image(channels=6, dtype="uint16"), "expected a"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_of_another_kind_is_a_bad_sample(tmp_path, case):
    name, make, image, says = REFUSED[case]
    with pytest.raises(TooManyBadSamplesError, match=says):
        list(load(write(tmp_path / "data", {name: make()}), image, view=hr.Resize((8, 8))))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"channels": 0}, "expected channels to be None or an int from 1 to 512, got 0"),
        ({"channels": True}, "got True"),
        ({"channels": 3, "mode": "L"}, 'expected mode="L" with one channel, got channels=3'),
        ({"dtype": "uint32"}, "expected dtype to be one of"),
        ({"dtype": "uint16", "shrink_to": 8}, "expected shrink_to=None with dtype='uint16'"),
        ({"dtype": "uint16", "normalize": hr.IMAGENET}, 'normalize gives fractions, got dtype="uint16"'),
        ({"channels": 4, "dtype": "float32", "normalize": hr.IMAGENET}, "a number for each of 4 channels, got 3"),
        ({"mode": "L", "dtype": "float32", "normalize": hr.IMAGENET}, "a number for each of 1 channels, got 3"),
    ],
)
def test_arguments_that_do_not_go_together(options, says):
    with pytest.raises(UsageError, match=says):
        hr.Image(**options)


@pytest.mark.parametrize(
    ("mean", "std", "says"),
    [((0.5,), (0.5, 0.5), "as many numbers in mean as in std, got 1 and 2"), ((), (), "one a channel"),
     (0.5, 0.5, "one a channel, such as"), ((0.5,), (0.0,), "every std above 0")],
)  # fmt: skip
def test_numbers_of_a_normalize(mean, std, says):
    with pytest.raises(UsageError, match=says):
        hr.Normalize(mean, std)


def test_a_view_fills_as_many_channels(places):
    with pytest.raises(UsageError, match=r"one for each of the 4 channels of an image, got \(1, 2, 3\)"):
        list(load(places[4], hr.Image(channels=4, dtype="uint16"), view=hr.CenterCrop((60, 60), fill=(1, 2, 3))))


@pytest.mark.parametrize("mode", [{"mode": "L"}, {"channels": 1}], ids=["mode", "channels"])
def test_grey_is_normalised(tmp_path, mode):
    data = write(tmp_path / "data", {"a.jpg": encode(photograph(1, 40, 30).convert("L"), quality=90)})
    image = hr.Image(dtype="float32", normalize=hr.Normalize((0.45,), (0.22,)), **mode)
    plain = images(load(data, hr.Image(mode="L"), view=hr.CenterCrop((30, 40))))
    for layout in (True, False):
        found = images(load(data, hr.Image(**vars(image) | {"channels_last": layout}), view=hr.CenterCrop((30, 40))))
        np.testing.assert_allclose(found, (plain / 255 - 0.45) / 0.22, atol=1e-5)


def test_eight_bits_asked_for_by_channels_are_the_same_bits(tmp_path):
    data = write(tmp_path / "data", {"a.jpg": encode(photograph(1, 80, 60), quality=90)})
    for channels, mode in ((3, "RGB"), (1, "L")):
        asked = images(load(data, hr.Image(channels=channels), view=hr.Resize((21, 33))))
        np.testing.assert_array_equal(asked, images(load(data, hr.Image(mode=mode), view=hr.Resize((21, 33)))))


SIXTEEN = {
    "colour PNG": ("a.png", lambda: png16(values(1, 3))),
    "grey PNG": ("a.png", lambda: png16(values(1, 1))),
    "colour TIFF": ("a.tif", lambda: tiff(values(1, 3), photometric="rgb")),
    "grey TIFF": ("a.tif", lambda: encode(PIL.Image.fromarray(values(1, 1)[..., 0]), "TIFF")),
}


@pytest.mark.parametrize("kind", SIXTEEN)
def test_16_bits_read_as_8_are_said_once(tmp_path, kind):
    name, make = SIXTEEN[kind]
    data = write(tmp_path / "data", {f"{number}{name}": make() for number in range(6)})
    with pytest.warns(UserWarning, match="field 'image': expected images of 8 bits a channel, got some of 16") as told:
        images(load(data, hr.Image(), view=hr.Resize((9, 9)), batch_size=2))
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images(load(data, hr.Image(channels=3), view=hr.Resize((9, 9))))


@pytest.mark.parametrize(
    "image",
    [hr.Image(channels=4, dtype="uint16"), hr.Image(channels=4, dtype="bfloat16", channels_last=False)],
    ids=["uint16", "bfloat16"],
)
def test_battery(places, tmp_path, image):
    def make(**overrides):
        given = {"view": hr.RandomResizedCrop(12, flip=0.5), "shuffle": True, "output": "torch"}
        return load(places[4], image, **(given | overrides))

    battery.check_threads(make)
    battery.check_world_sizes(make, 4)
    battery.check_instruction_sets(make)
    for view in (hr.Resize((9, 12), flip=0.5), hr.RandomResizedCrop(12)):
        cached, plain = make(cache=f"disk:{tmp_path}:20MB", view=view), make(view=view)
        battery.assert_equal(battery.epochs(cached), battery.epochs(plain), "cached")


def test_torch_types_buckets_maps_and_mixtures(places):
    image = hr.Image(channels=4, dtype="uint16")
    batch = next(iter(load(places[4], image, view=hr.Resize((8, 9)), output="torch")))
    assert (batch["image"].dtype, tuple(batch["image"].shape)) == (torch.uint16, (4, 4, 8, 9))
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    expected = images(load(places[4], image, view=hr.Resize((8, 9))))
    for workers in (0, 1):
        mapped = load(places[4], image, view=hr.Resize((8, 9)), map=_same, map_workers=workers)
        np.testing.assert_array_equal(images(mapped), expected)
    sources = {name: load(places[4], image, view=hr.Resize((8, 9)), seed=seed) for seed, name in enumerate("ab")}
    for mixed in hr.mix(sources, weights={"a": 1, "b": 1}, batches="mixed"):
        for row, number in enumerate(mixed["number"]):
            np.testing.assert_array_equal(mixed["image"][row], expected[number])
    scaled = load(
        places[4], image, view=hr.RandomScale((16, 24), multiple_of=8), buckets=hr.Buckets("aspect"), shuffle=True
    )
    assert all(each["image"].shape[2] % 8 == 0 for each in scaled)


def _same(sample, rng):
    return dict(sample)
