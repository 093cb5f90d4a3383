"""What the system says when a file cannot be written, as an error that says what to do."""

from __future__ import annotations

import errno

from headrace.data.storage.open_file import path_text
from headrace.errors import WriteError

_NEXT = {
    errno.ENOSPC: "Free space there and run it again: what is complete is kept",
    errno.EDQUOT: "Free space, or ask for a larger quota, and run it again: what is complete is kept",
    errno.EROFS: "Write into a folder that can be written",
    errno.EACCES: "Write into a folder that you may write",
    errno.EPERM: "The file system does not allow it: write into a folder on another one",
    errno.ENAMETOOLONG: "The file system does not take names that long: write into a folder on another one",
    errno.EFBIG: "The file system, or ulimit -f, does not allow files that large",
    errno.EXDEV: "Another file system is mounted below the target: write into each by itself",
    errno.ENOTDIR: "A file is where a folder should be: write into another folder",
}


def unwritable(path: bytes, error: OSError) -> WriteError:
    hint = _NEXT.get(error.errno or 0, "Check the disk and run it again: what is complete is kept")
    return WriteError(f"{path_text(path)}: could not be written: {error.strerror}. {hint}")
