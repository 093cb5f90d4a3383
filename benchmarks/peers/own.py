"""Measure Headrace on a folder or tar; prints one line of JSON, in the form of peer.py.

    python own.py PHOTOS [--recipe train|validate] [--dtype uint8|float32] [--threads 2] [--batch 256] [--samples 6000]
"""

import argparse
import json

from peer import cpu_s, measure

import headrace as hr


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos")
    ask.add_argument("--recipe", choices=["train", "validate"], default="train")
    ask.add_argument("--dtype", choices=["uint8", "float32"], default="uint8")
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--batch", type=int, default=256)
    ask.add_argument("--samples", type=int, default=6000)
    ask.add_argument("--warm", type=int, default=6)
    args = ask.parse_args()
    image = hr.Image(dtype=args.dtype, normalize=hr.IMAGENET if args.dtype == "float32" else None)
    train = hr.RandomResizedCrop(224, flip=0.5)
    dataset = hr.open(args.photos)
    loader = hr.Loader(
        dataset,
        {"image": image, "label": hr.Label()} if "label" in dataset.columns else {"image": image},
        view=train if args.recipe == "train" else [hr.Resize(256), hr.CenterCrop(224)],
        batch_size=args.batch,
        shuffle=True,
        remainder="wrap",
        threads=args.threads,
    )
    before = cpu_s()
    batches = args.samples // args.batch + args.warm

    def epochs():
        taken = 0
        while True:
            for batch in loader:
                yield batch["image"]
                taken += 1
                if taken == batches:
                    return

    result = measure(epochs(), len, args.warm)
    images = batches * args.batch
    stats = loader.stats()
    result["python_ms_per_batch"] = stats.python_s / stats.batches * 1e3
    name = f"headrace-{args.dtype}"
    print(json.dumps({"name": name, "cpu_ms_per_image": (cpu_s() - before) / images * 1e3, **result}))


if __name__ == "__main__":
    main()
