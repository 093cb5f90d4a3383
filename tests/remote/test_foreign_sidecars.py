"""Indices of other libraries next to tars: used where they agree with the tar, and never believed where not."""

from __future__ import annotations

import io
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, StoreServer

import headrace as hr
from headrace.data.archives import foreign_sidecars
from headrace.data.archives.tar_index import build_tar_index
from headrace.data.remote.listing import Stores
from headrace.data.storage.open_file import FilePath
from headrace.errors import ChangedError, HeadraceError
from headrace.stores.link import LinkMeter
from headrace.stores.request_planning import LinkModel

Members = dict[str, bytes]
FORMATS = {"gnu": (tarfile.GNU_FORMAT, 5), "pax": (tarfile.PAX_FORMAT, 5.25)}


def members(count: int = 60, size: int = 9000) -> Members:
    files: Members = {}
    for number in range(count):
        files |= {
            f"a/{number:04}.jpg": bytes([number % 251]) * (size + 77 * number),
            f"a/{number:04}.cls": b"%d" % number,
        }
    return files


def written(files: Members, kind: str = "gnu") -> bytes:
    form, mtime = FORMATS[kind]
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), mtime
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


def dali(data: bytes, *, moved: bool = False) -> bytes:
    """Return what DALI's wds2idx writes; `moved`: by GNU tar, where members have PAX records."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = [(member.name, member.offset_data, member.size) for member in tar if member.isreg()]
    samples: dict[str, list[str]] = {}
    for name, offset, size in found:
        offset += 1024 if moved and name != found[-1][0] else 0
        samples.setdefault(name.partition(".")[0], []).append(f"{name.partition('.')[2]} {offset} {size} {name}")
    return "\n".join([f"v1.2 {len(samples)}", *map(" ".join, samples.values()), ""]).encode()


def energon(data: bytes) -> bytes:
    """Return what Energon writes: where each sample begins, and where the last one ends."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = [member.offset for member in tar if member.name.endswith(".jpg")]
        return struct.pack(f"<{len(found) + 1}Q", *found, tar.offset)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(foreign_sidecars, "_LEAST_BYTES", 0)
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.001, 1e6, streams))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))


def put(where: str, store: StoreServer, folder: Path, files: dict[str, bytes]) -> FilePath:
    """Write these files to a folder, or a store, and return the path of the tar."""
    for name, data in files.items():
        store.objects[name] = data
        (folder / name).write_bytes(data)
    return str(folder / "t.tar") if where == "local" else Stores(store.options).path("s3://bucket/t.tar")


def same_index(one: FilePath, other: FilePath) -> None:
    (found, outline), (expected, same) = build_tar_index(one), build_tar_index(other)
    assert outline == same
    assert found.keys() == expected.keys()
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("where", ["local", "remote"])
@pytest.mark.parametrize("kind", ["gnu", "pax", "moved"])
def test_an_index_of_dali_replaces_the_scan(store: StoreServer, tmp_path: Path, where: str, kind: str) -> None:
    data = written(members(), kind.replace("moved", "pax"))
    (tmp_path / "scanned.tar").write_bytes(data)
    path = put(where, store, tmp_path, {"t.tar": data, "t.idx": dali(data, moved=kind == "moved")})
    same_index(path, str(tmp_path / "scanned.tar"))
    store.requests.clear()
    assert foreign_sidecars.listed_members(path) is not None
    if where == "remote":
        assert len(store.requests) <= 19, "its size, the sidecar, 16 headers and the end"
        opened = hr.open("s3://bucket/t.tar", store_options=store.options)
        local = hr.open(tmp_path / "scanned.tar")
        assert opened.fingerprint == local.fingerprint
        assert opened.read("jpg", 7) == local.read("jpg", 7)


def with_folder(data: bytes) -> bytes:
    info = tarfile.TarInfo("folder")
    info.type = tarfile.DIRTYPE
    return info.tobuf(tarfile.GNU_FORMAT) + data


def renamed(files: Members) -> Members:
    return {name.replace("a/00", "b/00"): data for name, data in files.items()}


STALE: dict[str, Callable[[bytes], tuple[bytes, bytes]]] = {
    "a member more": lambda data: (written(members(61)), dali(data)),
    "a member fewer": lambda data: (written(members(59)), dali(data)),
    "other sizes": lambda data: (written(members(size=9500)), dali(data)),
    "other names": lambda data: (written(renamed(members())), dali(data)),
    "a folder": lambda data: (with_folder(data), dali(with_folder(data))),
    "joined": lambda data: (data + data, dali(data)),
    "another version": lambda data: (data, dali(data).replace(b"v1.2", b"v1.1", 1)),
    "cut": lambda data: (data, dali(data)[:-40]),
    "no numbers": lambda data: (data, dali(data).replace(b" 512 ", b" ten ", 1)),
    "huge": lambda data: (data, dali(data).replace(b" 512 ", b" 99999999999999999999 ", 1)),
    "spaces": lambda _: (written({"a b.jpg": b"1"}), dali(written({"a b.jpg": b"1"}))),
}


@pytest.mark.parametrize("where", ["local", "remote"])
@pytest.mark.parametrize("why", STALE)
def test_an_index_that_disagrees_is_ignored_with_a_warning(
    store: StoreServer, tmp_path: Path, where: str, why: str
) -> None:
    data, listed = STALE[why](written(members()))
    (tmp_path / "scanned.tar").write_bytes(data)
    path = put(where, store, tmp_path, {"t.tar": data, "t.idx": listed})
    with pytest.warns(UserWarning, match=r"t\.idx: expected the members of .*t\.tar, got others"):
        same_index(path, str(tmp_path / "scanned.tar"))


@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_stale_index_that_no_sample_shows_gives_no_wrong_sample(
    store: StoreServer, tmp_path: Path, where: str
) -> None:
    """Two neighbours of one size have changed places, between the members that are looked at."""
    files = {f"{number:04}.npy": b"%04d" % number * 100 for number in range(200)}
    listed = dali(written(files))
    names = list(files)
    names[101], names[102] = names[102], names[101]
    data = written({name: files[name] for name in names})
    put(where, store, tmp_path, {"t.tar": data, "t.idx": listed})
    opened = (
        hr.open(tmp_path / "t.tar") if where == "local" else hr.open("s3://bucket/t.tar", store_options=store.options)
    )
    for number in range(200):
        if number in (101, 102):
            with pytest.raises((ChangedError, HeadraceError), match="header"):
                opened.read("npy", number)
        else:
            assert opened.read("npy", number) == b"%04d" % number * 100


def test_without_permission_to_see_what_is_missing_the_tar_is_scanned(store: StoreServer, tmp_path: Path) -> None:
    store.objects["t.tar"] = written(members())
    store.fault = lambda seen: Answer(403, "AccessDenied") if seen.key.endswith("idx") else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(hr.open("s3://bucket/t.tar", store_options=store.options)) == 60
    assert sum(seen.key.endswith("idx") for seen in store.requests) == 2


def test_offsets_of_energon_save_the_search_for_headers(store: StoreServer, tmp_path: Path) -> None:
    data = written(members(400, 40_000))
    (tmp_path / "scanned.tar").write_bytes(data)
    read: dict[str, tuple[int, int]] = {}
    right = energon(data)
    shifted = struct.pack(
        f"<{len(right) // 8}Q", *(each + 512 for each in struct.unpack(f"<{len(right) // 8}Q", right))
    )
    for name, offsets in {
        "none": None,
        "right": right,
        "wrong": shifted,
        "cut": right[:-3],
        "none again": None,
    }.items():
        files: dict[str, Any] = {"t.tar": data} if offsets is None else {"t.tar": data, "t.tar.idx": offsets}
        store.objects.clear()
        path = put("remote", store, tmp_path, files)
        store.requests.clear()
        same_index(path, str(tmp_path / "scanned.tar"))
        read[name] = len(store.requests), store.bytes_read()
    assert read["right"][0] < read["none"][0]
    assert read["right"][1] < read["none"][1] * 0.95
