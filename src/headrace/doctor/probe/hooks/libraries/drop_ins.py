"""Headrace's own drop-ins for a dataset's code: one decode, one look-up, one read, as other libraries' are."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...probe import Probe


def install_decoding(probe: Probe, decoding: ModuleType) -> None:
    """Hook headrace.compat.images.decoding."""
    probe.time_calls(decoding, "decode_image", "decode", "headrace.decode_image")


def install_reader(probe: Probe, reader: ModuleType) -> None:
    """Hook headrace.dropins.image_reader."""
    probe.time_calls(reader.ImageReader, "__call__", "decode", "headrace.ImageReader")


def install_batch(probe: Probe, batch: ModuleType) -> None:
    """Hook headrace.compat.images.batch."""
    probe.time_calls(batch, "read_images", "decode", "headrace.read_images")


def install_archives(probe: Probe, archive: ModuleType) -> None:
    """Hook headrace.dropins.indexed_archive, the base of IndexedTar and IndexedZip."""
    probe.time_calls_by_type(archive.IndexedArchive, "read", "read")
    for name in ("getmember", "__contains__"):
        probe.time_calls_by_type(archive.IndexedArchive, name, "lookup")
    probe.time_calls_by_type(archive.IndexedArchive, "_open", "scan")


def install_tar(probe: Probe, tar: ModuleType) -> None:
    """Hook headrace.dropins.indexed_tar, whose open members read as they are asked."""
    probe.time_calls(tar.IndexedTar, "extractfile", "lookup", "IndexedTar")
    probe.time_calls(tar.IndexedTar, "_read_range", "read", "IndexedTar")


def install_zip(probe: Probe, archive: ModuleType) -> None:
    """Hook headrace.dropins.indexed_zip."""
    probe.time_calls(archive.IndexedZip, "extractfile", "read", "IndexedZip")
    probe.time_calls(archive.IndexedZip, "open", "read", "IndexedZip")
