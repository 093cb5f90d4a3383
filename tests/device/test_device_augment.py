"""`Loader(augment_on="device")`: the core's colours by batched torch operations, with the same draws. The "device" is
the host's memory here, where both round alike."""

from __future__ import annotations

from dataclasses import replace

import battery
import numpy as np
import pytest
import torch
from loader_data import write_folder

import headrace as hr
from headrace import _core
from headrace.augment import BatchedChains, compile_augment
from headrace.device import colour_operations, place
from headrace.device.colour_operations import erase_received, run_chains
from headrace.errors import UsageError

VIEW = hr.RandomResizedCrop((26, 30), flip=0.5)
OPERATIONS = {
    "jitter": hr.ColorJitter(0.5, 0.5, 0.5, 0.4),
    "photometric": hr.RandomPhotometricDistort(),
    "grey": hr.RandomGrayscale(p=0.5),
    "invert": hr.RandomInvert(p=0.5),
    "solarize": hr.RandomSolarize(threshold=100, p=0.7),
    "posterize": hr.RandomPosterize(bits=3, p=0.7),
    "autocontrast": hr.RandomAutocontrast(p=0.7),
    "equalize": hr.RandomEqualize(p=0.7),
    "sharpness": hr.RandomAdjustSharpness(1.7, p=0.7),
    "blur": hr.GaussianBlur((5, 9), sigma=(0.1, 2.0)),
    "wide blur": hr.GaussianBlur(61, sigma=(4.0, 9.0)),
    "channels": hr.RandomChannelPermutation(),
    "order": hr.RandomOrder([hr.RandomApply([hr.GaussianBlur(3)]), hr.ColorJitter(0.3), hr.RandomInvert()]),
}


def chains_of(augment, count, size):
    program = compile_augment("test", augment).native
    return [_core.draw_chain(program, 11, number, 0, width=size[1], height=size[0]) for number in range(count)]


def pictures(count, size, channels):
    images = np.random.default_rng(3).integers(0, 256, (count, *size, channels)).astype(np.uint8)
    images[0] = 77  # a constant image
    images[1, ..., 0] //= 3
    images[2] = (images[2] // 128) * 255
    return images


def as_tensors(chains):
    return replace(
        chains, **{name: torch.from_numpy(getattr(chains, name)) for name in ("rows", "numbers", "taps", "erasures")}
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_the_cores(name, channels):
    images, chains = pictures(20, (17, 23), channels), chains_of(OPERATIONS[name], 20, (17, 23))
    expected = np.stack([_core.apply_chain(image, chain) for image, chain in zip(images, chains, strict=True)])
    for layout in (torch.channels_last, torch.contiguous_format):
        tensor = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
        before = tensor.clone()
        got = run_chains(tensor, as_tensors(BatchedChains.of(chains)))
        np.testing.assert_array_equal(got.permute(0, 2, 3, 1), expected)
        assert torch.equal(tensor, before), "what was sent is changed"
        assert got.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (3, 1)])
def test_small_images_are_the_cores(size):
    images = pictures(4, size, 3)
    for augment in OPERATIONS.values():
        chains = chains_of(augment, 4, size)
        expected = np.stack([_core.apply_chain(image, chain) for image, chain in zip(images, chains, strict=True)])
        got = run_chains(torch.from_numpy(images).permute(0, 3, 1, 2), as_tensors(BatchedChains.of(chains)))
        np.testing.assert_array_equal(got.permute(0, 2, 3, 1), expected)


def test_erasures_are_boxes_of_the_final_values():
    erasing = [hr.RandomErasing(p=0.5, value=(0.25, -1.5, 2.0), count=(1, 3)), hr.RandomErasing(p=0.3, value=7)]
    chains = chains_of(erasing, 20, (17, 23))
    batched = as_tensors(BatchedChains.of(chains))
    assert 20 > batched.rounds[0] > batched.rounds[-1] > 0
    got = erase_received(torch.zeros(20, 3, 17, 23, dtype=torch.float16), batched)
    for image, chain in zip(got, chains, strict=True):
        expected = torch.zeros(3, 17, 23, dtype=torch.float16)
        for _, (left, top, width, height, *values) in chain:
            box = slice(int(top), int(top + height)), slice(int(left), int(left + width))
            expected[:, *box] = torch.tensor(values[:3], dtype=torch.float16)[:, None, None]
        assert torch.equal(image, expected)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler imports
def test_operations_can_be_compiled(monkeypatch):
    """Traced as a whole, and run as they are: no C++ compiler, and no pool of processes that the test would leave."""
    compile_with = torch.compile
    traced = []

    def trace(operation, **options):
        traced.append(operation)
        return compile_with(operation, backend="aot_eager", fullgraph=True, **options)

    monkeypatch.setattr(torch, "compile", trace)
    colour_operations._compiled.cache_clear()
    for name in ("jitter", "equalize", "blur"):
        images, chains = pictures(6, (17, 23), 3), chains_of(OPERATIONS[name], 6, (17, 23))
        tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
        given = [as_tensors(BatchedChains.of(chains, compiled=each)) for each in (False, True)]
        plain, compiled = (run_chains(tensor, each) for each in given)
        assert torch.equal(plain, compiled)
    colour_operations._compiled.cache_clear()
    assert len(traced) == 6


# --- through the Loader ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("colours") / "photos"))


@pytest.fixture
def host_as_device(monkeypatch):
    def placed(device, output, fields, *, host_floats, decodes):
        return replace(place("meta", fields, host_floats=host_floats), device=torch.device("cpu"))

    monkeypatch.setattr("headrace.loader.loader_spec.place_fields", placed)


@pytest.fixture
def make(folder, host_as_device):
    def make(image, data=folder, **overrides):
        given = {"view": VIEW, "batch_size": 12, "shuffle": True, "seed": 5, "threads": 2, "device": "cuda"}
        return hr.Loader(data, {"image": image, "label": hr.Label()}, **(given | overrides))

    return make


SIMCLR = [hr.RandomApply([hr.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8), hr.RandomGrayscale(0.2), hr.GaussianBlur(5)]
ERASING = hr.RandomErasing(p=0.6, value=0.5)
FLOAT = {"dtype": "float32", "normalize": hr.IMAGENET}
CASES = {
    "bytes, sample": (hr.Image(), {"augment": SIMCLR}),
    "floats, field": (hr.Image(augment=SIMCLR, **FLOAT), {}),
    "both, erased": (hr.Image(augment=[hr.RandomSolarize(99), ERASING], **FLOAT), {"augment": SIMCLR}),
    "copies": (hr.Image(augment=SIMCLR, copies=2, channels_last=False), {"augment": hr.RandomInvert()}),
    "grey halves": (hr.Image(mode="L", dtype="float16"), {"augment": [*SIMCLR, ERASING]}),
    "policy": (hr.Image(), {"augment": [hr.RandomChoice([hr.RandomEqualize(1.0), hr.RandomAutocontrast(1.0)])]}),
    "mixed": (hr.Image(**FLOAT), {"augment": [*SIMCLR, ERASING], "batch": hr.CutMix()}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(12)
def test_batches_are_those_of_the_core(make, case):
    image, options = CASES[case]
    there, here = (battery.epochs(make(image, augment_on=where, **options)) for where in ("device", "cpu"))
    battery.assert_equal(there, here, case)


def test_the_host_only_cuts(make):
    loader = make(hr.Image(augment=SIMCLR, **FLOAT), augment=ERASING, augment_on="device")
    assert loader._feed.recipe.augment is None
    assert loader._feed.recipe.fields["image"] == hr.Image()
    list(loader)
    assert loader.stats().stages["augment"].items == 0


def test_on_the_cpu_the_core_does_it(folder):
    fields = {"image": hr.Image(augment=SIMCLR)}
    loader = hr.Loader(folder, fields, view=VIEW, batch_size=8, device="cpu", augment_on="device")
    assert loader._feed.recipe.fields["image"].augment is not None
    assert set(next(iter(loader))) == {"image"}


@pytest.mark.long
def test_world_sizes_and_resumes_agree(make):
    def again(**overrides):
        return make(hr.Image(augment=SIMCLR), augment_on="device", augment=ERASING, **overrides)

    battery.check_world_sizes(again, 12)
    battery.check_resume_at_every_step(again)


def test_a_mixture_of_sources(make, folder):
    def mixed(where, batches="one-source"):
        parts = {"a": folder.select(range(24)), "b": folder.select(range(20, 40))}
        loaders = {name: make(hr.Image(), data=data, augment=SIMCLR, augment_on=where) for name, data in parts.items()}
        return hr.mix(loaders, weights={"a": 1, "b": 1}, batches=batches)

    battery.assert_equal(battery.kept(mixed("device")), battery.kept(mixed("cpu")), "one-source")
    with pytest.raises(UsageError, match="augment_on='cpu' in source 'a' with 'mixed'"):
        mixed("device", "mixed")


BAD_USE = {
    "unknown": ({"augment_on": "gpu"}, r"expected one of .*'device-compiled'\), got 'gpu'"),
    "no device": ({"device": None}, "expected device= with 'device'"),
    "map": ({"map": lambda sample, rng: sample}, "expected 'cpu' with map= or batch_map="),
    "batch_map": ({"batch_map": lambda batch, rng: batch}, "expected 'cpu' with map= or batch_map="),
    "geometric": ({"augment": [hr.ColorJitter(0.4), hr.RandomRotation(10)]}, "got affine maps .RandomAffine"),
    "augmix": ({"augment": hr.AugMix()}, "AugMix"),
    "noise": ({"image": hr.Image(dtype="float32", augment=hr.RandomErasing(value="random"))}, "'image'.*normal values"),
}


@pytest.mark.parametrize("case", BAD_USE)
def test_refuses_what_the_device_does_not_do(make, case):
    options, says = BAD_USE[case]
    with pytest.raises(UsageError, match=says):
        make(**({"image": hr.Image(), "augment_on": "device"} | options))
