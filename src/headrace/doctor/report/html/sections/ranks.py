"""The ranks beside each other."""

from __future__ import annotations

from headrace.doctor.analyse.ranks import is_late
from headrace.doctor.measure.diagnosis import RankView
from headrace.doctor.report.escaping import counted, duration, share
from headrace.doctor.report.html.bars import Segment, stacked
from headrace.doctor.report.html.blocks import Cell, Key, Section, Table
from headrace.doctor.report.html.report import Report

MOST = 64
HOW = (
    "Each bar is a step of one rank, from zero to the longest: what it waits for data, and then for its peers. The "
    "ranks wait for one another in every step, so the one that is last makes all of them slow: it waits for nobody. "
    "Last in is the share of the steps in which it was; late by, how long the others waited for it then."
)


def ranks(report: Report) -> Section | None:
    views = sorted(report.diagnosis.ranks, key=lambda rank: (-rank.late, rank.rank))
    if len(views) < 2:
        return None
    top = max(rank.step_us for rank in views)
    table = Table(
        "",
        ["", "", "a step", "last in", "late by", "waits for data", "for a peer", "late because of"],
        [_row(rank, top) for rank in views[:MOST]],
        HOW,
        figures=frozenset({2, 3, 4, 5, 6}),
        charts=frozenset({1}),
        keys=[
            Key("wait", "waits for data"),
            Key("pink", "waits for a peer"),
            Key("purple", "collectives themselves"),
            Key("other", "the rest of the step"),
        ],
        left_out=f"and {counted(len(views) - MOST, 'rank')} more" if len(views) > MOST else "",
    )
    first = views[0]
    late = f"Rank {first.rank} is the last in {share(first.late)} of the steps." if is_late(first, len(views)) else ""
    return Section(
        "ranks", f"{len(views)} ranks beside each other", [table], lead=late or "No rank is late often and by much."
    )


def _row(rank: RankView, top: float) -> list[Cell]:
    peer, own = rank.peer_wait_us or 0.0, rank.collective_us or 0.0
    rest = max(rank.step_us - rank.data_wait_us - peer - own, 0.0)
    pieces = [
        Segment("wait", rank.data_wait_us, f"waits for data: {duration(rank.data_wait_us)}"),
        Segment("pink", peer, f"waits for a peer: {duration(rank.peer_wait_us)}"),
        Segment("purple", own, f"collectives: {duration(rank.collective_us)}"),
        Segment("other", rest, f"rest: {duration(rest)}"),
    ]
    label = f"rank {rank.rank}, a step of {duration(rank.step_us)}: {', '.join(piece.text for piece in pieces)}"
    cause = rank.cause.replace(":", " ", 1) if rank.cause is not None else ""
    bar = stacked(pieces, top=top, label=label, labelled=False)
    waits = [duration(rank.lateness_us), duration(rank.data_wait_us), duration(rank.peer_wait_us)]
    return [f"rank {rank.rank}", bar, duration(rank.step_us), share(rank.late), *waits, cause]
