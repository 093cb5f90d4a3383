"""What a tar's members are, by their type flags: POSIX's, and those that GNU tar writes beside them."""

from __future__ import annotations

import tarfile

from headrace.unpack.members import Kind

_DUMPED_FOLDER, _VOLUME_LABEL = b"D", b"V"
"""GNU's: a folder of an incremental dump, whose data lists what it held, and `tar --label`."""
_KINDS = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, Kind.FILE),
    tarfile.DIRTYPE: Kind.FOLDER,
    _DUMPED_FOLDER: Kind.FOLDER,
    tarfile.SYMTYPE: Kind.SYMBOLIC_LINK,
    tarfile.LNKTYPE: Kind.HARD_LINK,
    _VOLUME_LABEL: Kind.LABEL,
}


def kind_of(type_flag: bytes) -> Kind:
    return _KINDS.get(type_flag, Kind.SPECIAL)
