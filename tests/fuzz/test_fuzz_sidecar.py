"""Whatever a sidecar holds, an archive opens, and each read gives bytes of the archive or a named error."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from fuzzed_files import fuzzed
from fuzzed_sidecars import edited_sidecars
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dropins.indexed_archive import IndexedArchive
from headrace.errors import HeadraceError

pytestmark = pytest.mark.filterwarnings("ignore:.*got a damaged file:UserWarning")

CONTENTS = {f"{folder}/{number}.{kind}": f"{folder}{number}{kind}".encode() * 9 for folder in ("cat", "dog")
            for number in range(3) for kind in ("jpg", "cls", "json")}  # fmt: skip


@dataclass(frozen=True)
class Archive:
    path: Path
    sound: bytes
    """What is kept beside it."""

    def keep(self, sidecar: bytes) -> None:
        Path(f"{self.path}.headrace").write_bytes(sidecar)

    def open(self) -> IndexedArchive:
        return hr.IndexedTar(self.path) if self.path.suffix == ".tar" else hr.IndexedZip(self.path)


def indexed(path: Path) -> Archive:
    Archive(path, b"").open().close()
    return Archive(path, Path(f"{path}.headrace").read_bytes())


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in CONTENTS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "cat/0.jpg"
        archive.addfile(link)
    return indexed(path)


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in CONTENTS.items():
            archive.writestr(name, content)
    return indexed(path)


def read_members(archive: Archive) -> Iterator[bytes]:
    """Of every member, by its entry and by its name, the bytes; but for those that give a named error."""
    with archive.open() as opened:
        for member in opened.getmembers():
            for which in (member, member.name):
                with suppress(HeadraceError):
                    yield opened.read(which)


@fuzzed
@given(data=st.data())
def test_samples_of_a_tar(tar: Archive, data: st.DataObject) -> None:
    tar.keep(data.draw(edited_sidecars(tar.sound)))
    raw = tar.path.read_bytes()
    with suppress(HeadraceError):
        dataset = hr.open(tar.path)
        for number in range(len(dataset)):
            for value in dataset[number].values():
                assert not isinstance(value, bytes) or value in raw


@fuzzed
@given(data=st.data())
@pytest.mark.long
def test_members_of_a_tar(tar: Archive, data: st.DataObject) -> None:
    tar.keep(data.draw(edited_sidecars(tar.sound)))
    raw = tar.path.read_bytes()
    assert all(content in raw for content in read_members(tar))


@fuzzed
@given(data=st.data())
@pytest.mark.long
def test_members_of_a_zip(zipped: Archive, data: st.DataObject) -> None:
    """Their CRC is in the sidecar, so that what it says of a size or a place cannot make other bytes of them."""
    zipped.keep(data.draw(edited_sidecars(zipped.sound)))
    assert set(read_members(zipped)) <= {*CONTENTS.values(), b""}
