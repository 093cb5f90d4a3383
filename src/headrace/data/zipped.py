"""Reads one sample's member of a zip, under the limits and with the errors that a loader has for it."""

from __future__ import annotations

import zipfile

from headrace._core import Limits
from headrace.data.columns import Location
from headrace.data.storage.open_file import OpenFile
from headrace.data.zip_reading import DamagedEntryError, ForeignHeaderError, ZipEntry, read_entry, refusal
from headrace.errors import ChangedError, DecodeError, LimitError, SampleError, UnsupportedError

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that the core inflates, so that a sample can be read here if and only if a loader can."""


def read_zipped(file: OpenFile, at: Location, *, key: str, field: str) -> bytes:
    """The data of the one member at `at`.

    Raises DecodeError, UnsupportedError or LimitError, which name the sample `key` and the `field`, ChangedError, or
    ReadError.
    """
    entry = _entry(at)

    def bad(kind: type[SampleError], why: str) -> SampleError:
        return kind(why, key=key, shard=str(file), offset=entry.offset, field=field)

    why = refusal(entry, METHODS)
    if why is not None:
        raise bad(UnsupportedError, f"zip: the member {why}")
    largest, most = max(entry.size, entry.packed), Limits().max_file_bytes
    if largest > most:
        raise bad(LimitError, f"{largest} bytes, more than max_file_bytes={most}")
    try:
        return read_entry(file, entry)
    except ForeignHeaderError as error:
        raise ChangedError(f"{file} at byte {entry.offset}: {error}: the file has changed. Open it again") from error
    except DamagedEntryError as error:
        raise bad(DecodeError, f"zip: {error}") from error


def _entry(at: Location) -> ZipEntry:
    assert at.offset is not None
    assert at.length is not None
    assert at.check is not None
    assert at.zipped is not None
    packed, room, method, crc, flags = (int(part[0]) for part in at.zipped)
    return ZipEntry(int(at.offset[0]), packed, int(at.length[0]), room, method, crc, flags, int(at.check[0]))
