"""Files that a command wrote in its working directory: the folder's listings before and after. Nothing is changed."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Collection
from contextlib import suppress

MOST_LISTED = 200_000
"""Number of entries above which a folder is not listed: about a second on a local disk."""
MOST_NAMED = 5
"""Number of paths that a note names; further paths are only counted."""
Listing = dict[str, tuple[int, int, int]]
"""Entries in a folder by path: mode, size and modification time in ns, the latter two 0 except for files."""


def list_folder(root: str, session: str) -> Listing | None:
    """List the entries in `root`; None if there are too many.

    Excludes the session, and files that receive our own output. Does not follow symbolic links.
    """
    entries: Listing = {}
    outputs = [os.fstat(number) for number in range(3) if os.path.isfile(f"/dev/fd/{number}")]
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) != session]
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            with suppress(OSError):
                stat = os.lstat(path)
                if any(os.path.samestat(stat, output) for output in outputs):
                    continue
                is_file = modes.S_ISREG(stat.st_mode)
                entries[path] = (stat.st_mode, stat.st_size * is_file, stat.st_mtime_ns * is_file)
        if len(entries) > MOST_LISTED:
            return None
    return entries


def written_text(root: str, before: Listing | None, after: Listing | None) -> str:
    """Return what was created, changed and removed between two listings of `root`; empty if nothing was."""
    if before is None or after is None:
        return f"Not looked for: the working directory has more than {MOST_LISTED:,} entries."
    changes = {
        "created": after.keys() - before.keys(),
        "changed": [path for path in after if path in before and before[path] != after[path]],
        "removed": before.keys() - after.keys(),
    }
    return "; ".join(f"{how}: {_named(paths, root)}" for how, paths in changes.items() if paths)


def _named(paths: Collection[str], root: str) -> str:
    """Return the first paths, relative to the working directory, with undecodable bytes escaped."""
    shown = sorted(os.path.relpath(path, root) for path in paths)
    text = ", ".join(os.fsencode(path).decode("utf-8", "backslashreplace") for path in shown[:MOST_NAMED])
    return f"{text} and {len(shown) - MOST_NAMED} more" if shown[MOST_NAMED:] else text
