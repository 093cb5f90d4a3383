"""Measure one peer on a folder of JPEGs; prints one line of JSON. Runs in the peers' own environment.

    python peer.py PEER PHOTOS [--recipe train|validate] [--workers 2] [--batch 256] [--samples 6000]

PEER: pillow, torchvision-uint8, torchvision-float32, dali-uint8, dali-float32, turboloader-float32.
train is RandomResizedCrop(224) + flip, validate is Resize(256) + CenterCrop(224); all antialiased.
"""

import argparse
import json
import random
import resource
import tarfile
import tempfile
import time
from pathlib import Path

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def cpu_s():
    """CPU seconds of this process and of the workers that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def measure(batches, size_of, warm):
    """Images a second, and seconds to the first batch. Counting begins after `warm` batches."""
    begin = time.perf_counter()
    start = first = None
    count = 0
    for index, batch in enumerate(batches):
        if first is None:
            first = time.perf_counter() - begin
        if index == warm:
            start, count = time.perf_counter(), 0
        count += size_of(batch)
    return {"images_per_s": count / (time.perf_counter() - start), "first_batch_s": first}


def torch_loader(args, files):
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    if args.recipe == "train":
        steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    else:
        steps = [v2.Resize(256, antialias=True), v2.CenterCrop(224)]
    if args.peer == "pillow":
        from PIL import Image

        steps += [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]

        def decode(path):
            return Image.open(path).convert("RGB")
    else:
        if args.peer.endswith("float32"):
            steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]

        def decode(path):
            return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)

    then = v2.Compose(steps)

    class Photos(Dataset):
        def __len__(self):
            return args.samples + args.warm * args.batch

        def __getitem__(self, index):
            return then(decode(files[index % len(files)])), index % 100

    loader = DataLoader(Photos(), batch_size=args.batch, num_workers=args.workers, shuffle=True, drop_last=True)
    return measure(loader, lambda batch: len(batch[0]), args.warm)


def dali(args, files):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None, prefetch_queue_depth=2)
    def pipeline():
        encoded, label = fn.readers.file(file_root=args.photos, random_shuffle=True)
        triangle = types.INTERP_TRIANGULAR
        if args.recipe == "train":
            image = fn.decoders.image_random_crop(
                encoded, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
            )
            image = fn.resize(image, resize_x=224, resize_y=224, interp_type=triangle)
            mirror = fn.random.coin_flip()
        else:
            image = fn.decoders.image(encoded, device="cpu")
            image = fn.resize(image, resize_shorter=256, interp_type=triangle)
            image = fn.crop(image, crop=(224, 224))
            mirror = 0
        if args.peer == "dali-float32":
            mean, std = [255 * m for m in MEAN], [255 * s for s in STD]
            return fn.crop_mirror_normalize(image, dtype=types.FLOAT, mean=mean, std=std, mirror=mirror), label
        return (fn.flip(image, horizontal=mirror) if args.recipe == "train" else image), label

    pipe = pipeline()
    pipe.build()
    batches = args.samples // args.batch + args.warm
    return measure((pipe.run() for _ in range(batches)), lambda batch: args.batch, args.warm)


def turboloader(args, files):
    import turboloader as turbo

    if args.recipe == "validate":
        raise SystemExit("turboloader has no Resize + CenterCrop for training tensors; not comparable")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photos.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for file in files:
                tar.add(file, arcname=Path(file).name)
        loader = turbo.DataLoader(
            str(path),
            batch_size=args.batch,
            num_workers=args.workers,
            shuffle=True,
            image_size=224,
            drop_last=True,
            output_format="pytorch",
            transform=turbo.ImageNetNormalize(),
            train_aug=True,
            antialias=True,
        )

        def epochs():
            for epoch in range(args.samples // len(files) + 2):
                loader.set_epoch(epoch)
                yield from loader

        return measure(epochs(), lambda batch: args.batch, len(files) // args.batch)


PEERS = {
    "pillow": torch_loader,
    "torchvision-uint8": torch_loader,
    "torchvision-float32": torch_loader,
    "dali-uint8": dali,
    "dali-float32": dali,
    "turboloader-float32": turboloader,
}


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("peer", choices=PEERS)
    ask.add_argument("photos")
    ask.add_argument("--recipe", choices=["train", "validate"], default="train")
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--batch", type=int, default=256)
    ask.add_argument("--samples", type=int, default=6000)
    ask.add_argument("--warm", type=int, default=6)
    args = ask.parse_args()
    random.seed(0)
    files = sorted(str(path) for path in Path(args.photos).rglob("*.jpg"))
    before = cpu_s()
    result = PEERS[args.peer](args, files)
    images = args.samples + args.warm * args.batch
    print(json.dumps({"name": args.peer, "cpu_ms_per_image": (cpu_s() - before) / images * 1e3, **result}))


if __name__ == "__main__":
    main()
