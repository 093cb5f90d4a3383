"""What lies in the folder of copies, whoever put it there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from headrace.data.storage.open_file import path_text
from headrace.errors import WriteError
from headrace.stage.sources import FOLDER


@dataclass
class Copies:
    files: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Size and time (ns) of each regular file, by relative path."""
    others: list[bytes] = field(default_factory=list)
    """Links and special files, which are never ours."""


def look(root: bytes) -> Copies:
    """Follows no link. Raises WriteError for a folder that cannot be listed."""
    copies = Copies()
    folders = [b""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    path = os.path.join(folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        if path != FOLDER:
                            folders.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        copies.files[path] = (status.st_size, status.st_mtime_ns)
                    else:
                        copies.others.append(path)
        except OSError as error:
            raise WriteError(
                f"{path_text(os.path.join(root, folder))}: could not be listed: {error.strerror}. Stage into a folder "
                f"of your own"
            ) from error
    return copies
