"""Whether a remedy took effect in this process, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..guard import Guard

if TYPE_CHECKING:
    from ..probe import Probe


class Applied:
    """Writes the `applied` records of docs/doctor/evidence.md: at once when the remedy takes effect for the first time,
    since a process may be killed, and with the count when the process ends."""

    def __init__(self, probe: Probe, key: str) -> None:
        self._probe = probe
        self._key = key
        self._texts: set[str] = set()
        self._count = 0
        self.guarded = Guard(probe, f"remedy {key}")
        """For the parts of the remedy: once any has raised, it is off, and says why."""
        self._process = probe.evidence.path
        probe.last.add(self._write_count)

    def took(self, text: str = "") -> None:
        """It took effect once more. `text` says in which way; each is written once."""
        self._own()
        self._count += 1
        if self._count == 1 or text not in self._texts:
            self._texts.add(text)
            self._write(text)

    def refused(self, why: str) -> None:
        """It cannot take effect here."""
        self._own()
        if why not in self._texts:
            self._texts.add(why)
            self._probe.evidence.write(("applied", self._probe.clock.now_us(), self._key, 0, why))

    def _own(self) -> None:
        """The child of a fork counts anew, into its own evidence."""
        if self._process != self._probe.evidence.path:
            self._process = self._probe.evidence.path
            self._texts.clear()
            self._count = 0

    def _write(self, text: str) -> None:
        self._probe.evidence.write(("applied", self._probe.clock.now_us(), self._key, self._count, text))

    def _write_count(self) -> None:
        self._own()
        if self._count:
            self._write("")
