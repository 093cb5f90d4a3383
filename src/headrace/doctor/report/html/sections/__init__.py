"""The page's sections, in order. Each is None where there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable

from ..blocks import Section
from ..report import Report
from .anatomy import anatomy
from .environment import environment
from .findings import findings
from .floors import floors
from .notes import notes
from .queue import queue
from .ranks import ranks
from .remedies import remedies
from .samples import samples
from .timeline import timeline
from .waits import waits
from .workers import workers

SECTIONS: tuple[Callable[[Report], Section | None], ...] = (
    anatomy,
    remedies,
    floors,
    timeline,
    waits,
    workers,
    queue,
    ranks,
    samples,
    findings,
    environment,
    notes,
)


def sections(report: Report) -> list[Section]:
    made = [section(report) for section in SECTIONS]
    return [section for section in made if section is not None]
