"""What is below a folder, to see what else has changed there: by programs that are not Python, or by libraries that
write without a word to it."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.doctor.probe.hands_off.folder import no_work

MOST_ENTRIES = 200_000
"""Of a larger folder nothing is listed: about a second of a local disk's time."""

Entry = tuple[int, int, int]
"""Mode, size and modification time in ns; the latter two 0 but for files."""


@dataclass(frozen=True)
class Listing:
    """One look."""

    entries: dict[str, Entry]
    why_not: str
    """Empty, or why nothing was listed."""


def listing(root: Path, besides: Path) -> Listing:
    """Of all below `root` but what is below `besides`, and what belongs to the system. Neither what symbolic links lead
    to is looked at, nor a file that our own output, and the command's, goes to."""
    entries: dict[str, Entry] = {}
    ours = {(stat.st_dev, stat.st_ino) for stat in _outputs()}
    folders, not_ours = [str(root)], {str(besides), *no_work(str(root))}
    while folders:
        for entry in _scan(folders.pop()):
            stat = _stat(entry)
            if stat is None or (stat.st_dev, stat.st_ino) in ours or entry.path in not_ours:
                continue
            if len(entries) == MOST_ENTRIES:
                return Listing({}, f"it has more than {MOST_ENTRIES} entries")
            is_file = modes.S_ISREG(stat.st_mode)
            size, time_ns = (stat.st_size, stat.st_mtime_ns) if is_file else (0, 0)
            entries[entry.path] = (stat.st_mode, size, time_ns)
            if modes.S_ISDIR(stat.st_mode):
                folders.append(entry.path)
    return Listing(entries, "")


def differences(before: Listing, after: Listing) -> list[tuple[str, str]]:
    """Paths, and what became of each: `made`, `removed` or `changed`."""
    if before.why_not or after.why_not:
        return []
    made = [(path, "made") for path in after.entries if path not in before.entries]
    removed = [(path, "removed") for path in before.entries if path not in after.entries]
    both = before.entries.keys() & after.entries.keys()
    changed = [(path, "changed") for path in both if before.entries[path] != after.entries[path]]
    return sorted(made + removed + changed)


def _outputs() -> Iterator[os.stat_result]:
    """Where our own output goes, the command's with it."""
    for descriptor in range(3):
        try:
            stat = os.fstat(descriptor)
        except OSError:
            continue
        if modes.S_ISREG(stat.st_mode):
            yield stat


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
