"""The photographs of `loader_data` in every form that a dataset is opened from; sample k is image k in each."""

from __future__ import annotations

import csv
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from loader_data import CLASSES, COUNT, add_member, encoded, label_of, write_folder, write_tar
from other_shards import write_mds

import headrace as hr

Rows = list[tuple[str, bytes]]


def rows() -> Rows:
    """(name, content) of each image."""
    return [(f"{number:04}.{extension}", data) for number, (extension, data) in enumerate(map(encoded, range(COUNT)))]


def labels() -> list[int]:
    return [label_of(number) for number in range(COUNT)]


def write_files(root: Path) -> Path:
    root.mkdir(parents=True)
    for name, data in rows():
        (root / name).write_bytes(data)
    return root


def write_zip(path: Path, method: int) -> Path:
    """In the layout of WebDataset, as `write_tar`."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for number, (name, data) in enumerate(rows()):
            archive.writestr(name, data)
            archive.writestr(f"{number:04}.cls", str(label_of(number)))
    return path


def write_plain_tar(path: Path) -> Path:
    """Paths with folders and no labels: what a manifest names."""
    import tarfile

    with tarfile.open(path, "w") as archive:
        for name, data in rows():
            add_member(archive, f"./deep/{name}", data)
    return path


def folder(root: Path) -> hr.Dataset:
    return hr.open(write_folder(root / "photos"))


def tar(root: Path) -> hr.Dataset:
    return hr.open(write_tar(root / "photos.tar"))


def stored_zip(root: Path) -> hr.Dataset:
    return hr.open(write_zip(root / "stored.zip", zipfile.ZIP_STORED))


def deflated_zip(root: Path) -> hr.Dataset:
    return hr.open(write_zip(root / "deflated.zip", zipfile.ZIP_DEFLATED))


def csv_and_folder(root: Path) -> hr.Dataset:
    write_files(root / "files")
    with open(root / "list.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label"])
        writer.writerows([(name, CLASSES[label]) for (name, _), label in zip(rows(), labels(), strict=True)])
    return hr.open(root / "list.csv", root=root / "files")


def parquet_and_tar(root: Path) -> hr.Dataset:
    table = pa.table({"image": [f"deep/{name}" for name, _ in rows()], "label": labels()})
    pq.write_table(table, root / "list.parquet", row_group_size=7)
    return hr.open(root / "list.parquet", root=write_plain_tar(root / "plain.tar"))


def lines_and_zip(root: Path) -> hr.Dataset:
    lines = [{"image": name, "label": label} for (name, _), label in zip(rows(), labels(), strict=True)]
    (root / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return hr.open(root / "list.jsonl", root=write_zip(root / "root.zip", zipfile.ZIP_DEFLATED))


def matched_folders(root: Path) -> hr.Dataset:
    """The label is a text file beside each image."""
    write_files(root / "images")
    (root / "labels").mkdir()
    for number, label in enumerate(labels()):
        (root / "labels" / f"{number:04}.txt").write_text(str(label))
    return hr.open({"image": root / "images", "label": root / "labels"})


def saved_dataset(root: Path) -> hr.Dataset:
    """As Hugging Face's `save_to_disk` writes it: two files, with more than one batch in each."""
    (root / "saved").mkdir()
    images = [{"bytes": data, "path": name} for name, data in rows()]
    table = pa.table({"image": images, "label": labels()})
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, start in zip(names, (0, COUNT // 3), strict=True):
        part = table.slice(start, COUNT // 3 if start == 0 else None)
        with pa.ipc.new_stream(root / "saved" / name, part.schema) as sink:
            sink.write_table(part, max_chunksize=5)
    (root / "saved/state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(CLASSES)}}
    (root / "saved/dataset_info.json").write_text(json.dumps({"features": features}))
    return hr.open(root / "saved")


def mds_shards(root: Path) -> hr.Dataset:
    """As MosaicML's `MDSWriter` writes them."""
    values = [[data, struct.pack("<q", label)] for (_, data), label in zip(rows(), labels(), strict=True)]
    shards = {"shard.00000.mds": values[:23], "shard.00001.mds": values[23:]}
    return hr.open(
        write_mds(root / "mds", {"image": ("jpeg", None), "label": ("int", 8)}, shards), cache=root / "cache"
    )


def hub_rows() -> pa.Table:
    """As the Hugging Face Hub has them, a caption beside each image."""
    images = [{"bytes": data, "path": name} for name, data in rows()]
    captions = [f"number {number}" for number in range(COUNT)]
    return pa.table({"image": images, "label": labels(), "caption": captions})


def hub_folder(root: Path) -> hr.Dataset:
    """Compressed parquet files, of a few row groups each."""
    (root / "data").mkdir()
    for number, (start, stop) in enumerate([(0, 23), (23, COUNT)]):
        part = hub_rows().slice(start, stop - start)
        pq.write_table(part, root / f"data/train-{number:05}-of-00002.parquet", row_group_size=9)
    return hr.open(root / "data", cache=root / "cache")


def arrow_files(root: Path) -> hr.Dataset:
    """Every fifth image is a file of its own."""
    write_files(root / "files")
    images = [{"bytes": None if place % 5 == 0 else data, "path": name} for place, (name, data) in enumerate(rows())]
    table = pa.table({"image": images, "label": labels()})
    paths = []
    for start, stop in [(0, 17), (17, COUNT)]:
        paths.append(root / f"{start}.arrow")
        with pa.ipc.new_file(paths[-1], table.schema) as sink:
            sink.write_table(table.slice(start, stop - start), max_chunksize=5)
    return hr.open(paths, root=root / "files")


def frame(_: Path) -> hr.Dataset:
    return hr.open(hub_rows().to_pandas())


def library_dataset(root: Path) -> hr.Dataset:
    """Mapped from a file in another order, which a selection sets right."""
    import datasets

    with pa.ipc.new_stream(root / "rows.arrow", hub_rows().schema) as sink:
        sink.write_table(hub_rows().take(list(range(COUNT))[::-1]), max_chunksize=5)
    return hr.open(datasets.Dataset.from_file(str(root / "rows.arrow")).select(list(range(COUNT))[::-1]))


def coco(root: Path) -> hr.Dataset:
    """The label is the image's own id: a sample has a list of categories."""
    write_files(root / "coco")
    images = [{"id": label, "file_name": name, "width": 1, "height": 1} for label, (name, _) in enumerate(rows())]
    (root / "instances.json").write_text(json.dumps({"images": images, "annotations": []}))
    return hr.open(root / "instances.json", root=root / "coco")


def paths_and_labels(root: Path) -> hr.Dataset:
    """As torchvision's `ImageFolder.samples`."""
    files = write_files(root / "listed")
    return hr.open([(files / name, label) for (name, _), label in zip(rows(), labels(), strict=True)])


def columns_in_memory(root: Path) -> hr.Dataset:
    return hr.open({"image": [data for _, data in rows()], "label": np.array(labels())})


def iterable_in_memory(root: Path) -> hr.Dataset:
    dicts = ({"image": data, "label": label} for (_, data), label in zip(rows(), labels(), strict=True))
    return hr.open(dicts, length=COUNT)


SOURCES: dict[str, Callable[[Path], hr.Dataset]] = {
    "folder": folder,
    "tar": tar,
    "stored zip": stored_zip,
    "deflated zip": deflated_zip,
    "csv, folder": csv_and_folder,
    "parquet, tar": parquet_and_tar,
    "jsonl, zip": lines_and_zip,
    "matched folders": matched_folders,
    "saved dataset": saved_dataset,
    "mds shards": mds_shards,
    "hub parquet": hub_folder,
    "arrow, bytes or files": arrow_files,
    "pandas": frame,
    "datasets": library_dataset,
    "coco": coco,
    "paths and labels": paths_and_labels,
    "columns in memory": columns_in_memory,
    "iterable in memory": iterable_in_memory,
}
