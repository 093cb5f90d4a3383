"""zipfile. The directory at a file's end is read when it is opened; a member's bytes are inflated as they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import reads

if TYPE_CHECKING:
    from ...probe import Probe


def install(probe: Probe, zipfile: Any) -> None:
    probe.time_calls(zipfile.ZipFile, "__init__", "scan", "zipfile directory")
    probe.time_calls(zipfile.ZipFile, "open", "lookup", "zipfile member")
    probe.time_calls(zipfile.ZipFile, "read", "read", "zipfile")
    reads.time_reads(probe, zipfile.ZipExtFile, "zipfile")
