"""An archive rewritten out of its identity's sight: its old index is found again, and the error says what to do."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile

import pytest

from headrace.dropins.indexed_tar import IndexedTar
from headrace.dropins.indexed_zip import IndexedZip
from headrace.errors import ChangedError, DamagedMemberError

NAMES = [f"{number:05}" for number in range(500)]
SWAPPED = [*NAMES[:120], NAMES[121], NAMES[120], *NAMES[122:]]
BYTES = 3000


def content(name):
    return (name.encode() * BYTES)[:BYTES]


def write_tar(path, names):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = BYTES
            tar.addfile(member, io.BytesIO(content(name)))


def write_zip(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            comment = zipfile.ZipInfo(name)
            comment.extra = b"\0\0\xf0\0" + bytes(240)  # else the last 64 KiB held the whole directory
            archive.writestr(comment, content(name))


@pytest.mark.parametrize(
    ("open_archive", "write", "kind"),
    [(IndexedTar, write_tar, ChangedError), (IndexedZip, write_zip, DamagedMemberError)],
)
def test_the_error_names_the_index_to_delete(tmp_path, open_archive, write, kind):
    path = tmp_path / "archive"
    write(path, NAMES)
    open_archive(path).close()
    write(path, SWAPPED)
    archive = open_archive(path)
    with pytest.raises(kind, match=rf"delete its index \({path}\.headrace\) and open it again"):
        archive.read(NAMES[120])
    with pytest.raises(kind, match="delete its index"):
        archive.extractfile(NAMES[121]).read()
    assert archive.read(NAMES[0]) == content(NAMES[0])
    os.unlink(f"{path}.headrace")
    assert open_archive(path).read(NAMES[120]) == content(NAMES[120])
