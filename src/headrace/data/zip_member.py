"""One member of a zip, as the index has it."""

from __future__ import annotations

from typing import NamedTuple


class ZipMember(NamedTuple):
    """What the index knows of a member, under the names that `zipfile.ZipInfo` and `tarfile.TarInfo` have for it."""

    name: str
    file_size: int
    """Bytes of data."""
    compress_size: int
    """Bytes of it in the zip."""
    compress_type: int
    """`zipfile.ZIP_STORED`, `ZIP_DEFLATED`, …"""
    CRC: int  # as zipfile spells it
    header_offset: int
    """First byte of its local header in the zip."""
    flag_bits: int
    number: int
    """Its position among the members of the zip."""

    @property
    def filename(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return self.file_size

    def is_dir(self) -> bool:
        return self.name.endswith("/")

    def isdir(self) -> bool:
        return self.is_dir()

    def isfile(self) -> bool:
        return not self.is_dir()
