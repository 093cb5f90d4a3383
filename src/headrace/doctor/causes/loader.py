"""Headrace's Loader in place of the script's Dataset and DataLoader, as measured by a trial on the run's files."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev

from headrace.doctor.causes.case import LOW, MEDIUM, Case
from headrace.doctor.causes.cause import Cause, Proposal, RemedyKind
from headrace.doctor.causes.processes import EXCEPTION
from headrace.doctor.causes.remedy import ANOTHER_LOADER
from headrace.doctor.quantities import counted, duration, number, size
from headrace.doctor.session.after_run import AdoptedPart, LoaderTrial
from headrace.doctor.simulate import NativeFeed, RecordedRun, predicted, setting

EXACT, NONE = "exact", "no"
"""Degrees to which the Loader covers the dataset's work: everything, nothing. "part" is in between."""
PREFETCHER = "timm.data.loader.PrefetchLoader"
"""timm class that moves the batches of its attribute `loader` to the device and normalizes them there."""
DRAWN = "drawn"
"""Certainty of an array that is random, and of which too few samples were compared."""
MOST_NAMED = 4
"""Drawn arrays from which they are counted and not named."""
QUEUE = 3
"""Maximum number of ready batches in a Loader, unless it finds that more help."""
UNLOADED_ERROR = 0.15
"""Standard error if nothing was measured under training load."""
STRETCH_ERROR = 0.5
"""Share of the simulation's error under the stand-in load that counts as error elsewhere."""
DRIFT_ERROR = 0.05
"""Relative difference between two trials of the same module."""
WHY_NOT = {
    "failed": "It was tried on the run's files, and failed",
    "timed out": "It was tried on the run's files, and took too long",
    "out of memory": "It was tried on the run's files, and took too much memory",
    "interrupted": "Its trial was interrupted",
}


def loader(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose the Loader; None if the dataset's work is unknown."""
    trial = case.session.loader_trial
    if trial is None:
        return None
    why_not = _why_not(case, trial)
    run = case.recorded
    if why_not or run is None:
        return kind.would_not(why_not or "It was tried, and there is no recorded step to compare it with.")
    feed, is_exact = native_feed(run, trial), trial.degree == EXACT
    python_us = _python_us(case, trial) if _lost(trial) else 0.0
    batch_us = tuple(one + python_us / max(case.workers, 1) for one in feed.batch_us)
    feed = replace(feed, batch_us=batch_us, cpu_us=feed.cpu_us + python_us)
    kind = replace(kind, title=f"{kind.title} ({trial.degree})")
    stays = f"What stays in Python takes {duration(python_us)} a batch of one process." if python_us else ""
    why = f"{_why(case, trial)} {trial.reason} {stays}".rstrip()
    proposal = kind.tried(
        case,
        setting(feed=feed),
        why=why,
        confidence=MEDIUM if trial.loaded_us and is_exact else LOW,
        costs=_costs(trial),
        hint=_hint(case, is_exact=is_exact),
        injects={"module": trial.module, "loaders": case.loaders} if is_exact else None,
    )
    if proposal is None:
        step_us = predicted(run, replace(run.setup, feed=feed)).step_us
        return kind.would_not(f"{why} It would give {duration(step_us)} a step in place of {duration(case.step_us)}.")
    remedy = replace(proposal.remedy, degree=trial.degree, parts=trial.parts, coverage=coverage(trial))
    return replace(proposal, remedy=remedy)


def coverage(trial: LoaderTrial) -> str:
    """Name the arrays of a batch that the Loader makes; empty if unknown."""
    lost = _lost(trial)
    count = len({*trial.covered, *trial.left})
    drawn = [part for part in trial.parts if part.certainty == DRAWN]
    names = ", ".join(part.part for part in drawn) if len(drawn) < MOST_NAMED else counted(len(drawn), "array")
    few = f"; {names} drawn: {drawn[0].note}" if drawn else ""
    if not lost:
        covered = f"all {counted(count, 'array')} of a batch" if count > 1 else "the array of a batch" if count else ""
        return f"{covered}{few}"
    stays = f"{', '.join(lost)} {'stays' if len(lost) == 1 else 'stay'} in Python"
    return f"{number(count - len(lost))} of {counted(count, 'array')} of a batch; {stays}{few}"


def _lost(trial: LoaderTrial) -> list[str]:
    """Return the arrays of a batch that stay in the script's own code, or that the Loader makes differently."""
    different = (part.part for part in trial.parts if part.part in trial.covered and is_lost(part))
    return list(dict.fromkeys([*trial.left, *different]))


def _python_us(case: Case, trial: LoaderTrial) -> float:
    """Return a lower bound of the CPU time per batch that stays in Python; all of it if pixels stay there, too."""
    making_us = _present_cpu_us(case) * (case.samples_a_batch or 1)
    kinds = {**trial.leaves, **trial.left}
    is_beside = all(kinds.get(path, "").count(",") < 2 for path in _lost(trial))
    done = sum(one.share for name in ("decode", "transform") for one in case.stages(name)) if is_beside else 0.0
    return making_us * max(0.0, 1.0 - done)


def _why_not(case: Case, trial: LoaderTrial) -> str:
    """Return one sentence on why the Loader is no remedy; empty if it may be a remedy."""
    lines = trial.detail.strip().splitlines()
    raised = [number for number, line in enumerate(lines) if EXCEPTION.match(line)]
    if raised and any(line.lstrip().startswith('File "') for line in lines):
        lines = lines[raised[-1] :]  # keep only the error of a traceback
    detail = " · ".join(line.strip() for line in lines)
    if trial.degree == NONE:
        return trial.reason or "What the dataset does is not known well enough."
    if trial.why == "not tried":
        return detail or "It was not tried on the run's files."
    if trial.why != "measured" or not trial.batch_us:
        said = WHY_NOT.get(trial.why, "It was tried on the run's files, and gave no batches")
        return f"{said}: {detail}" if detail else f"{said}."
    return ""


def native_feed(run: RecordedRun, trial: LoaderTrial) -> NativeFeed:
    """Return the loader as the trial measured it, fitted to the measurement alongside a training stand-in."""
    mean_us = fmean(trial.batch_us)
    feed = NativeFeed(tuple(trial.batch_us), mean_us if trial.cpu_us is None else trial.cpu_us, QUEUE)
    if not trial.loaded_us or trial.stand_in_us is None:
        return replace(feed, error=UNLOADED_ERROR)
    # The stand-in rarely takes exactly as long as the step that it represents.
    more_us = run.unhindered_us() - trial.stand_in_us
    simulated_us = predicted(run, replace(run.setup, feed=feed)).step_us
    stretch = max(fmean(trial.loaded_us) + more_us, run.unhindered_us()) / simulated_us
    turns = trial.loaded_us
    uncertainty = stdev(turns) / math.sqrt(len(turns)) / fmean(turns) if len(turns) > 1 else UNLOADED_ERROR
    return replace(feed, stretch=stretch, error=math.hypot(DRIFT_ERROR, STRETCH_ERROR * math.log(stretch), uncertainty))


def _why(case: Case, trial: LoaderTrial) -> str:
    """Describe what the trial measured, compared with the run."""
    each = f" of {number(trial.batch_size)}" if trial.batch_size else ""
    threads = "" if trial.threads is None else f" on {counted(trial.threads, 'thread')}"
    alone = f"On the run's own files it makes a batch{each} in {duration(fmean(trial.batch_us))}{threads}"
    if trial.cpu_us is not None and trial.batch_size:
        alone += f", {duration(trial.cpu_us / trial.batch_size)} of a core a sample"
        alone += f" in place of {duration(_present_cpu_us(case))}"
    if trial.loaded_us and trial.stand_in_us is not None:
        alone += (
            f"; alongside a stand-in of the training step, which takes {duration(trial.stand_in_us)} by itself, a "
            f"step takes {duration(fmean(trial.loaded_us))}"
        )
    return f"{alone} ({counted(trial.samples, 'sample')})."


def _present_cpu_us(case: Case) -> float:
    """Return the current CPU time per sample."""
    run, samples = case.recorded, case.samples_a_batch
    return 0.0 if run is None or not samples else run.making_cpu_us / run.batches_a_step / samples


def _costs(trial: LoaderTrial) -> list[str]:
    """Return the costs: memory, parts to check, and a different sample order."""
    costs = [] if trial.peak_bytes is None else [f"{size(trial.peak_bytes)} of memory"]
    unsure = [part for part in trial.parts if is_unsure(part)]
    if unsure:
        costs.append(f"{counted(len(unsure), 'part')} of {number(len(trial.parts))} to check")
    python = [part for part in trial.parts if part.certainty == "python"]
    if python:
        costs.append(f"{counted(len(python), 'part')} as Python, in map=")
    return [*costs, "samples in an order, and with draws, of its own seed"]


def is_unsure(part: AdoptedPart) -> bool:
    """Return True if the script's author has to check a part."""
    return part.certainty not in (EXACT, DRAWN, "differs")


def is_lost(part: AdoptedPart) -> bool:
    """Return True if the Loader omits a part of the script's work, or leaves the part in Python."""
    return part.certainty == "python" or (is_unsure(part) and not part.becomes)


def _hint(case: Case, *, is_exact: bool) -> str:
    where = f" in {place}" if (place := case.facts.get("made")) else ""
    kind = "the module" if is_exact else "a draft, with the parts to check marked"
    then = f"Then{where}: make_dataloader() of it in place of the DataLoader"
    wrapper = (case.facts.get("described") or {}).get("wrapper")
    if isinstance(wrapper, dict) and wrapper.get("class") == PREFETCHER:
        then = (
            "Then behind create_loader(…): loader.loader = make_dataloader(batch_size=…) of it, and timm's prefetcher "
            "moves and normalizes its batches"
        )
    return f"headrace doctor --draft FILE writes {kind}. {then}"


CAUSE = Cause(
    remedies=[
        RemedyKind(
            "loader",
            "Headrace's Loader in place of the DataLoader",
            ANOTHER_LOADER,
            loader,
            key="loader",
            value='`{"module": "…", "loaders": [0]}`: the text of the module, and the loaders that it replaces; of '
            "degree `exact` only",
            does_all=True,
        )
    ]
)
