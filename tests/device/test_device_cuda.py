"""What only a CUDA device can show: bytes that survive, streams that wait, and the same bits as the host's."""

from __future__ import annotations

import gc

import dense_data
import pytest
import text_data
import torch
from loader_data import write_folder

import headrace as hr
from headrace.device import Conversion, image_conversion
from headrace.device.h2d_copy import AcceleratorLane
from headrace.loader.batch_values import SMALL_BYTES

pytestmark = pytest.mark.cuda

BYTES = (8, 3, 256, 256)


def pinned(value):
    return torch.full(BYTES, value, dtype=torch.uint8).pin_memory()


def busy():
    """Keeps the device's current stream occupied for some milliseconds."""
    torch.cuda._sleep(20_000_000)


@pytest.mark.parametrize("pin", [True, False], ids=["pinned", "staged"])
def test_a_batch_that_is_dropped_right_after_its_copy_keeps_its_bytes(pin):
    """The source drops each batch at once, and the allocator hands the same memory out again for the next."""

    def source():
        for value in range(200):
            yield pinned(value) if pin else torch.full(BYTES, value, dtype=torch.uint8)

    for value, batch in enumerate(hr.DevicePrefetcher(source(), "cuda", depth=4)):
        if value % 10 == 0:
            busy()  # copies pile up behind the training stream, if they wrongly wait for it
        assert bool((batch == value).all()), value


def test_device_memory_is_not_used_again_while_the_training_stream_reads_it():
    kept = []
    for value, batch in enumerate(hr.DevicePrefetcher((pinned(v) for v in range(100)), "cuda", depth=4)):
        busy()
        kept.append((value, batch.sum(dtype=torch.int64)))
        del batch
    count = torch.Size(BYTES).numel()
    assert all(int(total) == value * count for value, total in kept)


def test_a_consumer_on_a_stream_of_its_own():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for value, batch in enumerate(hr.DevicePrefetcher([pinned(v) for v in range(50)], "cuda")):
            assert bool((batch == value).all())


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("image_last", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_same_bits_as_on_the_host(channels_last, image_last, dtype):
    values = (torch.arange(2 * 3 * 67 * 61) * 37 % 256).to(torch.uint8).reshape(2, 3, 67, 61)
    layout = torch.channels_last if image_last else torch.contiguous_format
    image = values.contiguous(memory_format=layout)
    conversion = Conversion(dtype, hr.IMAGENET, channels_last)
    there = conversion.apply(image.cuda())
    assert torch.equal(there.cpu(), conversion.apply(image))
    assert there.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_triton_is_used_where_it_is_installed():
    pytest.importorskip("triton", reason="needs Triton")
    image = torch.zeros(2, 3, 8, 8, dtype=torch.uint8, device="cuda")
    out = torch.empty(image.shape, device="cuda")
    assert image_conversion.convert_fused(image, out, (0.0,) * 3, (255.0,) * 3)


def test_the_loader_gives_the_same_batches_on_the_device(tmp_path):
    folder = hr.open(write_folder(tmp_path / "photos"))
    fields = {"image": hr.Image(dtype="bfloat16", normalize=hr.IMAGENET), "label": hr.Label()}
    options = {"view": hr.RandomResizedCrop(48, flip=0.5), "batch_size": 8, "shuffle": True, "threads": 2}
    here, there = hr.Loader(folder, fields, **options), hr.Loader(folder, fields, device="cuda", **options)
    for _ in range(2):
        for mine, theirs in zip(here, there, strict=True):
            assert theirs["image"].is_cuda
            assert torch.equal(mine["image"], theirs["image"].cpu())
            assert torch.equal(mine["label"], theirs["label"].cpu())


@pytest.fixture
def staged_bytes(monkeypatch):
    """Sizes of the tensors that did not come in pinned memory."""
    sizes = []
    stage = AcceleratorLane._stage

    def noted(lane, path, tensor):
        staged = stage(lane, path, tensor)
        if staged is not tensor:
            sizes.append(tensor.nbytes)
        return staged

    monkeypatch.setattr(AcceleratorLane, "_stage", noted)
    return sizes


def test_the_loader_makes_its_batches_in_pinned_memory(tmp_path):
    folder = hr.open(write_folder(tmp_path / "photos"))
    loader = hr.Loader(folder, {"image": hr.Image()}, view=hr.Resize((48, 48)), batch_size=8, device="cuda")
    list(loader)
    assert loader._pass._feed.stats().copies.stage_s == 0


def test_mixtures_and_texts_arrive_as_the_host_makes_them_from_pinned_memory(tmp_path, staged_bytes):
    photos = hr.open(write_folder(tmp_path / "photos"))
    fields = {"image": hr.Image(dtype="float16", normalize=hr.IMAGENET), "label": hr.Label()}
    options = {"view": hr.RandomResizedCrop(48, flip=0.5), "batch_size": 8, "shuffle": True, "threads": 2}
    captions = hr.open(text_data.write_tar(tmp_path / "captions.tar"))
    texts = {"image": hr.Image(), "text": hr.Text(text_data.tokenizer(), max_length=12)}

    def mixture(device):
        return hr.mix({name: hr.Loader(photos, fields, device=device, **options) for name in ("a", "b")})

    def captioned(device):
        return hr.Loader(captions, texts, device=device, max_bad=1.0, **options)

    for make in (mixture, captioned):
        there = make("cuda")
        for mine, theirs in zip(make(None), there, strict=True):
            for name, value in mine.items():
                for part in value if isinstance(value, dict) else (None,):
                    here_, there_ = (each[name] if part is None else each[name][part] for each in (mine, theirs))
                    assert there_.device.type == "cuda"
                    assert torch.equal(there_.cpu(), here_), (name, part)
    assert max(staged_bytes) < SMALL_BYTES, "labels and ids alone are staged"


def test_colours_and_mixing_there_are_those_of_the_host(tmp_path):
    """To a level for each operation that rounds: docs/augmentation.md."""
    photos = hr.open(write_folder(tmp_path / "photos"))
    augment = [hr.ColorJitter(0.4, 0.4, 0.4, 0.1), hr.RandomGrayscale(0.2), hr.RandomApply([hr.GaussianBlur(5)])]
    options = {"view": hr.RandomResizedCrop(48, flip=0.5), "batch_size": 8, "shuffle": True, "remainder": "drop"}
    options |= {"augment": augment, "batch": hr.MixUp()}
    fields = {"image": hr.Image(), "label": hr.Label()}
    here = hr.Loader(photos, fields, **options)
    for mine, theirs in zip(
        here, hr.Loader(photos, fields, device="cuda", augment_on="device", **options), strict=True
    ):
        assert theirs["image"].device.type == "cuda"
        assert (mine["image"].int() - theirs["image"].cpu().int()).abs().max() <= 6
        torch.testing.assert_close(mine["label"], theirs["label"].cpu())


def test_measures_copies_and_overlap():
    prefetcher = hr.DevicePrefetcher([pinned(v) for v in range(20)], "cuda", dtype="float32")
    for _ in prefetcher:
        busy()
    torch.cuda.synchronize()
    copies = prefetcher.stats().copies
    assert copies.bytes == 20 * torch.Size(BYTES).numel()
    assert copies.copy_s > 0
    assert copies.convert_s > 0
    assert 0 <= copies.overlap <= 1


def test_an_error_of_the_device_reaches_the_consumer():
    too_large = torch.empty(1, 3, 1, 1, dtype=torch.uint8).expand(4_000_000, 3, 1000, 1000)
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)):
        list(hr.DevicePrefetcher([too_large], "cuda"))
    gc.collect()


def test_dense_fields_arrive_as_the_host_makes_them(tmp_path):
    """In batches whose shapes change from step to step."""
    scenes = dense_data.write_tar(tmp_path)
    fields = {
        "rgb": hr.Image(dtype="float32", normalize=hr.IMAGENET),
        "mask": hr.Mask(dtype="int64"),
        "depth": hr.Depth(1 / 1000, normalize=hr.Quantiles()),
        "normals": hr.Normals(dtype="float16"),
    }
    options = {"view": hr.RandomScale((24, 30, 40), flip=0.5), "batch_size": hr.Budget(pixels=6000), "shuffle": True}
    on_device, on_host = (hr.Loader(scenes, fields, device=device, **options) for device in ("cuda", None))
    for there, here in zip(on_device, on_host, strict=True):
        assert list(there) == list(here)
        for name, values in here.items():
            assert there[name].device.type == "cuda"
            assert torch.equal(there[name].cpu(), values), name
