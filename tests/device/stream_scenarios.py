"""Ways to bring batches to a device and to use them there, for the double in `stream_double`.

Each scenario uses every tensor of a batch on the consumer's current stream, drops the batch, and checks some values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from stream_double import SimulatedDevice
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace.device import NO_LEAF, DevicePrefetcher, image_conversion, map_leaves
from headrace.device.memory import CudaMemory
from headrace.errors import UsageError

COUNT = 5
"""Batches of a plain source."""
FLOATS = hr.Image(dtype="float32", normalize=hr.IMAGENET)
COLOURS = (hr.ColorJitter(0.4, 0.4, 0.4, 0.1), hr.RandomApply([hr.GaussianBlur(3)]), hr.RandomErasing(p=0.5))
LOADER = {"view": hr.RandomResizedCrop(12, flip=0.5), "batch_size": 8, "shuffle": True, "threads": 2}


@dataclass
class Sample:
    image: Tensor
    extra: Any


def use(batch: Any) -> list[Tensor]:
    """Return the sum of each tensor, by a kernel on the current stream."""
    sums: list[Tensor] = []

    def leaf(path: Any, part: Any) -> Any:
        return sums.append(part.sum()) if isinstance(part, Tensor) else NO_LEAF

    map_leaves(batch, leaf)
    return sums


def used(batches: Iterable[Any]) -> list[list[float]]:
    """Use each batch, and read the results once the device has all."""
    results = []
    for batch in batches:
        results.append(use(batch))
        del batch
    return [[float(each) for each in sums] for sums in results]


def image(number: int) -> Tensor:
    return torch.full((2, 3, 4, 4), number, dtype=torch.uint8)


def images() -> list[dict[str, Any]]:
    return [{"image": image(number), "label": torch.tensor([number, 1])} for number in range(COUNT)]


PLAIN = [[96.0 * number, number + 1.0] for number in range(COUNT)]


def plain(device: SimulatedDevice) -> None:
    assert used(DevicePrefetcher(images(), device.name)) == PLAIN


def pinned_by_the_source(device: SimulatedDevice) -> None:
    source = ({name: part.pin_memory() for name, part in batch.items()} for batch in images())
    prefetcher = DevicePrefetcher(source, device.name, depth=4)
    assert used(prefetcher) == PLAIN
    assert prefetcher.stats().copies.stage_s == 0


def converted(device: SimulatedDevice) -> None:
    prefetcher = DevicePrefetcher(images(), device.name, dtype="float16", normalize=hr.Normalize((0, 0, 0), (1, 1, 1)))
    for number, sums in enumerate(used(prefetcher)):
        assert sums[0] == pytest.approx(PLAIN[number][0] / 255, rel=1e-2)
    assert prefetcher.stats().copies.bytes == sum(part.nbytes for batch in images() for part in batch.values())


def converted_by_a_kernel(device: SimulatedDevice) -> None:
    """As with Triton, whose kernels run on the current stream."""

    class Kernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda given, out, *numbers: out.copy_(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_conversion, "load_kernel", Kernel)
        prefetcher = DevicePrefetcher([image(number) for number in range(COUNT)], device.name, dtype="float32")
        assert used(prefetcher) == [[sums[0]] for sums in PLAIN]


def on_own_stream(device: SimulatedDevice) -> None:
    with device.entered(device.new_stream()):
        assert used(DevicePrefetcher(images(), device.name)) == PLAIN


def nested(device: SimulatedDevice) -> None:
    def source() -> Iterator[Any]:
        for number in range(COUNT):
            yield [(image(number), "name"), Sample(image(number), {"none": None, "more": [torch.ones(3)]})]

    expected = [[sums[0], sums[0] / 255, 3.0] for sums in PLAIN]
    got = used(DevicePrefetcher(source(), device.name, images=["image"], dtype="float32"))
    assert got == [pytest.approx(sums) for sums in expected]


class Numbered(Dataset):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3, 4, 4), index, dtype=torch.uint8), index


def data_loader(device: SimulatedDevice) -> None:
    """With a short last batch, in two passes."""
    prefetcher = DevicePrefetcher(DataLoader(Numbered(), batch_size=2), device.name, dtype="float32")
    for _ in range(2):
        got = used(prefetcher)
        assert [sums[1] for sums in got] == [1, 5, 9, 6]
        assert [sums[0] * 255 / 48 for sums in got] == [pytest.approx(each) for each in (1, 5, 9, 6)]


def pinned_data_loader(device: SimulatedDevice) -> None:
    prefetcher = DevicePrefetcher(DataLoader(Numbered(), batch_size=2, pin_memory=True), device.name)
    assert [sums[1] for sums in used(prefetcher)] == [1, 5, 9, 6]
    assert prefetcher.stats().copies.stage_s == 0


def on_the_device_already(device: SimulatedDevice) -> None:
    """The source makes its images on the device, on the default stream of the thread that runs it, and drops them."""

    def source() -> Iterator[Any]:
        for number in range(COUNT):
            made = torch.arange(96, device=device.torch_device).view(2, 3, 4, 4).mul(0).add(number).to(torch.uint8)
            yield {"image": made, "same": made[:1].float().flatten()}
            del made

    got = used(DevicePrefetcher(source(), device.name, dtype="float32"))
    assert got == [pytest.approx([sums[0] / 255, sums[0] / 2]) for sums in PLAIN]


def made_on_a_stream_of_the_source(device: SimulatedDevice) -> None:
    """The source has a stream of its own, on which it makes its images, ahead of the default stream."""
    own = device.new_stream()

    def source() -> Iterator[Any]:
        for number in range(COUNT):
            with device.entered(own):
                yield torch.arange(96, device=device.torch_device).view(2, 3, 4, 4).mul(0).add(number).to(torch.uint8)

    got = used(DevicePrefetcher(source(), device.name, dtype="float32"))
    assert got == [pytest.approx([sums[0] / 255]) for sums in PLAIN]


def with_statistics(device: SimulatedDevice) -> None:
    """Statistics read the clocks of batches that the device may not have done."""
    prefetcher = DevicePrefetcher((image(number) for number in range(12)), device.name, dtype="float32")
    for batch in prefetcher:
        use(batch)
        assert prefetcher.stats().copies.copy_s >= 0


def broken_off(device: SimulatedDevice) -> None:
    """The stream of a pass goes to the next one, with work under way on it."""
    for _ in range(3):
        prefetcher = DevicePrefetcher(images(), device.name, dtype="float32")
        for batch in prefetcher:
            use(batch)
            break
        prefetcher.close()
    assert used(DevicePrefetcher(images(), device.name)) == PLAIN


def side_by_side(device: SimulatedDevice) -> None:
    """Two passes at once, and batches that the consumer holds on to."""
    pairs = list(zip(*(DevicePrefetcher(images(), device.name) for _ in range(2)), strict=True))
    assert used(pairs) == [sums * 2 for sums in PLAIN]


def failing_source(device: SimulatedDevice) -> None:
    def source() -> Iterator[Any]:
        yield from images()
        raise OSError("the disk is gone")

    iterator = iter(DevicePrefetcher(source(), device.name, dtype="float32"))
    results = [use(next(iterator)) for _ in range(COUNT)]
    with pytest.raises(OSError, match="the disk is gone"):
        next(iterator)
    assert len(results) == COUNT


def wrong_batch(device: SimulatedDevice) -> None:
    """The lane itself fails, in the middle of a batch."""
    source = [image(0), torch.zeros(2, 5, 4, 4, dtype=torch.uint8)]
    prefetcher = DevicePrefetcher([{"x": each} for each in source], device.name, images=["x"], normalize=hr.IMAGENET)
    with pytest.raises(UsageError, match="C = 3"):
        used(prefetcher)


def measured_step(device: SimulatedDevice) -> None:
    """As `fit_budget` measures a step."""
    memory = CudaMemory(torch.device("cuda", 0))
    step = torch.ones(8, device=device.torch_device)
    memory.begin()
    step.mul_(2)
    assert memory.peak_bytes() == 0


def loader(fields: dict[str, Any], *, passes: int = 1, **options: Any) -> Callable[[SimulatedDevice, hr.Dataset], None]:
    """Return a scenario of a Loader: batches equal to the host's, the last one short."""

    def scenario(device: SimulatedDevice, folder: hr.Dataset) -> None:
        on_host = {name: value for name, value in options.items() if name != "augment_on"}
        here = hr.Loader(folder, fields, **LOADER, **on_host)
        there = hr.Loader(folder, fields, device=device.name, **LOADER, **options)
        for _ in range(passes):
            pairs = []
            for mine, theirs in zip(here, there, strict=True):
                assert {part.device.type for part in theirs.values()} == {device.kind}
                pairs += [(theirs[name].clone(), value) for name, value in mine.items()]
                del theirs
            for copied, value in pairs:
                torch.testing.assert_close(copied.cpu(), value, atol=1e-5, rtol=1e-5)
        assert there._pass._feed.stats().copies.bytes > 0
        assert there._pass._feed.stats().copies.copy_s > 0

    return scenario


def broken_loader(device: SimulatedDevice, folder: hr.Dataset) -> None:
    batches = hr.Loader(folder, {"image": FLOATS}, device=device.name, **LOADER)
    for _ in range(2):
        for number, batch in enumerate(batches):
            use(batch)
            if number == 1:
                break
    used(batches)


def mixture(device: SimulatedDevice, folder: hr.Dataset) -> None:
    def mixed(where: str | None) -> Any:
        fields = {"image": hr.Image(), "label": hr.Label()}
        parts = {"a": folder.select(range(12)), "b": folder.select(range(8, 20))}
        options = LOADER | {"view": hr.Resize((64, 64))}  # joined in pinned memory, where batches are not small
        loaders = {name: hr.Loader(part, fields, device=where, **options) for name, part in parts.items()}
        return hr.mix(loaders, batches="mixed")

    expected = [batch["image"] for batch in mixed(None)]
    there = mixed(device.name)
    got = [batch["image"].clone() for batch in there]
    assert all(torch.equal(each.cpu(), image) for each, image in zip(got, expected, strict=True))


ALONE: list[Callable[[SimulatedDevice], None]] = [
    plain, pinned_by_the_source, converted, converted_by_a_kernel, on_own_stream, nested, data_loader,
    pinned_data_loader, on_the_device_already, made_on_a_stream_of_the_source, with_statistics, broken_off,
    side_by_side, failing_source, wrong_batch, measured_step,
]  # fmt: skip
"""Scenarios without files."""

WITH_IMAGES: dict[str, Callable[[SimulatedDevice, hr.Dataset], None]] = {
    "uint8": loader({"image": hr.Image(), "label": hr.Label()}),
    "float32": loader({"image": FLOATS, "label": hr.Label()}, passes=2),
    "colours": loader({"image": FLOATS, "label": hr.Label()}, augment=COLOURS, augment_on="device"),
    "mixup": loader({"image": hr.Image(), "label": hr.Label()}, batch=hr.MixUp(), remainder="drop"),
    "mixup of floats": loader({"image": FLOATS, "label": hr.Label()}, batch=hr.MixUp(), remainder="drop"),
    "broken off": broken_loader,
    "mixture": mixture,
}
"""Scenarios over a folder of photographs."""
