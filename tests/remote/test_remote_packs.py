"""Packs of objects in a store, and packs in a store: the bytes of packs on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from moto_store import MotoStore

import headrace as hr
from headrace.pack import PackOptions, pack

OPTIONS = PackOptions(max_shard_bytes=200_000)
"""Several shards of the photographs."""


@pytest.fixture
def source(moto: MotoStore, photos: Path, own_cache: Path) -> MotoStore:
    """The photographs, as loose objects."""
    moto.put_all({f"train/{path.relative_to(photos)}": path.read_bytes() for path in photos.rglob("*.jpg")})
    return moto


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".tar", ".json")}


@pytest.fixture
def local(photos: Path, tmp_path: Path) -> dict[str, bytes]:
    """Files of the pack of the same photographs on a disk."""
    pack(hr.open(str(photos)), tmp_path / "local", OPTIONS)
    return bytes_of(tmp_path / "local")


def test_loose_objects_make_the_pack_of_loose_files(source: MotoStore, local: dict[str, bytes], tmp_path: Path) -> None:
    dataset = hr.open(source.address("train/"), store_options=source.options)
    source.answered.clear()
    pack(dataset, tmp_path / "pack", OPTIONS)
    assert bytes_of(tmp_path / "pack") == local
    tried = len(dataset)  # all of so few
    assert len(source.answered) == tried + len(dataset), "sizes are those of the listing"
