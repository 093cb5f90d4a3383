"""h5py. A read decompresses whole chunks, so that a sample may cost many times its own bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .paths import counted

if TYPE_CHECKING:
    from ...probe import Probe


def install_files(probe: Probe, files: Any) -> None:
    probe.patches.replace(files, "make_fid", counted(probe, "name", _is_reading))
    probe.time_calls(files, "make_fid", "scan", "h5py open")


def _is_reading(args: Any, kwargs: Any) -> bool:
    """h5py reads where no mode is given."""
    return (args[1] if len(args) > 1 else kwargs.get("mode")) in ("r", None)


def install_groups(probe: Probe, group: Any) -> None:
    probe.time_calls(group.Group, "__getitem__", "lookup", "h5py group")


def install_datasets(probe: Probe, dataset: Any) -> None:
    probe.time_calls(dataset.Dataset, "__getitem__", "read", "h5py")
    probe.time_calls(dataset.Dataset, "read_direct", "read", "h5py")
