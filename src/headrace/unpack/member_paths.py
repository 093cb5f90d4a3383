"""Where a member of an archive may be made below the target, and as what. Pure: nothing here looks at a disk.

The rules are those of tarfile's "data" filter (PEP 706, with its later fixes), but for `..`, which no name may hold.
"""

from __future__ import annotations

import stat

from headrace.unpack.members import Kind, Member

STAGING = b".headrace-unpack"
"""A folder of ours in the target, where a file waits for its name if it cannot be without one."""

_NAME_MOST_BYTES = 255
"""Of one component, in every file system that Linux writes but for a few older ones."""
_PATH_MOST_BYTES = 4095
"""Of a whole name, and of what a symbolic link holds (PATH_MAX, less its end)."""


class RefusedError(Exception):
    """A member must not be made; the text says why."""


def checked_path(member: Member) -> bytes:
    """Where `member` is made. Raises RefusedError if it must not be, for what it is or for what it links to."""
    path = member_path(member.name)
    if not path and member.kind is not Kind.FOLDER:
        raise RefusedError("it has no name")
    if member.kind is Kind.SPECIAL:
        raise RefusedError("it is neither a file nor a folder nor a link")
    if member.kind is Kind.SYMBOLIC_LINK:
        link_target(path, member.link)
    if member.kind is Kind.HARD_LINK:
        hard_link_target(member.link)
    return path


def member_path(name: str) -> bytes:
    """`name` relative to the target, without empty and `.` components; empty for the target itself.

    Leading slashes are dropped, as tar does. Raises RefusedError.
    """
    if "\0" in name:
        raise RefusedError("its name holds a zero byte")
    parts = [part for part in encode(name).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise RefusedError("its name holds '..'")
    if parts and parts[0] == STAGING:
        raise RefusedError(f"its name begins with {STAGING.decode()!r}, which is kept for unpacking")
    path = b"/".join(parts)
    if len(path) > _PATH_MOST_BYTES:
        raise RefusedError(f"its name is longer than {_PATH_MOST_BYTES} bytes")
    if len(path) > _NAME_MOST_BYTES and max(map(len, parts)) > _NAME_MOST_BYTES:
        raise RefusedError(f"a part of its name is longer than {_NAME_MOST_BYTES} bytes")
    return path


def link_target(path: bytes, link: str) -> bytes:
    """What the symbolic link at `path` may hold: `link` with every `..` at its start. Raises RefusedError.

    A `..` behind a name would lead to wherever that name leads, if it is a link itself, and from there up.
    """
    if not link or "\0" in link:
        raise RefusedError("it is a link that names nothing")
    if link.startswith("/"):
        raise RefusedError(f"it is a link to an absolute path, {link!r}")
    target = _normal(encode(link))
    if target.split(b"/").count(b"..") > path.count(b"/"):
        raise RefusedError(f"it is a link that leads out of the target, {link!r}")
    if len(target) > _PATH_MOST_BYTES:
        raise RefusedError(f"it is a link to a path longer than {_PATH_MOST_BYTES} bytes")
    return target


def hard_link_target(link: str) -> str:
    """The path that a hard link names. Raises RefusedError."""
    if link.startswith("/"):
        raise RefusedError(f"it is a hard link to an absolute path, {link!r}")
    try:
        return decode(member_path(link))
    except RefusedError:
        raise RefusedError(f"it is a hard link to {link!r}, which no member can be") from None


def file_mode(mode: int) -> int:
    """The permissions that a file gets: its owner may read and write it, others may not write it, nobody may execute
    it unless its owner may, and it is neither setuid nor setgid nor sticky."""
    mode = mode & ~(stat.S_IWGRP | stat.S_IWOTH) & 0o777
    if not mode & stat.S_IXUSR:
        mode &= ~(stat.S_IXGRP | stat.S_IXOTH)
    return mode | stat.S_IRUSR | stat.S_IWUSR


def encode(name: str) -> bytes:
    """The bytes of a name as the archive has it. Those that are not UTF-8 are surrogate escapes."""
    return name.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _normal(target: bytes) -> bytes:
    parts: list[bytes] = []
    for part in target.split(b"/"):
        if part == b".." and parts and parts[-1] != b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts) or b"."
