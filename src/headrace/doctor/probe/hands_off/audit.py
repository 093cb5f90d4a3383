"""Audit events of Python that announce a change of the file system, and what each changes.

They are listed in https://docs.python.org/3/library/audit_events.html. `os.replace` announces `os.rename`, `os.unlink`
announces `os.remove`, and what shutil and pathlib do comes as the calls that they make.
"""

from __future__ import annotations

import os

from .journal import UndoJournal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable

    Change = Callable[..., None]

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
"""Flags that a file has unless it is only read."""
CHANGING = WRITES & ~os.O_CREAT
NO_FOLDER = -1
"""Value of a `dir_fd` that was not given."""


def audit_hook(active: Callable[[], UndoJournal | None]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook. Python calls it for everything, `id()` included, hence one look-up and out."""
    changes, reads = CHANGES, _reads

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event in changes and not (event == "open" and reads(arguments)):
            journal = active()
            if journal is not None:
                for change in changes[event]:
                    journal.guarded(change, journal, *arguments)

    return audited


def _reads(arguments: tuple[Any, ...], writes: int = WRITES) -> bool:
    """Return whether an open can change nothing. The file of a descriptor was opened before.

    An exception here would forbid what is announced, and anybody may announce an event of this name, with any
    arguments, even when no globals are left.
    """
    if len(arguments) != 3 or isinstance(arguments[0], int):
        return True
    return not isinstance(arguments[2], int) or not arguments[2] & writes


def _open(journal: UndoJournal, path: Any, mode: str | None, flags: int) -> None:
    """Record an open for writing. Where it is not certain that a file is meant, it must stay at its path."""
    names = list(_candidates(path, mode))
    for name in names:
        place = journal.place(name, follow=True)
        if place is None:
            continue
        if flags & os.O_CREAT and (flags & os.O_EXCL or not flags & CHANGING):
            journal.makes(place)
        elif flags & os.O_TRUNC:
            (journal.empties if len(names) == 1 else journal.writes)(place)
        elif flags & os.O_APPEND:
            journal.appends(place)
        else:
            journal.writes(place)


def _candidates(path: Any, mode: str | None) -> Iterator[str]:
    """Yield the paths that may be meant: `os.open` does not announce its `dir_fd`, which may be any open folder.

    A record of a path that is not meant is written in vain.
    """
    text = os.fsdecode(path)
    yield text
    if mode is None and not os.path.isabs(text):
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                folder = os.readlink(f"/proc/self/fd/{descriptor}")
            except OSError:
                continue
            if os.path.isdir(folder):
                yield os.path.join(folder, text)


def _rename(journal: UndoJournal, source: Any, target: Any, source_folder: int, target_folder: int) -> None:
    old, new = (
        journal.place(_named(path, folder), follow=False)
        for path, folder in ((source, source_folder), (target, target_folder))
    )
    if old is not None:
        to = os.path.abspath(_named(target, target_folder)) if new is None else new
        journal.moves(old, to, is_covered=new is not None)
    elif new is not None:
        journal.removes(new)


def _connect(journal: UndoJournal, database: Any) -> None:
    """Record a database of sqlite3, which writes to it by itself, and to files next to it."""
    if isinstance(database, int):
        return
    text = os.fsdecode(database)
    if text.startswith("file:"):  # a URI of SQLite: `file:path`, `file:///path` or `file://localhost/path`
        from urllib.parse import unquote

        text = text[len("file:") :].partition("#")[0].partition("?")[0]
        text = unquote("/" + text[2:].partition("/")[2] if text.startswith("//") else text)
    place = None if text in ("", ":memory:") else journal.place(text, follow=True)
    if place is not None:
        journal.writes(place)
        for suffix in ("-journal", "-wal", "-shm"):
            journal.writes(place + suffix)


def _named(path: Any, folder: int) -> str:
    """Return the path that a name in a folder, or an open file, stands for."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    text = os.fsdecode(path)
    if folder == NO_FOLDER or os.path.isabs(text):
        return text
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)


def _of_entry(
    change: Callable[[UndoJournal, str], None], path_at: int, folder_at: int | None, *, follow: bool = False
) -> Change:
    """Return what records that change of a path, by where the event has it and its `dir_fd`.

    It is of the name itself, even of a symbolic link, or with `follow` of the file that it stands for.
    """

    def changed(journal: UndoJournal, *arguments: Any) -> None:
        folder = NO_FOLDER if folder_at is None else arguments[folder_at]
        place = journal.place(_named(arguments[path_at], folder), follow=follow)
        if place is not None:
            change(journal, place)

    return changed


CHANGES: dict[str, list[Change]] = {
    "open": [_open],
    "os.chmod": [_of_entry(UndoJournal.touches, 0, 2, follow=True)],
    "os.chown": [_of_entry(UndoJournal.touches, 0, 3, follow=True)],
    # Of a hard link, the file may be written through its new name.
    "os.link": [_of_entry(UndoJournal.writes, 0, 2), _of_entry(UndoJournal.makes, 1, 3)],
    "os.mkdir": [_of_entry(UndoJournal.makes, 0, 2)],
    "os.remove": [_of_entry(UndoJournal.removes, 0, 1)],
    "os.rename": [_rename],
    "os.rmdir": [_of_entry(UndoJournal.removes, 0, 1)],
    "os.symlink": [_of_entry(UndoJournal.makes, 1, 2)],
    "os.truncate": [_of_entry(UndoJournal.writes, 0, None, follow=True)],
    "os.utime": [_of_entry(UndoJournal.touches, 0, 3, follow=True)],
    "sqlite3.connect": [_connect],
}
"""Functions that take the arguments of each event."""
