"""lmdb. The classes of its C build take no patch and no subclass, and a stand-in for its environment would be refused
wherever lmdb itself is given one: there, only the lines of the user's code show it. Its cffi build is Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...probe import Probe


def install(probe: Probe, lmdb: Any) -> None:
    for name in ("get", "getmulti"):
        for owner in (lmdb.Transaction, lmdb.Cursor):
            probe.time_calls(owner, name, "lookup", "lmdb")
