"""What a tuned run came to, as data and as a line to paste."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.edits.script_source import ScriptSource, dotted
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.tune.baseline import Looked
from headrace.doctor.tune.candidates import EVEN, Arguments, MeasuredArguments, estimates

# -- from tune/advice.py: The line to paste, and what does not pay. Pure.


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
        edit = looked.case.edit(WantedEdit(keywords)) if choice != looked.present else None
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
    choice: Arguments, runs: Sequence[MeasuredArguments], predictions: Mapping[Arguments, Prediction]
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
    runs: Sequence[MeasuredArguments], predictions: Mapping[Arguments, Prediction]
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


def _training_arguments(source: ScriptSource) -> str | None:
    """The only call that makes them, as `train.py:42`."""
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2].endswith(TRAINING_ARGUMENTS)
    ]
    return f"{source.path}:{calls[0].lineno}" if len(calls) == 1 else None


# -- from tune/result.py: All of a tuning, and its JSON document: pure.


SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """What was looked at, run and found."""

    command: Sequence[str]
    present: Arguments
    choice: MeasuredArguments
    """The run whose arguments are proposed: the first one where the script is best left as it is."""
    runs: Sequence[MeasuredArguments]
    """The first is the script as it is."""
    predictions: Mapping[Arguments, Prediction]
    ended: str
    """Why there was no further run: `time`, `runs`, `interrupted` or `nothing to gain`."""
    paste: Paste
    notes: Sequence[str]
    """What does not pay, what was left out, and to what else this applies."""
    files: Sequence[str] = ()
    """What became of files that the command changed."""
    seconds: float

    @property
    def is_kept(self) -> bool:
        """Whether nothing is to be changed."""
        return self.choice.arguments == self.present

    @property
    def speedup(self) -> float:
        """Of a step as it was."""
        before, after = self.runs[0].interval, self.choice.interval
        return 1.0 if before is None or after is None else before[0] / after[0]

    def document(self) -> dict[str, Any]:
        """As JSON takes it; times in microseconds."""
        return {
            "schema": SCHEMA,
            "command": list(self.command),
            "outcome": "keep" if self.is_kept else "change",
            "present": asdict(self.present),
            "choice": asdict(self.choice.arguments),
            "speedup": self.speedup,
            "paste": asdict(self.paste),
            "ended": self.ended,
            "notes": list(self.notes),
            "files": list(self.files),
            "seconds": self.seconds,
            "runs": [_run(one) for one in self.runs],
            "grid": [{**asdict(one), "predicted": asdict(made)} for one, made in self.predictions.items()],
        }


def _run(one: MeasuredArguments) -> dict[str, Any]:
    mean, low, high = one.interval or (None, None, None)
    return {
        "arguments": asdict(one.arguments),
        "why": one.why,
        "detail": one.detail,
        "steps": len(one.steps),
        "step_us": mean,
        "low_us": low,
        "high_us": high,
        "others_cores": one.others_cores,
    }
