"""What is left of the way to a CUDA device: ResNet-50, bfloat16, channels-last, beside the ways people use today.

Three tables, all of one run:
1. Step time by source, interleaved in rounds: a batch that lies on the device already (the floor), DevicePrefetcher,
   one in the manner of Apex's examples (side stream, one batch ahead, cast and normalise in torch), and a plain
   `.to(non_blocking=True)` with the cast and normalise in the step. The host's batches are uint8, pinned, and ready at
   once: what is compared is the last metre. Target: 1.01 × the floor.
2. Host to device: bandwidth of the prefetcher's copies against that of one pinned copy of the same bytes. Target: 90 %.
3. The fused cast and normalise against a device-to-device copy, by bytes moved. Target: 70 %.

Without a CUDA device it says so and ends.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import torch
from resnet50 import resnet50
from torch import Tensor, nn

import headrace as hr
from headrace.device import Conversion

SIZE = 224
Batch = tuple[Tensor, Tensor]


def host_batches(count: int, batch_size: int, kinds: int = 4) -> Iterator[Batch]:
    """uint8 [N, 3, H, W], channels-last, pinned; a few of them in turn."""
    ready = []
    for _ in range(kinds):
        image = torch.randint(0, 256, (batch_size, 3, SIZE, SIZE), dtype=torch.uint8)
        label = torch.randint(0, 1000, (batch_size,))
        ready.append((image.contiguous(memory_format=torch.channels_last).pin_memory(), label.pin_memory()))
    for number in range(count):
        yield ready[number % kinds]


def converted(image: Tensor) -> Tensor:
    """As people write it: three passes over memory."""
    mean = torch.tensor(hr.IMAGENET.mean, device=image.device).view(1, 3, 1, 1) * 255
    std = torch.tensor(hr.IMAGENET.std, device=image.device).view(1, 3, 1, 1) * 255
    return image.float().sub_(mean).div_(std).to(torch.bfloat16)


def on_device(count: int, batch_size: int) -> Iterator[Batch]:
    image, label = next(host_batches(1, batch_size))
    batch = converted(image.cuda()).contiguous(memory_format=torch.channels_last), label.cuda()
    for _ in range(count):
        yield batch


def headrace_prefetcher(count: int, batch_size: int) -> Iterable[Batch]:
    source = host_batches(count, batch_size)
    return hr.DevicePrefetcher(source, "cuda", dtype="bfloat16", normalize=hr.IMAGENET)


def plain_to(count: int, batch_size: int) -> Iterator[Batch]:
    for image, label in host_batches(count, batch_size):
        yield converted(image.to("cuda", non_blocking=True)), label.to("cuda", non_blocking=True)


def apex_like(count: int, batch_size: int) -> Iterator[Batch]:
    """One batch ahead on a side stream, from the training thread."""
    stream = torch.cuda.Stream()
    source = host_batches(count, batch_size)

    def preload() -> Batch | None:
        batch = next(source, None)
        if batch is None:
            return None
        with torch.cuda.stream(stream):
            image, label = (part.to("cuda", non_blocking=True) for part in batch)
            return converted(image), label

    ahead = preload()
    while ahead is not None:
        torch.cuda.current_stream().wait_stream(stream)
        batch = ahead
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        ahead = preload()
        yield batch


SOURCES: dict[str, Callable[[int, int], Iterable[Batch]]] = {
    "batch on the device": on_device,
    "DevicePrefetcher": headrace_prefetcher,
    "Apex-like prefetcher": apex_like,
    "plain .to(non_blocking)": plain_to,
}


def step_ms(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Batch], warm_up: int) -> float:
    """Milliseconds a step after the warm-up, by the wall clock, with the device drained at both ends."""
    since, steps = 0.0, 0
    for number, (image, label) in enumerate(batches):
        if number == warm_up:
            torch.cuda.synchronize()
            since, steps = time.perf_counter(), 0
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        steps += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - since) / steps * 1e3


def print_steps(options: argparse.Namespace) -> None:
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch.backends.cudnn.benchmark = True
    times: dict[str, list[float]] = {name: [] for name in SOURCES}
    for _ in range(options.rounds):
        for name, make in SOURCES.items():
            batches = make(options.warm_up + options.steps, options.batch_size)
            times[name].append(step_ms(model, optimizer, batches, options.warm_up))
    floor = median(times["batch on the device"])
    print(f"\nResNet-50, bfloat16, channels-last, batch {options.batch_size}, medians of {options.rounds} rounds")
    for name, rounds in times.items():
        print(f"  {name:<26}{median(rounds):>9.2f} ms a step {median(rounds) / floor:>8.3f} x the floor")


def timed_ms(work: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of one call, by events."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)


def print_copies(options: argparse.Namespace) -> None:
    image, _ = next(host_batches(1, options.batch_size))
    target = torch.empty_like(image, device="cuda")
    best = image.nbytes / timed_ms(lambda: target.copy_(image, non_blocking=True), 30) / 1e6
    print(f"\nhost to device, {image.nbytes / 1e6:.1f} MB a batch")
    print(f"  {'one pinned copy':<40}{best:>8.1f} GB/s")
    cases = {"pinned": True, "not pinned (a thread stages it)": False}
    for name, pinned in cases.items():
        source = [image if pinned else image.clone()] * 60
        prefetcher = hr.DevicePrefetcher(source, "cuda")
        since = time.perf_counter()
        for _ in prefetcher:
            torch.cuda.current_stream().synchronize()
        wall_s = time.perf_counter() - since
        stats = prefetcher.stats()
        assert stats is not None
        copies = stats.copies
        rate = copies.bytes / copies.copy_s / 1e9
        print(
            f"  {'DevicePrefetcher, ' + name:<40}{rate:>8.1f} GB/s {rate / best:>7.1%} of it, "
            f"{copies.bytes / wall_s / 1e9:.1f} GB/s by the wall clock"
        )


def print_fused(options: argparse.Namespace) -> None:
    image = next(host_batches(1, options.batch_size))[0].cuda()
    big = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(big)
    copy = 2 * big.nbytes / timed_ms(lambda: other.copy_(big), 30) / 1e6
    print(f"\ncast and normalise, {list(image.shape)}; a copy on the device moves {copy:,.0f} GB/s")
    for layout, channels_last in (("channels-last", True), ("planar", False)):
        for dtype in ("bfloat16", "float32"):
            conversion = Conversion(dtype, hr.IMAGENET, channels_last)  # type: ignore[arg-type]
            out = conversion.apply(image)
            rate = (image.nbytes + out.nbytes) / timed_ms(lambda c=conversion: c.apply(image), 50) / 1e6  # type: ignore[misc]
            print(f"  uint8 channels-last to {dtype:<9} {layout:<14}{rate:>9,.0f} GB/s {rate / copy:>7.1%} of a copy")
    rate = (image.nbytes * 3) / timed_ms(lambda: converted(image), 50) / 1e6
    print(f"  {'the same in torch, three passes, bfloat16':<47}{rate:>9,.0f} GB/s {rate / copy:>7.1%} of a copy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("skipped: torch sees no CUDA device here, so there is nothing to measure")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print_fused(options)
    print_copies(options)
    print_steps(options)


if __name__ == "__main__":
    main()
