"""Which of the files that are read to copy, and where: all of them where they fit, else what is read most for its
size."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from headrace.doctor.causes.case import Case
from headrace.doctor.quantities import size
from headrace.doctor.session.model import Place, SeenFile

ROOM = 2.0
"""How many times the files must fit into a place, so that the run has some left."""
STAGED = "headrace-staged"
"""Folder of the copies."""
_MEMORY = "/dev/shm/"


@dataclass(frozen=True)
class Files:
    """That makers read, and that are not in memory anyway."""

    sized: list[SeenFile]
    unsized: list[SeenFile]
    """Folders that were not listed to their end."""
    rest: int
    """Opens of others, of which no more is known."""

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.sized)

    @property
    def size(self) -> str:
        """In words, with what it is estimated from."""
        guessed = [one.folder for one in self.sized if one.folder is not None and one.folder.sized < one.folder.files]
        if not guessed:
            return size(self.bytes)
        sizes, files = sum(one.sized for one in guessed), sum(one.files for one in guessed)
        return f"about {size(self.bytes)} (by the sizes of {sizes:,} of {files:,} files)"

    def share(self, some: list[SeenFile]) -> float:
        """Of what is read, in these. By opens; by bytes where a file stays open while others come and go, since then
        opens say nothing of what is read."""
        every = [*self.sized, *self.unsized]
        if any(_is_held(one) for one in every):
            whole = sum(one.bytes for one in every)
            return sum(one.bytes for one in some) / whole if whole else 0.0
        whole = sum(one.opens for one in every) + self.rest
        return sum(one.opens for one in some) / whole if whole else 0.0


@dataclass(frozen=True)
class Staged:
    """Some of them, in a place that has room."""

    files: Files
    """What these are."""
    place: str
    share: float
    """Of what is read."""

    def pairs(self) -> list[list[object]]:
        """Of `changes`, docs/doctor/remedies.md: each copy by its whole path, so that no two meet."""
        return [self._pair(one) for one in self.files.sized]

    def _pair(self, one: SeenFile) -> list[object]:
        pair: list[object] = [one.path, os.path.join(self.place, STAGED, one.path.lstrip(os.sep))]
        if one.folder is None:
            return pair
        start = "**/*" if one.folder.is_deep else "*"
        ends = [""] if "" in one.folder.ends else one.folder.ends
        return [*pair, [start + glob.escape(end) for end in ends]]


def files_read(case: Case) -> Files | None:
    """None where it is not known what is read."""
    survey = case.session.survey
    if survey is None or not survey.files:
        return None
    found = [one for one in survey.files if not one.path.startswith(_MEMORY)]
    sized = [one for one in found if one.folder is None or one.folder.is_whole]
    unsized = [one for one in found if one.folder is not None and not one.folder.is_whole]
    return Files(sized, unsized, case.session.opened.rest)


def staged(case: Case, files: Files) -> Staged | None:
    """Into the first place that takes all of them, memory before disks, else into the one that takes the most. None
    where none takes any."""
    places = places_of(case)
    found = [made for place, free in places if (made := _filled(files, place, free)) is not None]
    return max(found, key=lambda one: one.share, default=None)


def places_of(case: Case) -> list[tuple[Place, float]]:
    """With the bytes that are free there."""
    survey = case.session.survey
    return [] if survey is None else [(one, _free_bytes(case, one)) for one in survey.places]


def _filled(files: Files, place: Place, free: float) -> Staged | None:
    some, left = [], free / ROOM
    for one in sorted(files.sized, key=lambda one: -files.share([one]) / one.bytes if one.bytes else 0.0):
        if one.bytes <= left:
            some.append(one)
            left -= one.bytes
    if not some:
        return None
    return Staged(Files(some, [], 0), place.path, files.share(some))


def _is_held(one: SeenFile) -> bool:
    """One that is opened for each of its reads is seen open less often than it is opened."""
    return one.folder is None and one.seen > one.opens


def _free_bytes(case: Case, place: Place) -> float:
    """What lies in memory must fit beside what the run itself holds."""
    memory = [] if case.host is None or place.kind != "memory" else case.host.known("memory_available_bytes")
    return min([place.free_bytes, *memory])
