"""GPU memory that is left for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import Case
from headrace.doctor.causes.gpu import LEFT, gpu_findings
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.quantities import percent, size
from headrace.doctor.remedies.proposal import Proposal, unpredicted, would_not

CODE = "larger-batch"


def larger_batch(case: Case) -> Iterator[Proposal]:
    """Whether training allows one is the user's to say, and how the step grows with it was not seen."""
    title = "a larger batch"
    if not case.has_gpu or case.host is None:
        return
    found = [one for one in gpu_findings(case.host) if one.code == "gpu-memory-left"]
    if not found:
        yield would_not(CODE, title, f"Less than {percent(LEFT)} of the GPU's memory is left{_peak(case)}.")
    elif case.wait_share >= BOUND:
        waits = f"a step waits {percent(case.wait_share)} for data, and a larger batch waits as long for each sample"
        yield would_not(CODE, title, f"{found[0].text} But {waits}.")
    else:
        yield unpredicted(
            CODE,
            title,
            found[0].text,
            costs=["other hyperparameters: a larger batch trains otherwise", "more memory for batches in workers"],
            hint="DataLoader(…, batch_size=…) until the memory is used, with the learning rate to fit",
        )


def _peak(case: Case) -> str:
    assert case.host is not None
    peaks = [
        f"{size(used)} of {size(facts['memory_bytes'])}"
        for name, facts in (case.host.facts.get("gpus") or {}).items()
        if facts.get("memory_bytes") and (used := case.host.peak(f"{name}_memory_used_bytes")) is not None
    ]
    return f": {', '.join(peaks)} in use at most" if peaks else ""
