"""Costly functions in `__getitem__` and collate, each with its line, cost and Headrace counterpart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..measure import BOUND, Finding, LoaderProduction, RankView, SampleFunction, TrainerView
from ..quantities import duration, percent
from ..session.after_run import AdoptedPart
from ..session.model import Session
from ..simulate import RecordedRun, StageChange, predicted, recorded
from .case import name_of
from .counterparts import Counterpart, counterpart_of

SAMPLE_FUNCTION = "sample-function"
LEAST = 0.08
"""Reporting threshold: share of making a batch that a function takes."""
LEAST_OWN = 0.12
"""Reporting threshold for the script's own Python, which is the time of its lines minus measured calls."""
MOST = 4
"""Maximum number of findings."""
MOST_LINES = 3
"""Maximum number of a function's lines in a finding."""
OF_A_BATCH = " of making a batch"
IN_MAP = (
    "No field, view or augmentation of Headrace does this: headrace.Loader takes it as map= (map_workers= for Python "
    "that holds the GIL), and leaves the rest to its core."
)
IN_NUMPY = "Look at whether numpy or torch does it for a whole array at once."
ADOPTED = ("exact", "differs", "check")
"""Certainties of parts that the Loader takes over itself."""


def function_findings(session: Session, view: TrainerView, ranks: Sequence[RankView]) -> Iterator[Finding]:
    """Yield the costly functions of the loader that steps wait for most, heaviest first.

    The weight is the share of a step that is saved without the function, from a simulation of the recorded work.
    """
    if (view.wait_share or 0.0) < BOUND:
        return
    making = next((one for one in view.batch_production if one.loader in view.training.fed), None)
    found = [] if making is None else [one for one in making.functions if _is_costly(one)][:MOST]
    if making is None or not found:
        return
    run = None if making.threads else recorded(session, view, ranks)
    for function in found:
        counterpart = counterpart_of(function)
        weight, evidence = _price(view, run, making, function)
        yield Finding(
            code=SAMPLE_FUNCTION,
            weight=weight,
            text=f"{_said(function)} {percent(function.share)}{OF_A_BATCH}"
            f"{f'; {counterpart.code} {counterpart.does}' if counterpart else ''}.",
            evidence=evidence,
            advice=_advice(session, function, counterpart),
        )


def in_short(finding: Finding) -> str:
    """Return the sentence on a function and its share, without the replacement."""
    return f"{finding.text.partition(OF_A_BATCH)[0]}{OF_A_BATCH}."


def _is_costly(function: SampleFunction) -> bool:
    """Return True if a function is worth a finding. Decoding and collation have their own findings."""
    if function.category == "decode":
        return function.share >= LEAST and counterpart_of(function) is not None
    if function.category in ("getitem", "collate"):
        return function.share >= LEAST_OWN and bool(function.places)
    return function.share >= LEAST


def _said(function: SampleFunction) -> str:
    """Return the start of a sentence: the function, its lines and the verb."""
    library = f" ({function.library})" if function.library else ""
    where = at_lines(function.places)
    if function.category == "getitem":
        return (
            f"The script's own Python in {function.name}{', most of it' if len(function.places) > 1 else ''}{where} is"
        )
    if function.category == "decode":
        return f"Decoding 16-bit images ({function.name}){where} is"
    return f"{function.name}{library}{where} is"


def at_lines(places: Sequence[str]) -> str:
    """Return text such as ` at train.py:48 and 49` for the lines of one file; empty without lines."""
    parts = [place.rsplit(":", 2) for place in places[:MOST_LINES]]
    if not parts:
        return ""
    lines = sorted({int(line) for file, line, _ in parts if file == parts[0][0] and line.isdigit()})
    return f" at {os.path.basename(parts[0][0])}:{' and '.join(map(str, lines))}"


def _without(making: LoaderProduction, function: SampleFunction) -> dict[str, StageChange]:
    """Return the changes to the stages of making a batch that remove a function."""
    wholes = {name_of(stage): stage.share for stage in making.stages}
    return {
        name: StageChange().scaled(max(1 - share / wholes[name], 0.0))
        for name, share in function.inside.items()
        if wholes.get(name)
    }


def _step_without_us(run: RecordedRun, making: LoaderProduction, function: SampleFunction) -> float:
    return predicted(run, replace(run.setup, stages={**run.setup.stages, **_without(making, function)})).step_us


def _price(
    view: TrainerView, run: RecordedRun | None, making: LoaderProduction, function: SampleFunction
) -> tuple[float, str]:
    """Return the share of a step that is saved without a function, and the evidence."""
    said = f"{duration(function.wall_us)} a sample"
    if run is None:
        return function.share * (view.wait_share or 0.0), said
    step_us = _step_without_us(run, making, function)
    said += (
        f"; without it a {view.training.unit} would take {duration(step_us)} in place of {duration(run.observed_us)}"
    )
    return max(1 - step_us / run.observed_us, 0.0), said


def _advice(session: Session, function: SampleFunction, counterpart: Counterpart | None) -> str:
    """Return the function's replacement: the remedy `loader` if it has one, else the counterpart."""
    trial = session.loader_trial
    part = None if trial is None else _part_of(trial.parts, function)
    if part is not None and part.becomes:
        return f"The remedy `loader` has {part.becomes} in its place."
    own = f" {IN_NUMPY}" if function.category in ("getitem", "collate") else ""
    if counterpart is None or (part is not None and part.certainty == "python"):
        return f"{IN_MAP}{own}"
    return f"hr.Loader (import headrace as hr) has {counterpart.code} in its place."


def _part_of(parts: Sequence[AdoptedPart], function: SampleFunction) -> AdoptedPart | None:
    """Return the Loader part that replaces a function: same class name, else a part on its line with its name."""
    named = [one for one in parts if one.part.partition("(")[0] == function.name and one.certainty in ADOPTED]
    lines = ["/" + ":".join(place.rsplit(":", 2)[:2]) for place in function.places]
    word = function.name.split()[-1].rpartition(".")[2]
    there = [one for one in parts if one.place and any(line.endswith(f"/{one.place}") for line in lines)]
    return next(iter([*named, *(one for one in there if word in one.part)]), None)
