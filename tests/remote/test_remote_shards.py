"""Shards of other loaders in a store: the rows of the local ones, read by ranges."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from other_shards import golden_files, write_golden, write_mds
from servers import StoreServer

import headrace as hr

FOLDERS = ("mds", "mds-zstd", "litdata", "litdata-frames", "litdata-pair")


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("where", ["s3://bucket/{}/", "s3://bucket/{}/index.json"])
def test_rows_are_those_of_local_shards(name, where, store: StoreServer, tmp_path):
    write_golden(tmp_path)
    store.objects |= golden_files()
    local = hr.open(tmp_path / name)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        remote = hr.open(where.format(name), store_options=store.options, cache=cache)
        assert list(remote.columns) == list(local.columns)
        for index in range(len(local)):
            got, expected = remote[index], local[index]
            wrong = [column for column in expected if not np.array_equal(got[column], expected[column])]
            assert not wrong


def test_opening_reads_no_images(store: StoreServer, tmp_path: Path):
    """An index is built of the table and the numbers alone, and the images of a batch come by their ranges."""
    rows = [[struct.pack("<q", number), bytes([number]) * 300_000] for number in range(20)]
    folder = write_mds(tmp_path / "mds", {"label": ("int", 8), "image": ("bytes", None)}, {"shard.00000.mds": rows})
    store.objects |= {f"mds/{path.name}": path.read_bytes() for path in folder.iterdir()}
    data = hr.open("s3://bucket/mds/", store_options=store.options, cache=tmp_path / "cache")
    assert data.column("label").tolist() == list(range(20))
    assert store.bytes_read() < 3_000_000
    again = hr.open("s3://bucket/mds/", store_options=store.options, cache=tmp_path / "cache")
    before = store.bytes_read()
    assert again.read("image", 7) == bytes([7]) * 300_000
    assert store.bytes_read() - before < 400_000
