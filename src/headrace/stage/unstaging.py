"""`unstage`: removes copies, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from headrace.data.staging.copying import remove_copy
from headrace.data.staging.journal import Held, held
from headrace.data.storage.file_writing import Folders
from headrace.data.storage.open_file import path_text
from headrace.errors import NotFoundError
from headrace.stage.copies import look
from headrace.stage.plan import is_index_of
from headrace.stage.records import Record
from headrace.stage.report import Unstaged
from headrace.stage.sources import FOLDER


def unstage(to: str, *, force: bool = False) -> Unstaged:
    """Removes the copies that `stage` has made in the folder `to`, the indices that were built beside them, and the
    folders that this leaves empty; `to` itself if staging made it.

    A copy that was written since then stays, with its entry in the journal, unless `force`. What somebody else put
    there stays in any case, and nothing is removed through a link.

    Raises NotFoundError where nothing is staged, or WriteError: another process stages there, the journal is damaged,
    or a file cannot be removed.
    """
    report = Unstaged(os.path.abspath(to))
    root = os.fsencode(report.to)
    if not os.path.isdir(os.path.join(root, FOLDER)):
        raise NotFoundError(f"{report.to}: expected a folder that was staged into, got none. Check the path")
    with held(root, wait=False) as folder:
        _remove_copies(folder, report, force=force)
        if not report.left:
            folder.journal.remove()
    return report


def _remove_copies(folder: Held, report: Unstaged, *, force: bool) -> None:
    known = folder.journal.known
    removed = {record.path: record for record in known.files.values() if _remove(folder, record, report, force=force)}
    for path in look(folder.folders.root.path).files:
        if is_index_of(path, removed):
            remove_copy(folder.folders, path)
    _remove_folders(folder.folders, [*known.folders, *(path.rpartition(b"/")[0] for path in known.files)])


def _remove(folder: Held, record: Record, report: Unstaged, *, force: bool) -> bool:
    """Whether it is not there any more."""
    above, _, name = record.path.rpartition(b"/")
    place = folder.folders.find(above)
    found = None if place is None else place.find(name)
    if found is None:
        return place is not None
    is_ours = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (record.size, record.mtime_ns)
    if not is_ours and (not force or stat.S_ISDIR(found.st_mode)):
        report.left.append(path_text(record.path))
        return False
    remove_copy(folder.folders, record.path)
    report.removed += 1
    report.removed_bytes += found.st_size
    return True


def _remove_folders(folders: Folders, paths: Iterable[bytes]) -> None:
    """Those that are empty, the deepest first."""
    every = set()
    for path in paths:
        while path and path not in every:
            every.add(path)
            path = path.rpartition(b"/")[0]
    for path in sorted(every, key=lambda path: path.count(b"/"), reverse=True):
        above, _, name = path.rpartition(b"/")
        place = folders.find(above)
        if place is None:
            continue
        try:
            os.rmdir(name, dir_fd=place.descriptor)
        except OSError:  # not empty, gone, or a link
            continue
