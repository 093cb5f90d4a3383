"""Kinds of finding: codes, with text templates that each cause fills with its figures; and the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Any

from headrace.doctor.measure import Finding
from headrace.doctor.quantities import counted, duration, number, percent, size, times

WRITTEN = {"duration": duration, "number": number, "percent": percent, "size": size, "times": times}
COUNTED = "count "


class Figures(Formatter):
    """Formatter for quantities: `{read:size}`, `{share:percent}`, `{many:count worker}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a figure as its quantity, and anything else as Python does."""
        if format_spec.startswith(COUNTED):
            return counted(value, format_spec.removeprefix(COUNTED))
        written = WRITTEN.get(format_spec)
        return str(super().format_field(value, format_spec)) if written is None else written(value)


@dataclass(frozen=True)
class FindingKind:
    """Kind of finding: `text`, `evidence` and `advice` are templates for `Figures`."""

    code: str
    text: str
    evidence: str
    advice: str
    when: str
    """Condition that triggers the finding, for the documentation."""
    weight: float = 0.0
    """Weight of the finding, if constant."""

    def found(self, weight: float | None = None, **figures: Any) -> Finding:
        """Return the finding with its figures."""
        said = (Figures().vformat(one, (), figures) for one in (self.text, self.evidence, self.advice))
        return Finding(self.code, self.weight if weight is None else weight, *said)


def chapter(*kinds: FindingKind) -> dict[str, FindingKind]:
    """Return the kinds by code."""
    return {one.code: one for one in kinds}


MACHINE = chapter(
    FindingKind(
        "oom-kill",
        "The kernel killed {killed:count process} because memory ran out during the run.",
        "{where}; the command held {held:size} at most, as far as was seen.",
        "Raise the memory limit, or use fewer workers, a smaller prefetch_factor or smaller batches.",
        weight=1.0,
        when="the kernel killed a process for want of memory",
    ),
    FindingKind(
        "cpu-throttled",
        "The control group's CPU quota held the processes back in {periods:percent} of its periods.",
        "A quota of {quota:number} cores; {held:number} cores' worth of work stood still on average.",
        "Raise the CPU limit (docker --cpus, Kubernetes resources.limits.cpu), or use fewer workers and threads.",
        when="throttled in 2 % of the quota's periods or more",
    ),
    FindingKind(
        "threads",
        "{threads} threads want to run on {cores:number} cores.",
        "{makeup} by what torch, OpenMP and OpenCV say; {waited}",
        "Set torch.set_num_threads(1), OMP_NUM_THREADS=1, and cv2.setNumThreads(0) where OpenCV is used, in the "
        "workers (worker_init_fn), and start as many workers as there are cores.",
        when="the libraries' threads of workers and trainers exceed the cores, and work waited for a core (10 %), or "
        "that was not measured. A worker counts with its largest pool; with a GPU a trainer counts 1",
    ),
    FindingKind(
        "spinning-threads",
        "Threads of the training process spin {spinning}.",
        "torch computes with {pool} OpenMP threads, which spin for milliseconds after each piece of work{used}",
        "Set OMP_WAIT_POLICY=passive before the start: then they sleep. Or give the training process fewer threads "
        "(torch.set_num_threads).",
        when="cores are busy (85 %), the training process computes with several OpenMP threads, and these use CPU time "
        "while it waits for workers' batches, or its steps take longer alongside workers than without them: both "
        "together 5 % of a step. Takes the place of `threads` where workers have one thread each. See [libraries' "
        "threads](remedies.md#libraries-threads)",
    ),
    FindingKind(
        "workers-cores",
        "{workers} workers share {cores:number} cores.",
        "The process may use {cores:number} of {online:number} cores; {waited}",
        "More workers than cores help only while they wait for storage: give the job more cores, or fewer workers.",
        when="more single-threaded workers than cores, under the same condition",
    ),
    FindingKind(
        "cpu-stolen",
        "The hypervisor gave {stolen:number} of {cores:number} cores to other machines.",
        "Steal time: {share:percent} of the cores' time.",
        "Use a machine with dedicated cores; timings on this one vary with its neighbours.",
        when="2 % of the cores are stolen",
    ),
    FindingKind(
        "swapping",
        "The machine swaps {moved:size} a second.",
        "{used:size} of swap in use, {free:size} of memory left at the least.",
        "Use fewer workers or a smaller prefetch_factor, or keep less of the dataset in Python objects.",
        when="1 MB a second",
    ),
    FindingKind(
        "copy-on-write",
        "Workers copied {copied:size} of memory that they shared with their parent.",
        "{workers:count worker}; they shared {shared:size} when first seen, and can grow by that much, of {most:size} "
        "that there is ({share:percent}).",
        "Keep paths and labels in numpy arrays or torch tensors, not in lists and dicts of Python objects: reading "
        "one counts a reference, which writes to its page and copies it.",
        when="64 MB and 1 % of the memory were copied",
    ),
    FindingKind(
        "shm",
        "/dev/shm is {state}: {used:size} of {total:size} in use at most.",
        "{workers:count worker} put batches there; one that finds no room dies with a bus error.",
        "Start the container with --shm-size=8g or --ipc=host; in Kubernetes mount an emptyDir in memory there.",
        when="workers, and `/dev/shm` of 64 MB or 80 % full",
    ),
    FindingKind(
        "reads-from-disk",
        "{share:percent} of what is read comes from disk, not from the page cache.",
        "{disk:size} in all, {rate:size} a second{waited}; there are {memory:size} of memory for caching.",
        "A second epoch reads it again unless it fits into memory: pack small files into larger ones, read them in "
        "order, or put them on faster storage.",
        when="a fifth or more of what the workers read came from storage, at 1 MB a second",
    ),
    FindingKind(
        "network-storage",
        "Data is read over a network: {mounts}.",
        "{rate:size} a second in all; this machine's disk figures do not include it.",
        "Opening a file costs a round trip: pack small files into larger ones, or copy them to a local disk.",
        when="files open on a network file system, read at 1 MB a second",
    ),
)
"""Shortages of the machine, in the order of docs/doctor/internals.md."""
