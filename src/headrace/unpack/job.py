"""What the two ways through an archive share: where it goes, what was asked for, and how its findings are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.errors import UnsafeMemberError, WriteError
from headrace.system.threads import Stop, work_through
from headrace.tools.unpack.plan import Refusal
from headrace.tools.unpack.target import Placed, Target
from headrace.unpack.member_paths import decode
from headrace.unpack.members import Piece
from headrace.unpack.report import Report

T = TypeVar("T")

_NAMED_MOST = 5


@dataclass(frozen=True)
class Job:
    target: Target
    threads: int
    verify: bool
    skip_refused: bool
    """Members that must not be made are counted and left out, instead of ending the run."""
    stop: Stop = field(default_factory=Stop)
    tick: Callable[[], None] = lambda: None

    def work_through(
        self, items: Iterable[T], work: Callable[[T], None], *, threads: int | None = None, one_is_here: bool = True
    ) -> None:
        work_through(
            items,
            work,
            name="unpack",
            threads=self.threads if threads is None else threads,
            one_is_here=one_is_here,
            stop=self.stop,
            tick=self.tick,
        )

    def stoppable(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """`pieces`, until the work is not wanted any more: a large file has many. Raises Stopped."""
        for piece in pieces:
            self.stop.check()
            yield piece

    def refuse(self, report: Report, refused: Iterable[Refusal]) -> None:
        """Raises UnsafeMemberError, unless such members are to be left out."""
        report.refused += refused
        if report.refused and not self.skip_refused:
            raise UnsafeMemberError(_refusals(report))

    def place_symbolic_link(
        self, report: Report, path: bytes, target: bytes, mtime_ns: int, *, replace: bool = False
    ) -> None:
        """Raises WriteError, or as `refuse` does."""
        if not self.target.leads_inside(path, target):
            why = f"it is a link to {decode(target)!r}, which leads out of the target through a link that is there"
            self.refuse(report, (Refusal(decode(path), why),))
            return
        self.expect_placed(self.target.place_symbolic_link(path, target, mtime_ns, replace=replace), path)
        report.links += 1

    def expect_placed(self, placed: Placed, path: bytes) -> None:
        """Raises WriteError if something else is there."""
        if placed is Placed.DIFFERS:
            raise WriteError(
                f"{self.target.place(path)}: expected nothing there, or what the archive holds, got something else. "
                f"Move it away, or replace it: --overwrite"
            )

    def differs(self, archive: str, path: bytes) -> WriteError:
        """What verification finds."""
        return WriteError(
            f"{self.target.place(path)}: expected the bytes that {archive} holds, got others. Delete it and run this "
            f"again; if it comes again, check the disk"
        )


def _refusals(report: Report) -> str:
    some = "; ".join(f"{refusal.name!r}: {refusal.why}" for refusal in report.refused[:_NAMED_MOST])
    more = f"; and {len(report.refused) - _NAMED_MOST:,} more" if len(report.refused) > _NAMED_MOST else ""
    return (
        f"{report.archive}: expected members that can be made inside the target, got {some}{more}. "
        f"Leave such members out: --skip-refused"
    )
