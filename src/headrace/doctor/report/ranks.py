"""The ranks beside each other, on a page."""

from __future__ import annotations

from headrace.doctor.measure.diagnosis import Diagnosis, RankView
from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import counted, duration, share
from headrace.doctor.report.terminal_layout import Page, Row


def put_ranks(page: Page, diagnosis: Diagnosis, detail: Detail) -> None:
    """Nothing with one rank. Those that are late most come first."""
    if len(diagnosis.ranks) < 2:
        return
    ranks = sorted(diagnosis.ranks, key=lambda rank: (-rank.late, rank.rank))
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    page.rows([_HEAD, *(_row(rank) for rank in ranks[: detail.ranks])])
    if len(ranks) > detail.ranks:
        page.line(f"and {counted(len(ranks) - detail.ranks, 'rank')} more: {detail.rest}", style="dim")


_HEAD = Row("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")


def _row(rank: RankView) -> Row:
    times = (rank.lateness_us, rank.data_wait_us, rank.peer_wait_us, rank.collective_us)
    cause = rank.cause.replace(":", " ", 1) if rank.cause is not None else ""
    return Row(f"rank {rank.rank}", (share(rank.late), *map(duration, times)), remark=cause)
