"""Packs of objects in a store, and packs in a store: the bytes of packs on a disk."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from moto_store import MotoStore
from processes import run_python, start_python
from typer.testing import CliRunner

import headrace as hr
from headrace.errors import HeadraceError, NotFoundError, UsageError
from headrace.pack import PackOptions, describe, merge, pack, verify
from headrace.tools.command_line import app

OPTIONS = PackOptions(max_shard_bytes=200_000)
"""Several shards of the photographs."""


@pytest.fixture
def store(moto: MotoStore, own_cache: Path) -> MotoStore:
    return moto


@pytest.fixture
def source(store: MotoStore, photos: Path) -> MotoStore:
    """The photographs, as loose objects."""
    store.put_all({f"train/{path.relative_to(photos)}": path.read_bytes() for path in photos.rglob("*.jpg")})
    return store


@pytest.fixture
def local(photos: Path, tmp_path: Path) -> dict[str, bytes]:
    """Files of the pack of the same photographs on a disk."""
    pack(hr.open(str(photos)), tmp_path / "local", OPTIONS)
    return bytes_of(tmp_path / "local")


def bytes_of(folder: Path) -> dict[str, bytes]:
    ends = (".tar", ".json", "columns.headrace")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(ends)}


def shards_of(local: dict[str, bytes]) -> int:
    return sum(name.endswith(".tar") for name in local)


def objects_of(store: MotoStore) -> dict[str, bytes]:
    """Objects of the pack `packed`, without its index."""
    listed = store.s3.list_objects_v2(Bucket=store.bucket, Prefix="packed/").get("Contents", [])
    names = [each["Key"].removeprefix("packed/") for each in listed]
    return {name: content(store, name) for name in names if name != "index.headrace"}


def content(store: MotoStore, name: str) -> bytes:
    data: bytes = store.s3.get_object(Bucket=store.bucket, Key=f"packed/{name}")["Body"].read()
    return data


def packed(store: MotoStore, photos: Path, **how: object) -> str:
    to = store.address("packed/")
    pack(hr.open(str(photos)), to, OPTIONS, store_options=store.options, **how)
    return to


def test_loose_objects_make_the_pack_of_loose_files(source: MotoStore, local: dict[str, bytes], tmp_path: Path) -> None:
    dataset = hr.open(source.address("train/"), store_options=source.options)
    source.answered.clear()
    pack(dataset, tmp_path / "pack", OPTIONS)
    assert bytes_of(tmp_path / "pack") == local
    tried = len(dataset)  # all of so few
    assert len(source.answered) == tried + len(dataset), "the listing states the sizes"
    source.answered.clear()
    pack(dataset, source.address("packed"), OPTIONS, store_options=source.options)
    assert not [one for one in source.answered if one.method == "GET" and ".tar" in one.target], (
        "they were just written"
    )
    assert objects_of(source) == local


def test_a_pack_in_a_store_opens_by_its_merged_index(
    store: MotoStore, photos: Path, local: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 0):
        with pytest.raises((HeadraceError, NotFoundError), match=r"missing|expected a pack"):
            merge(store.address("packed"), store_options=store.options)
        to = packed(store, photos, part=(number, 2))
    assert objects_of(store) == local
    assert merge(to, store_options=store.options) == shards_of(local)
    here = content(store, "index.headrace")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "elsewhere"))
    assert merge(to, store_options=store.options) == shards_of(local)
    assert content(store, "index.headrace") == here, "another machine scans the tars to the same index"
    store.answered.clear()
    tars = hr.open(f"{to}shard-*.tar", index=f"{to}index.headrace", store_options=store.options)
    assert not [one for one in store.answered if ".tar" in one.target], "the index is enough"
    store.answered.clear()
    whole = hr.open(to, store_options=store.options)
    assert not [one for one in store.answered if ".tar" in one.target], "the listing names the index"
    assert (whole.fingerprint, whole.classes) == (tars.fingerprint, hr.open(photos).classes)
    options = {"view": hr.RandomResizedCrop(64), "batch_size": 20, "seed": 3, "output": "numpy"}
    for theirs, ours in zip(hr.Loader(hr.open(str(photos)), **options), hr.Loader(tars, **options), strict=True):
        np.testing.assert_array_equal(theirs["image"], ours["image"])
        np.testing.assert_array_equal(theirs["label"], ours["label"])


@pytest.mark.long
def test_a_flipped_byte_of_an_object_is_found_and_its_member_named(store: MotoStore, photos: Path) -> None:
    to = packed(store, photos)
    assert verify(to, store_options=store.options) == []
    for name, at, where in (
        ("shard-000001.tar", 600, "member 'class0/"),
        ("shard-000002.json", 30, "shard-000002.json"),
        ("columns.headrace", 900, "columns.headrace"),
        ("index.headrace", 900, "index.headrace"),
    ):
        whole = content(store, name)
        store.put(f"packed/{name}", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        (wrong,) = verify(to, store_options=store.options)
        assert store.address(f"packed/{name.partition('.')[0]}") in wrong
        assert where in wrong
        store.put(f"packed/{name}", whole)
    store.s3.delete_object(Bucket=store.bucket, Key="packed/shard-000003.tar")
    assert verify(to, store_options=store.options) == [f"{to}shard-000003.tar: missing; run pack again"]
    summary = describe(to, store_options=store.options)
    assert summary.shards == summary.expected - 1


@pytest.mark.long
def test_the_commands_take_addresses(
    source: MotoStore, local: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.in_environment(monkeypatch)
    to = source.address("packed")
    for arguments in (["pack", source.address("train/"), to, "--max-shard", "200kB"], ["verify", to], ["info", to]):
        done = CliRunner().invoke(app, [*arguments, "--json", str(tmp_path / "out.json")], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out.json").read_text())["shards"] == shards_of(local)
    assert objects_of(source) == local
    assert list(hr.open(to).keys) == list(hr.open(source.address("packed/shard-*.tar")).keys)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    done = CliRunner().invoke(app, ["merge", to, "--endpoint", source.endpoint], catch_exceptions=False)
    assert f"{to}: all {shards_of(local)} shards, indexed" in done.output


def test_the_endpoint_of_a_list_on_a_disk(
    source: MotoStore, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.in_environment(monkeypatch)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    names = [str(path.relative_to(photos)) for path in sorted(photos.rglob("*.jpg"))[:3]]
    (tmp_path / "list.csv").write_text("image\n" + "".join(f"{source.address('train/' + name)}\n" for name in names))
    to, endpoint = str(tmp_path / "pack"), ["--endpoint", source.endpoint]
    done = CliRunner().invoke(app, ["pack", str(tmp_path / "list.csv"), to, *endpoint], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert describe(to).samples == 3
    with pytest.raises(UsageError, match="store_options"):
        CliRunner().invoke(app, ["pack", str(photos), to, *endpoint], catch_exceptions=False)


def test_where_no_pack_can_be_written(source: MotoStore, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a folder or a bucket"):
        pack(hr.open(str(photos)), "https://host/packed", OPTIONS)
    with pytest.raises(UsageError, match="expected a folder or a bucket"):
        pack(hr.open(str(photos)), "hf://datasets/owner/name/packed", OPTIONS)
    dataset = hr.open(source.address("train/"), store_options=source.options)
    for to in ("train", "train/packed", ""):
        with pytest.raises(UsageError, match="apart"):
            pack(dataset, source.address(to), OPTIONS, store_options=source.options)
    loose = hr.open(source.address("train/class0/*.jpg"), store_options=source.options)
    pack(loose, source.address("train/class0/packed"), OPTIONS, store_options=source.options)


SCRIPT = """
    import sys, headrace as hr
    from headrace.pack import PackOptions, pack
    pack(hr.open(sys.argv[1]), sys.argv[2], PackOptions(max_shard_bytes=200_000), threads=2,
         tick=lambda *_: print("sample", flush=True))
"""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= 1 else ()) for seed in range(20)]
)
def test_a_killed_pack_in_a_store_goes_on_to_the_same_bytes(
    store: MotoStore, photos: Path, local: dict[str, bytes], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.in_environment(monkeypatch)
    rng, to = random.Random(seed), store.address("packed")
    with start_python(SCRIPT, photos, to) as process:
        for _ in range(rng.randrange(50)):
            process.stdout.readline()
        time.sleep(rng.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = objects_of(store)
    assert before.items() <= local.items(), "an object appears only when it is complete"
    complete = {name for name in before if name.endswith(".tar")}
    assert all(name.replace(".tar", ".json") in before for name in complete)
    store.answered.clear()
    code, _, error = run_python(SCRIPT, photos, to)
    assert code == 0, error
    assert objects_of(store) == local
    put = {os.path.basename(one.target) for one in store.answered if one.method == "PUT"}
    assert not put & complete, "a finished shard was written again"


ON_RAY = """
    import os, sys
    os.environ |= {"RAY_TMPDIR": sys.argv[1], "RAY_USAGE_STATS_ENABLED": "0"}
    import ray
    import headrace as hr
    from headrace.pack import PackOptions, pack_on_ray

    ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, logging_level="warning")
    pack_on_ray(hr.open(sys.argv[2]), sys.argv[3], PackOptions(max_shard_bytes=200_000))
    assert ray.is_initialized(), "a connection of the caller's stays"
    ray.shutdown()
"""


@pytest.mark.alone
@pytest.mark.long
def test_nodes_of_ray_pack_loose_objects_into_a_store(
    source: MotoStore, local: dict[str, bytes], ray_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    source.in_environment(monkeypatch)
    with start_python(
        ON_RAY, ray_folder, source.address("train/"), source.address("packed"), warnings="default"
    ) as process:
        out, error = process.communicate()
    assert process.returncode == 0, out + error
    assert objects_of(source) == local
    assert content(source, "index.headrace")
