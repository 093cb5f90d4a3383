"""tarfile. Names are looked up in a list, which the first look-up in a process fills by reading every header."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from ...stages import Stages
from ..file_libraries import is_reading
from . import reads
from .paths import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...probe import Probe


def install(probe: Probe, tarfile: Any) -> None:
    tar = tarfile.TarFile
    # Its own name for `open`, which it took before ours was there.
    probe.patches.replace(tarfile, "bltn_open", counted(probe, "file", is_reading))
    for owner in (tarfile, tar):
        probe.time_calls(owner, "open", "scan", "tarfile open")
    probe.time_calls(tar, "__init__", "scan", "tarfile open")
    probe.time_calls(tar, "getmembers", "scan", "tarfile headers")
    probe.patches.replace(tar, "__iter__", _each_timed(probe.stages, probe.stage("scan", "tarfile headers")))
    probe.time_calls(tar, "getmember", "lookup", "tarfile member")
    probe.time_calls(tar, "extractfile", "lookup", "tarfile member")
    reads.time_reads(probe, tarfile.ExFileObject, "tarfile")


def _each_timed(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Header by header, as a stream is read. Not by a hook on `next`, which a scan calls for each of its members."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(tar: Any) -> Iterator[Any]:  # noqa: N807
            members = original(tar)
            while True:
                account = stages.enter(stage)
                try:
                    member = next(members)
                except StopIteration:
                    return
                finally:
                    if account is not None:
                        account.leave()
                yield member

        return __iter__

    return make
