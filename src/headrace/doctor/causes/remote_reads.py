"""Reads from remote stores: limits by latency or bandwidth, and remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind, of_steps
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.causes.stages import category
from headrace.doctor.causes.storage import waiting_share
from headrace.doctor.measure import BOUND, Finding, LoaderProduction, TrainerView
from headrace.doctor.quantities import duration, number, percent, size
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import StoreReads
from headrace.doctor.simulate import Change, Factor, StageChange, untimed

REMOTE = "remote"
"""Category of stages that read remotely."""
BY_LATENCY = 0.5
"""Share of remote read time spent before answers begin, from which latency is the limit."""
FIRST_FLIGHT_BYTES = 10 * 1460
"""Bytes that arrive with the start of an answer (RFC 6928). Time after that is not limited by the link's bandwidth."""
FAILING = 0.01
"""Reporting threshold: share of requests answered by an error."""
DISK_ASSUMED = (0.0, 0.1)
"""Assumed time of a local disk read, as a share of the remote read."""
ASK_AHEAD = (
    'A headrace.Loader over headrace.open("s3://…") knows the order, and has up to 32 requests under way; '
    'order="windowed" reads neighbours in one'
)
KEEP = 'cache="disk:/PATH:SIZE" of a headrace.Loader keeps samples on a local disk, shared by all ranks of a node'


@dataclass(frozen=True)
class RemoteFigures:
    """Remote reads of one loader's workers per batch, in microseconds."""

    stores: list[StoreReads]
    requests: float
    bytes: float
    wait_us: float
    first_us: float
    """Time until answers began, summed over all requests, concurrent requests included."""
    share: float
    samples: float

    @classmethod
    def of(cls, session: Session, making: LoaderProduction) -> RemoteFigures | None:
        """Return the figures; None if no request was counted or no stage waited for one."""
        stages = [one for one in making.stages if one.category == REMOTE]
        remote, share = session.remote, sum(one.share for one in stages)
        sample_us = sum(one.wall_us for one in stages)
        if not remote.stores or not remote.batches or sample_us <= 0:
            return None
        wait_us = share * making.batch_us
        return cls(
            stores=remote.stores,
            requests=sum(one.requests for one in remote.stores) / remote.batches,
            bytes=sum(one.bytes for one in remote.stores) / remote.batches,
            wait_us=wait_us,
            first_us=sum(one.first_us for one in remote.stores) / remote.batches,
            share=share,
            samples=wait_us / sample_us,
        )

    @property
    def latency(self) -> float:
        """Share of remote read time before an answer begins."""
        return min(self.first_us / self.wait_us, 1.0)

    @property
    def is_small(self) -> bool:
        """True if a request's bytes arrive with the start of its answer."""
        return 0 < self.bytes <= self.requests * FIRST_FLIGHT_BYTES

    @property
    def waits_for_answers(self) -> bool:
        """True if fewer sequential requests would help, and more bandwidth would not."""
        return self.latency >= BY_LATENCY or self.is_small

    @property
    def store(self) -> StoreReads:
        return self.stores[0]

    @property
    def place(self) -> str:
        return self.store.place if len(self.stores) == 1 else f"{self.store.place} and {len(self.stores) - 1} more"

    def rate(self, making: LoaderProduction) -> tuple[float, float]:
        """Return bytes per second while any worker reads, and the share of time in which at least one reads."""
        reading = 1 - (1 - min(self.share * making.busy, 1.0)) ** max(making.workers, 1)
        apart_us = making.batch_us / max(making.busy * max(making.workers, 1), 1e-9)  # between batches of all workers
        return (self.bytes / (apart_us * reading) * 1e6 if reading > 0 else 0.0), reading

    def words(self) -> str:
        """Return requests, bytes and latency as text."""
        store, a_sample = self.store, self.requests / self.samples
        each = f"{size(self.bytes / self.requests)} each" if self.requests else size(self.bytes)
        said = [
            f"{self.place}: {number(a_sample) if a_sample >= 0.1 else f'{a_sample:.2g}'} requests a sample, {each}",
            f"answers begin after {duration(store.first_us / max(store.requests, 1))} on average",
        ]
        failed, requests = (sum(getattr(one, name) for one in self.stores) for name in ("failed", "requests"))
        if failed >= FAILING * requests:
            said.append(f"{percent(failed / requests)} of them were answered by an error")
        return ", ".join(said)


def remote_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Yield the limit of the remote reads that steps wait for."""
    making = next(iter(view.awaited_production), None)
    figures = None if making is None else RemoteFigures.of(session, making)
    weight = (view.wait_share or 0.0) * sum(part.share for part in view.causes.parts if category(part.name) == REMOTE)
    if making is None or figures is None or weight < BOUND:
        return
    sample_us = figures.wait_us / figures.samples
    if figures.waits_for_answers:
        limit = "Latency limits" if figures.latency >= BY_LATENCY else "The client's work on small requests limits"
        yield Finding(
            "remote-latency",
            weight,
            f"{limit} remote reads: {percent(figures.latency)} of the {duration(sample_us)} that a sample waits for "
            "them passes before an answer begins.",
            figures.words(),
            f"{ASK_AHEAD}. More workers have more requests under way, and each needs no core. {KEEP}.",
        )
    else:
        rate, reading = figures.rate(making)
        yield Finding(
            "remote-bandwidth",
            weight,
            f"Bandwidth limits remote reads: {size(rate)} a second.",
            f"{figures.words()}; {percent(reading)} of the time something is read, and {percent(1 - figures.latency)} "
            "of a read passes after its answer began",
            "Look at what the link and the store give more connections at once, and at fewer bytes: smaller or better "
            f"compressed images, no column that is not used. {KEEP}.",
        )


def remote_ahead(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose to send requests before a sample is needed, if latency is the limit."""
    figures = RemoteFigures.of(case.session, case.making)
    if figures is None or waiting_share(case, REMOTE) < WORTH or not figures.waits_for_answers:
        return None
    moved = 1 - figures.latency
    basis = (
        "Asked for ahead, requests run side by side; what their bytes then take is not known from this run: from "
        "nothing to the time after an answer begins."
    )
    return kind.leaving(
        case,
        Factor(0.0, moved / 2, moved, True, basis),
        _left,
        why=f"A sample waits {duration(figures.wait_us / figures.samples)} for {figures.words()}, one after another.",
    )


def remote_cache(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose a sample cache on a local disk, which serves its samples from the second epoch on."""
    figures = RemoteFigures.of(case.session, case.making)
    if figures is None or waiting_share(case, REMOTE) < WORTH:
        return None
    length = case.facts.get("length")
    batches = length if isinstance(length, int) else None
    whole = f"at most {size(figures.bytes * batches)} for the whole dataset" if batches else "the dataset's bytes"
    return kind.leaving(
        case,
        untimed(*DISK_ASSUMED),
        _left,
        why=f"Each epoch downloads {figures.place} again; from the second one on a local disk gives it without a "
        "request.",
        costs=[f"{whole} of a local disk, from the second epoch on"],
    )


def _left(wait: float) -> Change:
    """Return the change that scales the waiting time of remote reads to this share."""
    return lambda setup: replace(setup, stages={REMOTE: StageChange(wait=wait), **setup.stages})


CAUSE = Cause(
    findings={
        "remote-latency": "Half or more of a remote read passes before the answer begins, or answers are so small "
        "(14.6 kB, RFC 6928) that they come with their beginning: then the rest is the client's own work.",
        "remote-bandwidth": "Less than half of a remote read passes before the answer begins, and answers are larger.",
    },
    find=of_steps(remote_findings),
    explains=("remote-latency", "remote-bandwidth"),
    remedies=[
        RemedyKind(
            "remote-ahead",
            "reads of the store asked for ahead",
            FEW_LINES,
            remote_ahead,
            hint=f"{ASK_AHEAD}; or more workers",
            costs=("memory for the bytes on their way: 1 GB at most",),
        ),
        RemedyKind(
            "remote-cache",
            "the store's samples cached on a local disk",
            FEW_LINES,
            remote_cache,
            hint=f"{KEEP}; or a copy of the files on a local disk",
        ),
    ],
)
