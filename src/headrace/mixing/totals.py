"""What the feeds of several sources did together."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.loader import StageStats, Stats


def totals(sources: Mapping[str, Stats]) -> Stats:
    """Sums. `wall_s` is the longest, and `feed_wait_s` that of the source that waits least for training."""
    all_of = list(sources.values())
    stages = [stats.stages for stats in all_of]
    return Stats(
        batches=sum(each.batches for each in all_of),
        samples=sum(each.samples for each in all_of),
        wall_s=max(each.wall_s for each in all_of),
        consumer_wait_s=sum(each.consumer_wait_s for each in all_of),
        feed_wait_s=min(each.feed_wait_s for each in all_of),
        python_s=sum(each.python_s for each in all_of),
        idle_s=sum(each.idle_s for each in all_of),
        threads=max(each.threads for each in all_of),
        ready_batches=sum(each.ready_batches for each in all_of),
        batch_bytes=max(each.batch_bytes for each in all_of),
        bad=sum(each.bad for each in all_of),
        replaced=sum(each.replaced for each in all_of),
        declined=sum(each.declined for each in all_of),
        retries=sum(each.retries for each in all_of),
        left_out=sum(each.left_out for each in all_of),
        repeated=sum(each.repeated for each in all_of),
        map_workers=sum(each.map_workers for each in all_of),
        stages={name: _stage([each[name] for each in stages if name in each]) for name in _names(stages)},
    )


def _names(stages: list[dict[str, StageStats]]) -> list[str]:
    return list(dict.fromkeys(name for each in stages for name in each))


def _stage(found: list[StageStats]) -> StageStats:
    return StageStats(
        sum(each.busy_s for each in found), sum(each.items for each in found), sum(each.bytes for each in found)
    )
