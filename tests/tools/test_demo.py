"""The demo's data set: where photographs come from, which windows are cut, how files are written."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace.errors import EmptyDatasetError, NotFoundError
from headrace.tools.demo_dataset import (
    PhotoCrop,
    PhotoSource,
    cache_folder,
    cached_path,
    draw_crops,
    encode,
    find_source,
    natural_image,
    photographs_in,
    pink_noise,
    write_dataset,
)

LARGE = (1200, 1000)


def write_photograph(path: Path, size: tuple[int, int] = LARGE, *, seed: int = 0) -> Path:
    """A JPEG of noise, which is large for its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(noise).save(path, quality=95)
    return path


def spectrum_slope(image: np.ndarray) -> float:
    """The exponent of the amplitude spectrum's fall with frequency, over two octaves on either side of its middle."""
    light = image.astype(float) - image.mean()
    amplitude = np.abs(np.fft.fft2(light))
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(light.shape[1]), np.fft.fftfreq(light.shape[0])))
    edges = np.geomspace(0.01, 0.4, 16)
    rings = np.digitize(frequency, edges)
    means = [amplitude[rings == ring].mean() for ring in range(1, len(edges))]
    return float(np.polyfit(np.log(np.sqrt(edges[1:] * edges[:-1])), np.log(means), 1)[0])


def test_pink_noise_falls_as_one_over_f() -> None:
    noise = pink_noise(np.random.default_rng(0), 512, 384)
    assert noise.shape == (384, 512)
    assert abs(noise.mean()) < 1e-9
    assert noise.std() == pytest.approx(1)
    assert spectrum_slope(noise) == pytest.approx(-1, abs=0.05)


def test_drawn_images_have_a_natural_spectrum() -> None:
    # Photographs lie between -0.8 and -1.5 (Torralba and Oliva, 2003).
    assert -1.5 < spectrum_slope(natural_image(640, 480, seed=3).mean(axis=2)) < -0.8


def test_drawn_images_follow_from_the_seed() -> None:
    image = natural_image(64, 48, seed=1)
    assert image.shape == (48, 64, 3)
    assert image.dtype == np.uint8
    assert np.array_equal(image, natural_image(64, 48, seed=1))
    assert not np.array_equal(image, natural_image(64, 48, seed=2))


def test_cuts_are_what_they_were() -> None:
    """The published figures were measured on these windows; other ones would be other data."""
    assert draw_crops([(3000, 2000), (1600, 1200)], 3, seed=0) == [
        PhotoCrop(1, (750, 1000), (62, 0, 1536, 1200)),
        PhotoCrop(1, (375, 500), (516, 35, 1231, 989)),
        PhotoCrop(1, (500, 333), (931, 545, 1556, 961)),
    ]


def test_cuts_stay_inside_and_have_the_sizes_of_imagenet() -> None:
    sizes = [(3000, 2000), (901, 900), (300, 200)]
    cuts = draw_crops(sizes, 3000, seed=1)
    for cut in cuts:
        left, top, right, bottom = cut.window
        width, height = sizes[cut.photograph]
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    doubled = np.mean([max(cut.size) == 1000 for cut in cuts])
    wide = np.mean([cut.size[0] > cut.size[1] for cut in cuts])
    assert doubled == pytest.approx(0.1, abs=0.02)
    assert wide == pytest.approx(0.75, abs=0.03)


def test_takes_large_photographs_of_the_given_folder(tmp_path: Path) -> None:
    photograph = write_photograph(tmp_path / "deep" / "one.JPG")
    write_photograph(tmp_path / "icon.jpg", (64, 64))
    write_photograph(tmp_path / "narrow.jpg", (3000, 500))
    (tmp_path / "text.jpg").write_bytes(b"no image" * 30_000)
    source = find_source(tmp_path, system=())
    assert source.files == (photograph,)
    assert str(tmp_path) in source.origin
    assert [image.size for image in source.load()] == [LARGE]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"expected a folder of photographs at .*gone; no folder is there"):
        find_source(tmp_path / "gone")


def test_a_folder_without_photographs_says_what_counts(tmp_path: Path) -> None:
    with pytest.raises(EmptyDatasetError, match=r"at least 900 pixels a side and 150 kB"):
        find_source(tmp_path)


def test_prefers_wallpapers_then_packages_then_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walls, package = tmp_path / "walls", tmp_path / "site" / "somepackage"
    for number in range(5):
        write_photograph(walls / f"{number}.jpg", seed=number)
    write_photograph(package / "data" / "cat.jpg", (320, 240))
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    packaged = {"somepackage": ("data/cat.jpg", "data/gone.jpg"), "notinstalled": ("data/dog.jpg",)}
    assert find_source(system=[walls], packaged=packaged).files == tuple(sorted(walls.iterdir()))
    (walls / "0.jpg").unlink()  # four are too few
    source = find_source(system=[walls], packaged=packaged)
    assert source.files == (package / "data" / "cat.jpg",)
    assert source.origin == "photographs bundled with somepackage"
    drawn = find_source(system=[tmp_path / "none"], packaged={})
    assert drawn.files is None
    assert drawn.origin.startswith("drawn images with a natural spectrum")


def test_picks_evenly() -> None:
    source = PhotoSource("here", tuple(Path(str(number)) for number in range(10)))
    assert source.picked(3).files == (Path("0"), Path("3"), Path("6"))
    assert source.picked(10) is source


def test_large_photographs_are_scaled_down(tmp_path: Path) -> None:
    source = PhotoSource("here", (write_photograph(tmp_path / "wide.jpg", (4000, 1000)),))
    assert [image.size for image in source.load()] == [(3000, 750)]


def test_lists_nothing_in_a_folder_that_is_missing(tmp_path: Path) -> None:
    assert list(photographs_in(tmp_path / "gone")) == []


def test_writes_jpegs_in_class_folders(tmp_path: Path) -> None:
    photographs = [Image.fromarray(natural_image(640, 480, seed=seed)) for seed in range(2)]
    sizes = list(write_dataset(photographs, tmp_path / "out", 7, classes=3))
    files = sorted((tmp_path / "out").rglob("*.jpg"))
    names = [str(path.relative_to(tmp_path / "out")) for path in files]
    assert names == [
        "000/00000.jpg",
        "000/00003.jpg",
        "000/00006.jpg",
        "001/00001.jpg",
        "001/00004.jpg",
        "002/00002.jpg",
        "002/00005.jpg",
    ]
    assert sum(sizes) == sum(path.stat().st_size for path in files)
    for path in files:
        with Image.open(path) as image:
            assert image.format == "JPEG"
            assert max(image.size) in (500, 1000)


def test_a_data_set_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    photographs = [Image.fromarray(natural_image(640, 480, seed=0))]
    writing: Iterator[int] = write_dataset(photographs, tmp_path / "out", 40)
    next(writing)
    assert not (tmp_path / "out").exists(), "an unfinished data set must not look finished"
    writing.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("noise_levels", "expected"), [(120, 93), (1, 98)])
def test_quality_rises_until_the_bytes_are_there(noise_levels: int, expected: int) -> None:
    noise = np.random.default_rng(0).normal(128, noise_levels, (375, 500, 3)).clip(0, 255).astype(np.uint8)
    with Image.open(io.BytesIO(encode(Image.fromarray(noise)))) as image:
        tables = image.quantization
        reference = io.BytesIO()
        Image.new("RGB", (8, 8)).save(reference, "JPEG", quality=expected)
        with Image.open(reference) as again:
            assert tables == again.quantization


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HEADRACE_CACHE": "/own"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/headrace"),
        ({"XDG_CACHE_HOME": "", "HOME": "/home/someone"}, "/home/someone/.cache/headrace"),
    ],
)
def test_the_cache_folder(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == expected


def test_other_photographs_give_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    photograph = tmp_path / "one.jpg"
    photograph.write_bytes(b"1")
    source = PhotoSource("here", (photograph,))
    first = cached_path(source, 600)
    assert first == cached_path(source, 600)
    assert first.is_relative_to(tmp_path / "cache")
    assert cached_path(source, 601) != first
    os.utime(photograph, ns=(1, 1))
    assert cached_path(source, 600) != first
