"""How batches were made, on a page: stages, lines, slow samples, start-up."""

from __future__ import annotations

from headrace.doctor.measure.diagnosis import Diagnosis, Making, StagePart
from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import counted, duration, number, share
from headrace.doctor.report.step import heat, waiting_most
from headrace.doctor.report.terminal_layout import Page, Row

SLOW = 2.0
"""Times the median: below that, the slowest samples are no slow ones."""
KEY_CELLS = 40
"""A sample's key is cut where it is longer: what it cost stands behind it."""


def put_making(page: Page, diagnosis: Diagnosis, detail: Detail) -> None:
    """The loaders of the rank that waits longest come first, and of those, the ones that made most."""
    ranks = {budget.pid: budget.rank for budget in waiting_most(diagnosis)}
    order = list(ranks)
    makings = sorted(diagnosis.makings, key=lambda making: (_place(order, making), -making.batches * making.batch_us))
    for making in makings[: detail.loaders]:
        rank = ranks.get(making.trainer) if len(ranks) > 1 else None
        loader = making.loader if len(makings) > max(len(ranks), 1) else None
        page.heading(_title(making, rank=rank, loader=loader), _summary(making))
        _put_stages(page, making, detail.stages)
        _put_lines(page, making, detail.lines)
        _put_slow(page, making, detail.slow)
        page.sentence(_start_up(making), lead="  start-up: ")
    if len(makings) > detail.loaders:
        page.line(f"and {counted(len(makings) - detail.loaders, 'loader')} more: {detail.rest}", style="dim")


def _place(order: list[int], making: Making) -> int:
    return order.index(making.trainer) if making.trainer in order else len(order)


def _title(making: Making, *, rank: int | None, loader: int | None) -> str:
    """The rank and the loader are named where there are several."""
    who = counted(making.workers, making.makers) if making.workers else "No workers"
    which = (("rank", rank), ("loader", loader))
    where = ", ".join(f"{what} {number}" for what, number in which if number is not None)
    return f"{who} ({where})" if where else who


def _summary(making: Making) -> str:
    first = f"busy {share(making.busy)} of the time" if making.workers else "made in the training thread"
    batches = counted(making.batches, "batch")
    return " · ".join(
        [first, f"{number(making.cores)} cores used", batches, f"{duration(making.batch_us)} a batch, of which:"]
    )


def _put_stages(page: Page, making: Making, most: int) -> None:
    stages = sorted(making.stages, key=lambda stage: -stage.share)
    rows = [_stage_row(stage) for stage in stages[:most]]
    rest = stages[most:]
    if rest:
        of_whole = sum(stage.share for stage in rest)
        time = f"{duration(sum(stage.wall_us for stage in rest))}/sample"
        rows.append(Row(f"{len(rest)} more", (share(of_whole),), of_whole, "dim", time))
    page.rows(rows)


def _stage_row(stage: StagePart) -> Row:
    label = f"{stage.category} {stage.label}" if stage.label else stage.category
    return Row(label, (share(stage.share),), stage.share, heat(stage.share), _remark(stage))


def _remark(stage: StagePart) -> str:
    """What it costs, whether it computes or waits, and how often it is called."""
    calls = f"{number(stage.calls)}/batch" if stage.calls > 0 else ""
    cpu = None if stage.cpu_us is None or stage.wall_us <= 0 else min(stage.cpu_us / stage.wall_us, 1.0)
    computing = "" if cpu is None else f"{share(cpu)} CPU"
    return ", ".join(filter(None, (f"{duration(stage.wall_us)}/sample", computing, calls)))


def _put_lines(page: Page, making: Making, most: int) -> None:
    rows = [Row(line.place, (share(line.share),)) for line in making.lines[:most]]
    page.rows([Row(f"line {row.label}", row.cells) for row in rows], keep="end")


def _put_slow(page: Page, making: Making, most: int) -> None:
    for slow in [one for one in making.slow if one.times >= SLOW][:most]:
        key, stage = page.shorten(slow.key, KEY_CELLS), slow.stage.replace(":", " ", 1)
        page.line(f"slow sample {key}: {duration(slow.wall_us)}, {number(slow.times)} × the median, most in {stage}")


def _start_up(making: Making) -> str:
    start = f"{duration(making.start_up_us)} to start, {duration(making.first_batch_us)} to the first batch"
    again = " (new workers each time)" if making.respawned else ""
    return f"{start}, {counted(making.passes, 'pass')}{again}"
