"""Exceptions that Headrace raises.

    HeadraceError
    ├── UsageError (ValueError)         invalid argument; nothing was read
    │   └── UnknownArgumentError (TypeError)    unknown argument; the message names the replacement
    ├── DatasetError                    the dataset as a whole is unusable
    │   ├── NotFoundError (FileNotFoundError)   the path does not exist
    │   ├── EmptyDatasetError           the path exists but holds no samples
    │   ├── OutsideRootError            a path in the dataset leads out of `root=`
    │   └── ChangedError                the data changed after it was indexed
    ├── ReadError (OSError)             a read failed: never replaced, the run stops
    ├── WriteError (OSError)            a file could not be written, or another entry exists
    ├── SharedMemoryError (OSError)     shared memory could not be allocated
    ├── SampleError                     one sample cannot be decoded
    │   ├── DecodeError                 corrupt, truncated, or not an image
    │   ├── LimitError                  a limit is exceeded; the message names it
    │   ├── UnsupportedError            well-formed, but in an unsupported format
    │   └── ViewError                   the view does not fit this image
    ├── MemberError                     a member of an archive cannot be read
    │   ├── MissingMemberError (KeyError)       the archive has no member of that name
    │   ├── DamagedMemberError          the bytes do not match the archive's metadata
    │   ├── MemberLimitError            a limit is exceeded; the message names it
    │   └── UnsupportedMemberError      encrypted, or in an unsupported form
    ├── MapWorkerError (RuntimeError)   a `map_workers` process failed to start, or exited
    ├── BudgetError                     a step with a single sample does not fit in device memory
    ├── RankError (RuntimeError)        another rank ended or did not arrive
    ├── TooManyBadSamplesError          the number of bad samples exceeds `max_bad`
    ├── SessionError (ValueError)       a file is not a doctor session of a supported version
    └── StateError (ValueError)         a saved state does not match this loader

Messages state the expected and actual values, the location, and the next step.
"""

from __future__ import annotations

import os
import sys
import warnings


class HeadraceError(Exception):
    """Base class of Headrace's exceptions."""


class UsageError(HeadraceError, ValueError):
    """Invalid argument; nothing was read."""


class UnknownArgumentError(UsageError, TypeError):
    """Argument that does not exist: another library's argument, or a typo."""


class DatasetError(HeadraceError):
    """Dataset that is unusable as a whole."""


class NotFoundError(DatasetError, FileNotFoundError):
    """Path that does not exist."""


class EmptyDatasetError(DatasetError):
    """Path that exists but holds no samples."""


class OutsideRootError(DatasetError):
    """Path in a dataset that leads out of `root=`. Nothing is read there."""


class ChangedError(DatasetError):
    """Data that changed after it was indexed."""


class ReadError(HeadraceError, OSError):
    """Failure to open or read a file. Such samples are never replaced."""


class WriteError(HeadraceError, OSError):
    """Failure to write a file, or another entry at its path."""


class SharedMemoryError(HeadraceError, OSError):
    """Failure to allocate memory that processes share."""


class SampleError(HeadraceError):
    """Sample that cannot be decoded.

    `key`, `shard`, `offset` (bytes, None for a loose file) and `field` locate the sample, and `why` is the reason.
    DataLoader re-raises a worker's error in the parent from its text alone: then they are empty and `why` is the text.
    """

    def __init__(self, why: str, *, key: str = "", shard: str = "", offset: int | None = None, field: str = "") -> None:
        place = shard if offset is None else f"{shard} at byte {offset}"
        super().__init__(f"sample {key!r}, field {field!r} ({place}): {why}" if shard != "" else why)
        self.why = why
        self.key = key
        self.shard = shard
        self.offset = offset
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.why, self.key, self.shard, self.offset, self.field))


def _rebuild(kind: type[SampleError], why: str, key: str, shard: str, offset: int | None, field: str) -> SampleError:
    return kind(why, key=key, shard=shard, offset=offset, field=field)


class DecodeError(SampleError):
    """Sample that is corrupt, truncated, or not an image."""


class LimitError(SampleError):
    """Sample that exceeds a limit; the message names the limit."""


class UnsupportedError(SampleError):
    """Well-formed sample in an unsupported format."""


class ViewError(SampleError):
    """View that does not fit the image, such as a crop larger than the image."""


class MemberError(HeadraceError):
    """Member of an archive that cannot be read."""


class MissingMemberError(MemberError, KeyError):
    """Name that no member of the archive has."""

    __str__ = Exception.__str__  # KeyError's would quote the message


class DamagedMemberError(MemberError):
    """Member with bytes that do not match the archive's metadata."""


class MemberLimitError(MemberError):
    """Member that exceeds a limit; the message names the limit."""


class UnsupportedMemberError(MemberError):
    """Member that is encrypted or in an unsupported form."""


class TooManyBadSamplesError(HeadraceError):
    """Number of bad samples above `max_bad`."""


class MapWorkerError(HeadraceError, RuntimeError):
    """`map_workers` process that failed to start, or exited before its work was done."""


class BudgetError(HeadraceError):
    """Training step with a single sample that does not fit in device memory."""


class RankError(HeadraceError, RuntimeError):
    """Rank that ended or did not arrive, so that this rank cannot continue."""


class StateError(HeadraceError, ValueError):
    """Saved state that does not match the loader."""


class SessionError(HeadraceError, ValueError):
    """File that is not a doctor session of a supported version."""


_PACKAGE = os.path.join(os.path.dirname(__file__), "")


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that called into Headrace; in a thread of ours, at the thread's start."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
