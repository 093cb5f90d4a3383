"""Rows of two cameras in parquet: Headrace beside Hugging Face datasets, `with_format("torch")` and a DataLoader.

    python benchmarks/cameras.py PHOTOS [--workers 2] [--batch-size 32] [--rounds 3] [--rows 512]

Each row has two JPEGs of 640 x 480, made of photographs below PHOTOS, and 7 numbers of an action. Both make uint8
batches [N, 2, 3, 224, 224] of the resized images. datasets decodes with Pillow, and torch resizes with antialiasing in
the workers. Rounds in turn, an epoch each; medians.
"""

import io
import tempfile
from functools import partial
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from harness import arguments, exhaust, in_turns, jpegs, machine, print_quartiles, seconds
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr

CAMERAS, SIDE = ("observation.images.left", "observation.images.right"), 224


def write(photos, path, rows):
    files = jpegs(photos)
    images = []
    for number in range(2 * rows):
        out = io.BytesIO()
        Image.open(files[number % len(files)]).convert("RGB").resize((640, 480)).save(out, "JPEG", quality=90)
        images.append({"bytes": out.getvalue(), "path": None})
    columns = {name: images[at::2] for at, name in enumerate(CAMERAS)}
    pq.write_table(pa.table(columns | {"action": [[0.5] * 7] * rows}), path, row_group_size=100)


def collated(rows):
    shrunk = [
        torch.nn.functional.interpolate(row[name][None].float(), (SIDE, SIDE), mode="bilinear", antialias=True)
        for row in rows
        for name in CAMERAS
    ]
    images = torch.cat(shrunk).round().clamp(0, 255).byte().unflatten(0, (-1, 2))
    return {"images": images, "action": torch.stack([row["action"] for row in rows])}


def of_datasets(path, args):
    features = datasets.Features(
        {name: datasets.Image() for name in CAMERAS} | {"action": datasets.Sequence(datasets.Value("float64"))}
    )
    data = datasets.Dataset.from_parquet(str(path), features=features, cache_dir=str(path.parent / "cache"))
    options = {"num_workers": args.workers, "shuffle": True, "persistent_workers": True, "collate_fn": collated}
    return DataLoader(data.with_format("torch"), args.batch_size, **options)


def of_headrace(path, args):
    fields = {"images": hr.Images(count=2, source="observation.images.*"), "action": hr.Array()}
    options = {"batch_size": args.batch_size, "shuffle": True, "threads": args.workers}
    return hr.Loader(path, fields, view=hr.Resize((SIDE, SIDE)), **options)


def rate(loader, rows):
    return rows / seconds(lambda: exhaust(loader))


def main():
    args = arguments(__doc__, "photos", workers=2, batch_size=32, rounds=3, rows=512)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.parquet"
        write(args.photos, path, args.rows)
        sides = {"Headrace": of_headrace(path, args), "datasets, DataLoader": of_datasets(path, args)}
        print(machine())
        cases = {side: partial(rate, loader, args.rows) for side, loader in sides.items()}
        print_quartiles(in_turns(cases, args.rounds, warm_up=1), "rows/s", more_is_better=True)


if __name__ == "__main__":
    main()
