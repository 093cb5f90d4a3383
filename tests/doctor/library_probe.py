"""A probe in this process whose hooks are those of libraries, and what they count of a call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.doctor.probe.attaching import library_hooks_of
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings, boot_id


class LibraryProbe:
    """Counts what a call does for a batch."""

    def __init__(self, folder: Path) -> None:
        origin_us = time.monotonic_ns() // 1000
        settings = ProbeSettings(str(folder), origin_us, time.time_ns() // 1000, boot_id())
        settings.write()
        self.probe = Probe(settings)

    def calls(self, work: Callable[[], Any]) -> dict[str, int]:
        """Calls by stage, of `work` done as a batch."""
        return {name: total[0] for name, total in self.totals(work).items()}

    def totals(self, work: Callable[[], Any]) -> dict[str, list[int]]:
        """Calls, wall and CPU ns."""
        batch = self.probe.batches.begin(0, 0)
        try:
            self.result = work()
        finally:
            self.probe.batches.end(batch)
        names = {number: name for name, number in self.probe.evidence.names.items()}
        totals = {names[number]: total for number, total in batch.totals.items()}
        del totals["other:fetch"]
        return totals

    def faults(self) -> list[str]:
        """Hooks that have gone off."""
        path = Path(self.probe.evidence.path)
        records = map(json.loads, path.read_text().splitlines()) if path.exists() else iter(())
        return [record[3] for record in records if record[:1] == ["note"] and record[2] == "hook-off"]


@contextmanager
def library_probe(folder: Path) -> Iterator[LibraryProbe]:
    """With the hooks of every library that is imported, now or meanwhile."""
    probed = LibraryProbe(folder)
    probe = probed.probe
    probe.imports.attach()
    try:
        for module, install in library_hooks_of(probe):
            probe.when_imported(module, install)
        probe.patches.rebind()
        yield probed
        assert probed.faults() == []
    finally:
        probe.detach()
