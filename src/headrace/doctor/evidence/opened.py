"""Files that were opened to be read while batches were made: of one process, and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.doctor.probe.opened_files import MOST_HASHES
from headrace.doctor.session import evidence_records
from headrace.doctor.session.model import Opened, OpenedFile, OpenedFolder

_HASHES = 1 << 32


@dataclass
class _Folder:
    is_deep: bool = False
    opens: int = 0
    ends: set[str] = field(default_factory=set)
    hashes: set[int] = field(default_factory=set)

    def absorb(self, other: _Folder) -> None:
        self.is_deep |= other.is_deep
        self.opens += other.opens
        self.ends |= other.ends
        self.hashes |= other.hashes


class OpenedSide:
    """Gathers the `opened` records of docs/doctor/evidence.md."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.folders: dict[str, _Folder] = {}
        self.rest = 0

    def take(self, record: evidence_records.Opened, names: dict[int, str]) -> None:
        """What a name that was lost stands for is left out."""
        for name, opens in record.files:
            if name in names:
                self.files[names[name]] += opens
        for name, opens, is_deep, ends, hashes in record.folders:
            if name in names:
                self._add(names[name], _Folder(bool(is_deep), opens, set(ends), set(hashes)))
        self.rest += record.rest

    def _add(self, path: str, folder: _Folder) -> None:
        self.folders.setdefault(path, _Folder()).absorb(folder)

    def absorb(self, other: OpenedSide) -> None:
        self.files.update(other.files)
        for path, folder in other.folders.items():
            self._add(path, folder)
        self.rest += other.rest


def opened(sides: Iterable[OpenedSide]) -> Opened:
    """Of all processes. What lies in a folder that some process told as a whole is a part of that one."""
    whole = OpenedSide()
    for side in sides:
        whole.absorb(side)
    folders = _outermost(whole.folders)
    return Opened(
        files=[OpenedFile(path, opens) for path, opens in whole.files.most_common()],
        folders=[_finished(path, one) for path, one in sorted(folders.items(), key=lambda item: -item[1].opens)],
        rest=whole.rest,
    )


def _outermost(folders: dict[str, _Folder]) -> dict[str, _Folder]:
    deep = [path for path, one in folders.items() if one.is_deep]
    found: dict[str, _Folder] = {}
    for path, one in folders.items():
        above = min((it for it in deep if path == it or path.startswith(f"{it}/")), key=len, default=path)
        found.setdefault(above, _Folder()).absorb(one)
    return found


def _finished(path: str, folder: _Folder) -> OpenedFolder:
    least = sorted(folder.hashes)[:MOST_HASHES]
    is_exact = len(least) < MOST_HASHES
    # Of many values that are spread evenly, the n-th least lies where n parts of the range are passed.
    names = len(least) if is_exact else round((len(least) - 1) * _HASHES / max(least[-1], 1))
    return OpenedFolder(path, folder.opens, names, is_exact, folder.is_deep, sorted(folder.ends))
