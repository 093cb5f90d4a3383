"""Measures what pays on this machine: each side once a round, one after the other, each in a process of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from headrace.bench.environment import environment
from headrace.bench.listing import Listing, list_images
from headrace.bench.measure import Run
from headrace.bench.preflight import available_images
from headrace.bench.rounds import one_run
from headrace.errors import UsageError
from headrace.tools.bench.settings import Settings
from headrace.tools.bench.worth import COMPARISONS, Worth

OneRun = Callable[[Settings, str, int], Run]


def measured_run(settings: Settings, side: str, round_number: int) -> Run:
    """One side, in a worker."""
    return Run(**one_run(settings, side, round_number))


def sides(not_measured: Iterable[str]) -> list[str]:
    """Those of the comparisons that are measured, each once: two comparisons may share one."""
    wanted = [one for one in COMPARISONS if one.key not in set(not_measured)]
    return list(dict.fromkeys(side for one in wanted for side in (one.without, one.with_it)))


def why_not_measured(settings: Settings, *, has_cuda: bool, can_be_dropped: bool) -> dict[str, str]:
    """By the comparison's key, what stands against it."""
    found = {}
    if settings.threads < 2:
        found["threads"] = "there is one core"
    if not can_be_dropped:
        found["page-cache"] = "the kernel keeps these files in memory, or cannot tell: they lie in RAM as it is"
    if not has_cuda:
        found["pinning"] = "no CUDA device"
    return found


def rounds(
    settings: Settings, not_measured: Iterable[str], *, run: OneRun = measured_run
) -> Iterator[tuple[str, float]]:
    """Yield (side, images a second) as each finishes: all sides of a round, then those of the next."""
    for number in range(settings.rounds):
        for side in sides(not_measured):
            yield side, run(settings, side, number).images_per_s


def preflight(settings: Settings) -> dict[str, str]:
    """What is not measured, and why, having checked that the rest can be."""
    if settings.against is not None:
        raise UsageError("--worth looks at this machine, --against at a loader of yours: expected one of them")
    available_images(settings)
    return why_not_measured(settings, has_cuda=_has_cuda(), can_be_dropped=_can_be_dropped(list_images(settings.path)))


def worth(settings: Settings, not_measured: dict[str, str], measured: Iterable[tuple[str, float]]) -> Worth:
    """What the rounds come to."""
    rates: dict[str, list[float]] = defaultdict(list)
    for side, rate in measured:
        rates[side].append(rate)
    return Worth(settings=settings, environment=environment(), rates=rates, not_measured=not_measured)


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _can_be_dropped(listing: Listing) -> bool:
    """Each is looked at, since what was just written goes to the disk by that."""
    from headrace.tools.bench.peer import can_be_dropped

    files = dict.fromkeys(place for place, _ in listing.files)
    return min(map(can_be_dropped, files))
