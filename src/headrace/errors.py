"""Every error that Headrace raises, and what each means.

    HeadraceError
    ├── UsageError (ValueError)         an argument is wrong; nothing was read
    │   └── UnknownArgumentError (TypeError)    no argument of this name; the message says what is instead
    ├── DatasetError                    the dataset as a whole cannot be used
    │   ├── NotFoundError (FileNotFoundError)   the path does not exist
    │   ├── EmptyDatasetError           it exists and holds no sample
    │   ├── OutsideRootError            a path that it names leads out of `root=`
    │   └── ChangedError                it is no longer what was indexed
    ├── ReadError (OSError)             transport failed: never replaced, the run stops
    ├── WriteError (OSError)            a file could not be written, or something else is there
    ├── SharedMemoryError (OSError)     the system gives no memory to share between processes
    ├── SampleError                     the content of one sample cannot be decoded
    │   ├── DecodeError                 damaged, cut short, or not an image
    │   ├── LimitError                  beyond a limit; the message names the limit
    │   ├── UnsupportedError            well-formed, but in a format that nothing here decodes
    │   └── ViewError                   the view asks for what this image does not have
    ├── MemberError                     a member of an archive cannot be given
    │   ├── MissingMemberError (KeyError)       the archive holds none of that name
    │   ├── DamagedMemberError          its bytes are not what the archive says of them
    │   ├── MemberLimitError            beyond a limit; the message names the limit
    │   ├── UnsafeMemberError           it must not be made: outside the target, through a link, or as a device
    │   └── UnsupportedMemberError      encrypted, or in a form that nothing here reads
    ├── MapWorkerError (RuntimeError)   a process of `map_workers` could not be started, or ended by itself
    ├── BudgetError                     a step of a single sample does not fit in the device's memory
    ├── RankError (RuntimeError)        another rank of the run ended, or did not come
    ├── TooManyBadSamplesError          more samples were bad than `max_bad` allows
    ├── TuneError (RuntimeError)        a command's run shows no DataLoader that could be tuned
    ├── SessionError (ValueError)       a file is no session of the doctor's, or not one that this version reads
    └── StateError (ValueError)         a saved state does not belong to this loader

Messages say what was expected, what came, where, and what to do next.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of every error that Headrace raises on purpose."""


class UsageError(HeadraceError, ValueError):
    """An argument is wrong; nothing was read."""


class UnknownArgumentError(UsageError, TypeError):
    """No argument of this name exists: that of another loader, or a slip of the pen."""


class DatasetError(HeadraceError):
    """The dataset as a whole cannot be used."""


class NotFoundError(DatasetError, FileNotFoundError):
    """The path does not exist."""


class EmptyDatasetError(DatasetError):
    """The path exists and holds no sample."""


class OutsideRootError(DatasetError):
    """A path that the dataset names leads out of `root=`. Nothing is read there."""


class ChangedError(DatasetError):
    """The data is no longer what was indexed."""


class ReadError(HeadraceError, OSError):
    """Transport failed: a file could not be opened or read. Never replaced."""


class WriteError(HeadraceError, OSError):
    """A file could not be written, or something else is there."""


class SharedMemoryError(HeadraceError, OSError):
    """The system gives no memory to share between processes."""


class SampleError(HeadraceError):
    """The content of one sample cannot be decoded.

    `key`, `shard`, `offset` (bytes, None for a loose file), `field` and `why` say where and what. From a text alone,
    which is how DataLoader makes again in the parent what a worker raised, they are empty and `why` is the text.
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
    """Damaged, cut short, or not an image."""


class LimitError(SampleError):
    """Beyond a limit; the message names the limit."""


class UnsupportedError(SampleError):
    """Well-formed, but in a format that nothing here decodes."""


class ViewError(SampleError):
    """The view asks for what this image does not have, such as a crop that is larger than it."""


class MemberError(HeadraceError):
    """A member of an archive cannot be given."""


class MissingMemberError(MemberError, KeyError):
    """The archive holds no member of that name."""

    __str__ = Exception.__str__  # KeyError's would quote the message


class DamagedMemberError(MemberError):
    """The bytes of a member are not what the archive says of them."""


class MemberLimitError(MemberError):
    """Beyond a limit; the message names the limit."""


class UnsafeMemberError(MemberError):
    """A member must not be made: outside the target, through a link, or as a device."""


class UnsupportedMemberError(MemberError):
    """Encrypted, or in a form that nothing here reads."""


class TooManyBadSamplesError(HeadraceError):
    """More samples were bad than `max_bad` allows."""


class MapWorkerError(HeadraceError, RuntimeError):
    """A process of `map_workers` could not be started, or ended before its work was done."""


class BudgetError(HeadraceError):
    """A training step of a single sample does not fit in the device's memory."""


class RankError(HeadraceError, RuntimeError):
    """Another rank of the run ended, or did not come, so that this one cannot go on."""


class StateError(HeadraceError, ValueError):
    """A saved state does not belong to this loader."""


class TuneError(HeadraceError, RuntimeError):
    """A command's run shows no DataLoader that could be tuned.

    `status` is the exit status to end with: the command's own where it failed.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class SessionError(HeadraceError, ValueError):
    """A file is no session of the doctor's, or not one that this version reads."""
