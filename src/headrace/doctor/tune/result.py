"""The line to paste, and what does not pay. Pure."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.doctor.edits.changes import Wanted
from headrace.doctor.edits.script_source import Source, dotted
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.tune.baseline import Looked
from headrace.doctor.tune.candidates import EVEN, Measured, estimates
from headrace.tune.arguments import Arguments

TRAINING_ARGUMENTS = "TrainingArguments"
"""Where users of transformers' Trainer set the arguments of its loaders."""


@dataclass(frozen=True)
class Paste:
    """Where the arguments go."""

    line: str
    where: str
    """`train.py:42`, or in words where no call is certain to have made the loader."""
    diff: str
    """The change of the user's file; empty where it is not certain, or nothing is to be changed."""


def paste(looked: Looked, choice: Arguments) -> Paste:
    """For the loader of the measured run."""
    keywords = keywords_of(choice, looked.present)
    file, line = looked.case.facts.get("file"), looked.case.facts.get("line")
    if looked.call is not None:
        edit = looked.case.edit(Wanted(keywords)) if choice != looked.present else None
        where = f"{looked.call.source.path}:{looked.call.line}"
        return Paste(_line("DataLoader", keywords), where, "" if edit is None else edit.diff)
    made_by = next((found for source in looked.case.parsed if (found := _training_arguments(source))), None)
    if made_by is not None:
        return Paste(_line(TRAINING_ARGUMENTS, _prefixed(keywords)), made_by, "")
    return Paste(_line("DataLoader", keywords), f"the DataLoader that {file}:{line} iterates", "")


def keywords_of(choice: Arguments, present: Arguments) -> dict[str, str]:
    """Python expressions, of what differs from DataLoader's defaults or from what the script has."""
    keywords = {"num_workers": str(choice.num_workers)}
    if choice.num_workers or present.num_workers:
        keywords["prefetch_factor"] = str(choice.prefetch_factor)
    if choice.pin_memory or present.pin_memory:
        keywords["pin_memory"] = str(choice.pin_memory)
    if choice.persistent_workers or present.persistent_workers:
        keywords["persistent_workers"] = str(choice.persistent_workers)
    return keywords


def not_paying(
    choice: Arguments, runs: Sequence[Measured], predictions: Mapping[Arguments, Prediction]
) -> Iterator[str]:
    """Of each argument, what more of it than the choice has would give: as measured, else as predicted."""
    known = _steps_us(runs, predictions)
    own_us = known[choice][0]
    for title, others in _directions(choice, list(known)):
        best = min(others, key=lambda one: known[one][0], default=None)
        if best is not None:
            yield f"{title}: {_against(best, known[best], own_us)}"


def _directions(choice: Arguments, grid: list[Arguments]) -> Iterator[tuple[str, list[Arguments]]]:
    """What to say, and the settings that have more of it and are otherwise the same."""
    yield (
        f"more workers than {choice.num_workers}",
        [one for one in grid if one.num_workers > choice.num_workers and _is_alike(one, choice, "num_workers")],
    )
    if choice.num_workers:
        yield (
            f"a longer queue than prefetch_factor={choice.prefetch_factor}",
            [
                one
                for one in grid
                if (one.prefetch_factor or 0) > (choice.prefetch_factor or 0)
                and _is_alike(one, choice, "prefetch_factor")
            ],
        )
    for name in ("pin_memory", "persistent_workers"):
        if not getattr(choice, name):
            yield name, [one for one in grid if getattr(one, name) and _is_alike(one, choice, name)]


def _is_alike(one: Arguments, choice: Arguments, but: str) -> bool:
    """Beside the one argument; without workers there are no others."""
    others = {"num_workers", "prefetch_factor", "pin_memory", "persistent_workers"} - {but}
    if but == "num_workers" and not choice.num_workers:
        others = {"pin_memory"}
    return all(getattr(one, name) == getattr(choice, name) for name in others)


def _steps_us(
    runs: Sequence[Measured], predictions: Mapping[Arguments, Prediction]
) -> dict[Arguments, tuple[float, str]]:
    """Means of the runs, and for what was not run, predictions corrected by those."""
    corrected = estimates(predictions, runs)
    known = {one: (math.exp(estimate.mean), "predicted") for one, estimate in corrected.items()}
    for one in runs:
        if one.interval is not None:
            known[one.arguments] = (one.interval[0], "measured")
    return known


def _against(best: Arguments, known: tuple[float, str], own_us: float) -> str:
    step_us, how = known
    change = step_us / own_us - 1
    if abs(change) <= EVEN:
        return f"no faster ({best}: within {100 * EVEN:.0f} % of it, {how})"
    if change < 0:
        but = "which is within its noise" if how == "measured" else "which no run has shown"
        return f"{-100 * change:.0f} % faster ({best}, {how}), {but}"
    return f"{100 * change:.0f} % slower ({best}, {how})"


def _prefixed(keywords: Mapping[str, str]) -> dict[str, str]:
    return {f"dataloader_{name}": text for name, text in keywords.items()}


def _line(name: str, keywords: Mapping[str, str]) -> str:
    return f"{name}(..., {', '.join(f'{key}={text}' for key, text in keywords.items())})"


def _training_arguments(source: Source) -> str | None:
    """The only call that makes them, as `train.py:42`."""
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2].endswith(TRAINING_ARGUMENTS)
    ]
    return f"{source.path}:{calls[0].lineno}" if len(calls) == 1 else None
