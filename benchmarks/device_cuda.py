"""What is left of the way to a CUDA device: ResNet-50, bfloat16, channels-last, beside the ways people use today.

    python benchmarks/device_cuda.py [--batch-size 256] [--steps 60] [--warm-up 15] [--rounds 5]

Three tables, all of one run:
1. Step time by source, interleaved in rounds: a batch that lies on the device already (the lower bound),
   DevicePrefetcher, one in the manner of Apex's examples (side stream, one batch ahead, cast and normalise in torch),
   and a plain `.to(non_blocking=True)` with the cast and normalise in the step. The host's batches are uint8, pinned,
   and ready at once: what is compared is the last metre. Target: 1.01 × the lower bound.
2. Host to device: bandwidth of the prefetcher's copies against that of one pinned copy of the same bytes. Target: 90 %.
3. The fused cast and normalise against a device-to-device copy, by bytes moved. Target: 70 %.
"""

import time
from functools import partial
from itertools import cycle, islice
from statistics import median

import torch
from harness import arguments, in_turns, medians, require_device
from resnet50 import resnet50, train

import headrace as hr
from headrace.device import Conversion

SIZE = 224


def host_batches(count, batch_size):
    """Return batches [N, 3, H, W], uint8, channels-last, pinned; four of them in turn."""
    ready = []
    for _ in range(4):
        image = torch.randint(0, 256, (batch_size, 3, SIZE, SIZE), dtype=torch.uint8)
        label = torch.randint(0, 1000, (batch_size,))
        ready.append((image.contiguous(memory_format=torch.channels_last).pin_memory(), label.pin_memory()))
    return islice(cycle(ready), count)


def converted(image):
    """Cast and normalise as people write it: three passes over memory."""
    mean, std = (
        torch.tensor(x, device=image.device).view(1, 3, 1, 1) * 255 for x in (hr.IMAGENET.mean, hr.IMAGENET.std)
    )
    return image.float().sub_(mean).div_(std).to(torch.bfloat16)


def resident(count, batch_size):
    image, label = next(host_batches(1, batch_size))
    batch = converted(image.cuda()).contiguous(memory_format=torch.channels_last), label.cuda()
    return (batch for _ in range(count))


def prefetched(count, batch_size):
    return hr.DevicePrefetcher(host_batches(count, batch_size), "cuda", dtype="bfloat16", normalize=hr.IMAGENET)


def plain_to(count, batch_size):
    for image, label in host_batches(count, batch_size):
        yield converted(image.to("cuda", non_blocking=True)), label.to("cuda", non_blocking=True)


def apex_like(count, batch_size):
    """Copy one batch ahead on a side stream, from the training thread."""
    stream, source = torch.cuda.Stream(), host_batches(count, batch_size)

    def preload():
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


SOURCES = {
    "batch on the device": resident,
    "DevicePrefetcher": prefetched,
    "Apex-like prefetcher": apex_like,
    "plain .to(non_blocking)": plain_to,
}


def print_steps(args):
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True

    def step_ms(make):
        return train(model, make(args.warm_up + args.steps, args.batch_size), args.warm_up, args.steps, "cuda")

    found = medians(in_turns({name: partial(step_ms, make) for name, make in SOURCES.items()}, args.rounds))
    print(f"\nResNet-50, bfloat16, channels-last, batch {args.batch_size}, medians of {args.rounds} rounds")
    for name, ms in found.items():
        print(f"  {name:<26}{ms:>9.2f} ms a step {ms / found['batch on the device']:>8.3f} x the floor")


def timed_ms(work, repeats):
    """Return the median milliseconds of a call, by events."""
    times = []
    for _ in range(3 + repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times[3:])


def print_copies(args):
    image, _ = next(host_batches(1, args.batch_size))
    target = torch.empty_like(image, device="cuda")
    best = image.nbytes / timed_ms(lambda: target.copy_(image, non_blocking=True), 30) / 1e6
    print(f"\nhost to device, {image.nbytes / 1e6:.1f} MB a batch\n  {'one pinned copy':<40}{best:>8.1f} GB/s")
    for name, source in {"pinned": image, "not pinned (a thread stages it)": image.clone()}.items():
        prefetcher, since = hr.DevicePrefetcher([source] * 60, "cuda"), time.perf_counter()
        for _ in prefetcher:
            torch.cuda.current_stream().synchronize()
        wall_s, copies = time.perf_counter() - since, prefetcher.stats().copies
        rate = copies.bytes / copies.copy_s / 1e9
        print(
            f"  {'DevicePrefetcher, ' + name:<40}{rate:>8.1f} GB/s {rate / best:>7.1%} of it, "
            f"{copies.bytes / wall_s / 1e9:.1f} GB/s by the wall clock"
        )


def print_fused(args):
    image = next(host_batches(1, args.batch_size))[0].cuda()
    big = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(big)
    copy = 2 * big.nbytes / timed_ms(lambda: other.copy_(big), 30) / 1e6
    print(f"\ncast and normalise, {list(image.shape)}; a copy on the device moves {copy:,.0f} GB/s")
    for layout, channels_last in (("channels-last", True), ("planar", False)):
        for dtype in ("bfloat16", "float32"):
            apply = partial(Conversion(dtype, hr.IMAGENET, channels_last).apply, image)
            rate = (image.nbytes + apply().nbytes) / timed_ms(apply, 50) / 1e6
            print(f"  uint8 channels-last to {dtype:<9} {layout:<14}{rate:>9,.0f} GB/s {rate / copy:>7.1%} of a copy")
    rate = (image.nbytes * 3) / timed_ms(lambda: converted(image), 50) / 1e6
    print(f"  {'the same in torch, three passes, bfloat16':<47}{rate:>9,.0f} GB/s {rate / copy:>7.1%} of a copy")


def main():
    args = arguments(__doc__, batch_size=256, steps=60, warm_up=15, rounds=5)
    require_device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print_fused(args)
    print_copies(args)
    print_steps(args)


if __name__ == "__main__":
    main()
