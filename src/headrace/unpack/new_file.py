"""A file that gets its name once it is complete: without any until then where the file system can (O_TMPFILE), so that
nothing is left of it if the process is killed; else under a name in the staging folder.

Both take the time of a plain write (benchmarks/unpack.py).
"""

from __future__ import annotations

import errno
import os

from headrace.data.storage.file_writing import Folder
from headrace.unpack.staging import Staging

_LACKING = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""How file systems and kernels say that they have no O_TMPFILE (open(2))."""


class NewFile:
    """`with NewFile(folder, staging) as descriptor:` … `name_as`. Without that it is gone at the end.

    Its methods raise OSError.
    """

    def __init__(self, folder: Folder, staging: Staging, *, replace: bool, mode: int) -> None:
        """`replace`: take the place of what has the name, as an unnamed file cannot."""
        self._folder = folder
        self._staged: bytes | None = None
        self._staging = staging
        flags = os.O_RDWR | os.O_CLOEXEC
        if not replace and staging.is_spared:
            try:
                self.descriptor = os.open(b".", flags | os.O_TMPFILE, mode, dir_fd=folder.descriptor)
                return
            except OSError as error:
                if error.errno not in _LACKING:
                    raise
                staging.is_spared = False
        self._staged = staging.new_name()
        self.descriptor = os.open(
            self._staged, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=staging.folder().descriptor
        )

    def __enter__(self) -> NewFile:
        return self

    def name_as(self, name: bytes) -> None:
        """Raises FileExistsError if there is one and this file was not to replace it, as far as this can be seen."""
        target = self._folder.descriptor
        if self._staged is None:
            os.link(f"/proc/self/fd/{self.descriptor}", name, dst_dir_fd=target, follow_symlinks=True)
        else:
            os.rename(self._staged, name, src_dir_fd=self._staging.folder().descriptor, dst_dir_fd=target)
            self._staged = None

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)
        if self._staged is not None:
            os.unlink(self._staged, dir_fd=self._staging.folder().descriptor)
