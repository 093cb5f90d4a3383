"""A probe in this very process, and the evidence that it wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evidence_checks import check_record

from headrace.doctor.probe.attaching import attach
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import ProbeSettings, boot_id


def settings(folder: Path, **changed: Any) -> ProbeSettings:
    """Of a session in `folder` that begins now and ends nothing, but for what is changed."""
    values: dict[str, Any] = {
        "folder": str(folder),
        "origin_us": time.monotonic_ns() // 1000,
        "origin_wall_us": time.time_ns() // 1000,
        "boot_id": boot_id(),
        "observe": True,
    }
    return ProbeSettings(**{**values, **changed})


@contextmanager
def probed(folder: Path, **changed: Any) -> Iterator[Probe]:
    """A probe that is attached meanwhile. Read its evidence afterwards."""
    its_settings = settings(folder, **changed)
    its_settings.write()
    probe = Probe(its_settings)
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
