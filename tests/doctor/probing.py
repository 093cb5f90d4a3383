"""A probe in this very process, or in one without a doctor beside it, and the evidence that it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.doctor.attach.command import probe_environment
from headrace.doctor.probe.hooks import attach, library_hooks_of
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.probe.training.windows import StepsMeasured
from headrace.doctor.session.evidence import KINDS
from headrace.doctor.session.evidence_reader import read_session
from headrace.doctor.session.model import CommandOutcome, Session

DEADLINE_S = 500


def settings(folder: Path, **changed: Any) -> ProbeSettings:
    """Of a session in `folder` that begins now and ends nothing, but for what is changed."""
    values: dict[str, Any] = {"folder": str(folder), "boot_id": boot_id(), "observe": True}
    values |= {"origin_us": time.monotonic_ns() // 1000, "origin_wall_us": time.time_ns() // 1000}
    return ProbeSettings(**{**values, **changed})


def written(folder: Path, **changed: Any) -> ProbeSettings:
    """The settings, in the file that probes read."""
    its_settings = settings(folder, **changed)
    its_settings.write()
    return its_settings


@contextmanager
def probed(folder: Path, **changed: Any) -> Iterator[Probe]:
    """A probe that is attached meanwhile. Read its evidence afterwards."""
    probe = Probe(written(folder, **changed))
    try:
        attach(probe)
        yield probe
    finally:
        probe.detach()


def all_records(folder: Path) -> list[list[Any]]:
    """All records, in order, of one process after the other; each is compared with the schema of evidence."""
    files = sorted((folder / "evidence").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for line in lines:
        check_record(line)
    return lines


def check_record(line: list[Any]) -> None:
    """Fail where a line is not what the schema says of its kind."""
    assert line[0] in KINDS, f"no such kind of record: {line}"
    record = KINDS[line[0]]
    assert len(line) - 1 <= len(record.__struct_fields__), f"expected {record.__struct_fields__}, got {line}"
    try:
        msgspec.convert(line, record)
    except msgspec.ValidationError as error:
        raise AssertionError(f"{error} of {line}") from error


def records(folder: Path, *kinds: str) -> list[list[Any]]:
    """All records of these kinds."""
    return [line for line in all_records(folder) if line[0] in kinds]


def notes(folder: Path) -> dict[str, str]:
    """Texts by code."""
    return {code: text for _, _, code, text in records(folder, "note")}


def spans(step: list[Any]) -> list[list[Any]]:
    """Kind, offset and duration of a step record's spans; without work on a batch, which depends on the clock."""
    return [span for span in step[4] if span[0] not in "dn"]


def kinds(step: list[Any]) -> str:
    """The kinds of those spans, one letter each."""
    return "".join(kind for kind, _, _ in spans(step))


def run_probed(command: list[str], folder: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
    """Runs `command` to its end, its evidence going to `folder`, with these settings."""
    written(folder, **changed)
    environment = probe_environment(folder, os.environ)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)


def merged(folder: Path) -> Session:
    outcome = CommandOutcome(command=["train"], status=0, why="finished", duration=1_000_000)
    return read_session(folder, outcome=outcome, mode="observe")


class LibraryProbe:
    """Counts what a call does for a batch."""

    def __init__(self, folder: Path) -> None:
        self.probe = Probe(written(folder, observe=False))

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


STEPS, REPLAY = 6, 4
"""Steps of a measured run in this very process that goes through all windows."""
MEASURED: dict[str, Any] = {"observe": False, "steps": STEPS, "replay": REPLAY}
Train = Callable[[Probe], None]


def windows(folder: Path) -> list[tuple[Any, ...]]:
    """Name, first step, steps and how many settle."""
    return [tuple(window[1:5]) for window in records(folder, "window")]


def measured(folder: Path, train: Train, **changed: Any) -> None:
    """Train until the doctor ends it."""
    with probed(folder, **{**MEASURED, **changed}) as probe, pytest.raises(StepsMeasured):
        train(probe)
