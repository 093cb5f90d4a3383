"""Audit events of Python that announce a change of the file system, and what each changes.

They are listed in https://docs.python.org/3/library/audit_events.html. `os.replace` announces `os.rename`, `os.unlink`
announces `os.remove`, and what shutil and pathlib do comes as the calls that they make.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable

    from .journal import UndoJournal

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
                journal.guarded(changes[event], journal, *arguments)

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
    old, new = _entry(journal, source, source_folder), _entry(journal, target, target_folder)
    if old is not None:
        to = os.path.abspath(_in(target, target_folder)) if new is None else new
        journal.moves(old, to, is_covered=new is not None)
    elif new is not None:
        journal.removes(new)


def _remove(journal: UndoJournal, path: Any, folder: int) -> None:
    place = _entry(journal, path, folder)
    if place is not None:
        journal.removes(place)


def _link(journal: UndoJournal, source: Any, target: Any, source_folder: int, target_folder: int) -> None:
    """Record a hard link: the file may be written through its new name."""
    place = _entry(journal, source, source_folder)
    if place is not None:
        journal.writes(place)
    _makes(journal, target, target_folder)


def _makes(journal: UndoJournal, path: Any, folder: int) -> None:
    place = _entry(journal, path, folder)
    if place is not None:
        journal.makes(place)


def _truncate(journal: UndoJournal, path: Any, _: int) -> None:
    place = _file(journal, path)
    if place is not None:
        journal.writes(place)


def _touch(journal: UndoJournal, path: Any, *arguments: Any) -> None:
    """Record os.chmod, os.chown and os.utime, whose last argument may be a `dir_fd`."""
    folder = arguments[-1] if arguments and isinstance(arguments[-1], int) else NO_FOLDER
    place = _file(journal, path, folder)
    if place is not None:
        journal.touches(place)


def _connect(journal: UndoJournal, database: Any) -> None:
    """Record a database of sqlite3, which writes to it by itself, and to files next to it."""
    if isinstance(database, int):
        return
    text = os.fsdecode(database)
    if text.startswith("file:"):  # a URI of SQLite: `file:path`, `file:///path` or `file://localhost/path`
        from urllib.parse import unquote, urlsplit

        text = unquote(urlsplit(text).path)
    place = None if text in ("", ":memory:") else journal.place(text, follow=True)
    if place is not None:
        journal.writes(place)
        for suffix in ("-journal", "-wal", "-shm"):
            journal.writes(place + suffix)


def _entry(journal: UndoJournal, path: Any, folder: int) -> str | None:
    """Return the place of a name, even of a symbolic link."""
    return journal.place(_in(path, folder), follow=False)


def _file(journal: UndoJournal, path: Any, folder: int = NO_FOLDER) -> str | None:
    """Return the place of the file that a name or a descriptor stands for."""
    name = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else _in(path, folder)
    return journal.place(name, follow=True)


def _in(path: Any, folder: int) -> str:
    text = os.fsdecode(path)
    if folder == NO_FOLDER or os.path.isabs(text):
        return text
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)


CHANGES: dict[str, Callable[..., None]] = {
    "open": _open,
    "os.chmod": _touch,
    "os.chown": _touch,
    "os.link": _link,
    "os.mkdir": lambda journal, path, _, folder: _makes(journal, path, folder),
    "os.remove": _remove,
    "os.rename": _rename,
    "os.rmdir": _remove,
    "os.symlink": lambda journal, _, path, folder: _makes(journal, path, folder),
    "os.truncate": _truncate,
    "os.utime": _touch,
    "sqlite3.connect": _connect,
}
"""Functions that take the arguments of each event."""
