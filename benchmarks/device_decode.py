"""Images decoded, cut and resized on the device, compared with the core: rate, and levels of difference.

    python benchmarks/device_decode.py PHOTOS [--device cuda] [--images 2000] [--batch 256] [--size 224]

Prints images/s of `decode="core"` with few and with all threads and of `decode="device"`, in turns, and by how many
levels the device's images differ. torchvision's nvJPEG decoder and DALI run as well if they are installed. With
`--device cpu`, nvImageCodec's CPU backend rehearses all of it but the hardware's pixels.
"""

import time
from functools import partial

import numpy as np
import torch
from harness import arguments, cycled, finish_device, in_turns, jpegs, medians

import headrace as hr


def own_batches(paths, args, decode, threads=None):
    return hr.Loader(
        paths, {"image": hr.Image(dct_scaling=False)}, view=hr.RandomResizedCrop(args.size, flip=0.5),
        batch_size=args.batch, seed=0, device=args.device, decode=decode, threads=threads,
    )  # fmt: skip


def torchvision_batches(paths, args):
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomResizedCrop(args.size, antialias=True), v2.RandomHorizontalFlip()])
    for start in range(0, len(paths), args.batch):
        files = [read_file(path) for path in paths[start : start + args.batch]]
        images = decode_jpeg(files, mode=ImageReadMode.RGB, device=args.device)
        yield torch.stack([crop(image) for image in images])


def dali_batches(paths, args):
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=args.batch, num_threads=4, device_id=0)
    def pipeline():
        encoded, _ = fn.readers.file(files=paths, name="files")
        images = fn.decoders.image_random_crop(encoded, device="mixed")
        images = fn.resize(images, size=(args.size, args.size), antialias=True)
        return fn.flip(images, horizontal=fn.random.coin_flip())

    yield from DALIGenericIterator(pipeline(), ["image"], reader_name="files")


def rate(make, paths, args):
    """Return images/s after the first two batches, each finished on the device."""
    for number, _ in enumerate(make(paths, args)):
        finish_device(args.device)
        if number == 1:
            began = time.perf_counter()
    return (number - 1) * args.batch / (time.perf_counter() - began)


def levels(paths, args):
    """Return how the device's images differ from the core's."""
    pairs = zip(own_batches(paths, args, "device"), own_batches(paths, args, "core"), strict=True)
    apart = np.concatenate([(a["image"].int() - b["image"].int()).abs().flatten().cpu().numpy() for a, b in pairs])
    most = np.quantile(apart, 0.999)
    return f"99.9 % within {most:.0f} levels, at most {apart.max()}, {np.mean(apart == 0):.1%} equal"


def main():
    args = arguments(__doc__, "photos", device="cuda", images=8192, batch=256, size=224, rounds=3)
    paths = cycled(list(map(str, jpegs(args.photos))), args.images)
    ways = {
        "headrace, core, 4 threads": partial(own_batches, decode="core", threads=4),
        "headrace, core, all threads": partial(own_batches, decode="core"),
        "headrace, device": partial(own_batches, decode="device"),
    }
    if args.device != "cpu":
        for name, make in {"torchvision, nvJPEG": torchvision_batches, "DALI, mixed": dali_batches}.items():
            try:
                next(make(paths, args))
                ways[name] = make
            except ImportError as error:
                print(f"{name}: not installed ({error.name})")
    cases = {name: partial(rate, make, paths, args) for name, make in ways.items()}
    for name, images_per_s in medians(in_turns(cases, args.rounds, warm_up=1)).items():
        print(f"{name:30} {images_per_s:10,.0f} images/s")
    print(levels(paths[: 4 * args.batch], args))


if __name__ == "__main__":
    main()
