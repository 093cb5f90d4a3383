"""`Loader(decode="device")` by nvImageCodec's CPU backend: every path but the hardware's own pixels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from loader_data import photograph

import headrace as hr

pytest.importorskip("nvidia.nvimgcodec")

IMAGES, SIDES = 48, (300, 220)
VIEWS = {
    "turned": [hr.RandomResizedCrop(48, flip=0.5), hr.RandomQuarterTurn()],
    "crop": hr.RandomResizedCrop(64, flip=0.5),
    "centre": [hr.Resize(80), hr.CenterCrop(64)],
    "whole": [hr.Resize((48, 72)), hr.RandomVerticalFlip(0.5)],
    "large": hr.Resize((330, 330)),
}


def jpeg(number: int, *, subsampling: int = 0, mode: str = "RGB", size: tuple[int, int] = SIDES) -> bytes:
    file = io.BytesIO()
    photograph(number, *size).convert(mode).save(file, "JPEG", quality=92, subsampling=subsampling)
    return file.getvalue()


def write(folder: Path, files: list[bytes], suffix: str = "jpg") -> Path:
    (folder / "a").mkdir(parents=True)
    for number, data in enumerate(files):
        (folder / "a" / f"{number:03}.{suffix}").write_bytes(data)
    return folder


def load(folder: Path, *, decode: str = "device", fields: dict | None = None, **options) -> hr.Loader:
    fields = {"image": hr.Image(dct_scaling=False), "key": hr.Key()} if fields is None else fields
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "threads": 2, **options}
    return hr.Loader(folder, fields, decode=decode, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("jpegs"), [jpeg(number) for number in range(IMAGES)])


def images_of(loader: hr.Loader) -> dict[str, torch.Tensor]:
    return {key: image for batch in loader for key, image in zip(batch["key"], batch["image"], strict=True)}


def differences(folder: Path, **options) -> torch.Tensor:
    """How many levels the device's images and the core's differ by."""
    ours, core = images_of(load(folder, **options)), images_of(load(folder, decode="core", **options))
    assert ours.keys() == core.keys()
    return torch.stack([ours[key].int() - core[key].int() for key in core]).abs().flatten()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.one_in(4)
def test_images_are_the_cores_within_a_level(folder, view):
    levels = differences(folder, view=VIEWS[view])
    assert levels.max() <= 1
    assert (levels == 0).float().mean() > 0.9


def test_chroma_subsampling_and_grey_images_too(tmp_path):
    files = [jpeg(number, subsampling=2) for number in range(4)] + [jpeg(5, mode="L"), jpeg(6, size=(41, 39))]
    loader = load(write(tmp_path, files), view=hr.Resize((50, 60)))
    assert differences(tmp_path, view=hr.Resize((50, 60))).max() <= 1
    list(loader)
    assert loader.stats().stages["device"].items == len(files)


def test_floats_and_layouts_are_those_of_the_core(folder):
    for layout in (True, False):
        field = hr.Image(dtype="float32", normalize=hr.IMAGENET, channels_last=layout, dct_scaling=False)
        fields = {"image": field, "key": hr.Key(), "label": hr.Label()}
        ours, core = (
            next(iter(load(folder, decode=each, fields=fields, view=VIEWS["crop"]))) for each in ("device", "core")
        )
        assert ours["image"].dtype == torch.float32
        assert ours["image"].stride() == core["image"].stride()
        assert torch.equal(ours["label"], core["label"])
        step = 1 / 255 / min(hr.IMAGENET.std)
        assert (ours["image"] - core["image"]).abs().max() <= step * 1.001


def test_the_core_decodes_what_the_device_cannot(tmp_path):
    """PNG, CMYK, and views that pad: pixels are then the core's own."""
    png, cmyk = io.BytesIO(), io.BytesIO()
    photograph(1, *SIDES).save(png, "PNG")
    photograph(2, *SIDES).convert("CMYK").save(cmyk, "JPEG")
    write(tmp_path, [png.getvalue(), cmyk.getvalue(), jpeg(3, size=(60, 60))])
    view = [hr.CenterCrop((100, 100))]
    assert differences(tmp_path, view=view).max() == 0
    loader = load(tmp_path, view=view)
    list(loader)
    assert loader.stats().stages["device"].items == 0


@pytest.mark.parametrize("policy", ["replace", "raise"])
@pytest.mark.one_in(2)
def test_bad_samples_follow_the_policy_as_with_the_core(tmp_path, policy):
    rng = np.random.default_rng(0)
    files = []
    for number in range(40):
        data = bytearray(jpeg(number))
        if number % 3 == 0:
            data = data[: rng.integers(20, len(data))]
        elif number % 3 == 1:
            at = int(rng.integers(200, len(data) - 50))
            data[at : at + 30] = bytes(30)
        files.append(bytes(data))
    write(tmp_path, files)
    found = []
    for decode in ("device", "core"):
        loader = load(tmp_path, decode=decode, view=VIEWS["crop"], on_error=policy, max_bad=1.0)
        try:
            batches = [(list(batch["key"]), batch["image"].int()) for batch in loader]
        except hr.HeadraceError as error:
            found.append((type(error), str(error)))
        else:
            stats = loader.stats()
            found.append((batches, stats.bad, stats.replaced))
    if policy == "raise":
        assert found[0] == found[1]
        return
    (ours, *counts), (core, *expected) = found
    assert counts == expected
    assert [keys for keys, _ in ours] == [keys for keys, _ in core]
    assert all((one - other).abs().max() <= 1 for (_, one), (_, other) in zip(ours, core, strict=True))


def test_a_resumed_run_has_the_same_images(folder):
    loader = load(folder, view=VIEWS["crop"])
    every = [batch["image"] for batch in loader]
    loader = load(folder, view=VIEWS["crop"])
    taken = iter(loader)
    for _ in range(2):
        next(taken)
    state = loader.state_dict()
    again = load(folder, view=VIEWS["crop"])
    again.load_state_dict(state)
    assert all(torch.equal(one, other["image"]) for one, other in zip(every[2:], again, strict=True))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"output": "numpy"}, "output"),
        ({"map": lambda sample, rng: sample}, "map="),
        ({"cache": "ram:1MB"}, "cache="),
        ({"augment": hr.ColorJitter(0.4)}, "augment_on"),
        ({"view": None}, "fixed size"),
        ({"fields": {"image": hr.Image(mode="L")}}, "mode RGB"),
        ({"fields": {"image": hr.Image(), "mask": hr.Mask(source="image")}}, "one field of images"),
        ({"decode": "gpu"}, "'core' or 'device'"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, options, named):
    with pytest.raises(hr.errors.UsageError, match=named):
        load(folder, **{"view": VIEWS["crop"], **options})


@pytest.mark.cuda
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_cuda_decodes_as_the_core_does(folder, view):
    apart = differences(folder, view=view, device="cuda")
    assert (apart <= 2).float().mean() >= 0.999
    assert apart.max() <= 4


@pytest.mark.cuda
def test_memory_that_queued_work_reads_is_not_decoded_into(folder):
    """nvJPEG's hardware engine writes at once, whatever the stream has still to do (pytorch/vision#9606)."""
    options = {"view": VIEWS["crop"], "device": "cuda", "shuffle": False}
    expected = [batch["image"].clone() for batch in load(folder, **options)]
    for _ in range(10):
        read = [torch.rand(1_000_000, device="cuda") for _ in range(4)]
        sums = [float(values.double().sum()) for values in read]
        torch.cuda._sleep(100_000_000)
        late = [values.double().sum() for values in read]
        del read
        for batch, image in zip(load(folder, **options), expected, strict=True):
            assert torch.equal(batch["image"], image)
        assert [float(value) for value in late] == sums
